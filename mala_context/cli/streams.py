r"""Standard streams that anything can be written to.

A stream may be closed, and its encoding may lack what we write: `→`, `✓`, a model's words, a file's name that is no
text. A closed stream becomes the null device before anything else is opened, or else the next file or pipe would get
its number and be written to in its place. A character that cannot be encoded is written as `\uXXXX`, which within a
string is right in JSON too.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import IO, Final

ESCAPE: Final = "mala_context.escape"
"""Name of the error handler."""


def prepare() -> None:
    """Make the standard streams of this process safe to use; may be called again."""
    codecs.register_error(ESCAPE, _escape)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPE)


def end_output() -> None:
    """Write what the output streams still hold; if that fails, drop it, or Python would complain of it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def can_redraw(stream: IO[str]) -> bool:
    """Tell whether a line can be drawn over another one: on a terminal that is no dumb one."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end
