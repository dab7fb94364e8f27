"""How a command ends: what it says of an error on standard error, and its exit status."""

from __future__ import annotations

import sys
from typing import Final

from mala_context._util.printable import printable
from mala_context.cli import streams
from mala_context.errors import ConfigError, CorruptArchiveError, MalaContextError

CHECK_FAILED: Final = 1
"""Exit status where something is not as it should be, and was looked at to find that out."""
WRONG_USAGE: Final = 2
"""Exit status of a command line that says nothing to do."""
UNUSABLE_INPUT: Final = 3
"""Exit status where an input was not found, cannot be read or cannot be used."""
INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as a shell has it."""
ERRORS: Final = (KeyboardInterrupt, MalaContextError, OSError)
"""What `status_of` knows."""


def status_of(error: BaseException) -> int:
    """Say in a line what went wrong and return the exit status; nothing is wrong where a reader has seen enough."""
    if isinstance(error, KeyboardInterrupt):
        return _said("interrupted", INTERRUPTED)
    if isinstance(error, CorruptArchiveError):
        return _said(f"{error}; `mala-context archives verify` tells more", CHECK_FAILED)
    if isinstance(error, MalaContextError):
        return _said(str(error), UNUSABLE_INPUT, lines=isinstance(error, ConfigError))
    streams.end_output()
    if isinstance(error, BrokenPipeError):
        return 0
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    return _said(f"{where}{getattr(error, 'strerror', None) or error}", UNUSABLE_INPUT)


def _said(message: str, status: int, *, lines: bool = False) -> int:
    sys.stderr.write(f"mala-context: {printable(message, lines=lines)}\n")
    sys.stderr.flush()
    return status
