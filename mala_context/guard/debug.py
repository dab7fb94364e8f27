"""The debug topics on standard error, where the environment has `CONTEXT_DEBUG=true`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from mala_context._util.foreign_code import passes
from mala_context.guard.events import GuardEvent, Listener

VARIABLE: Final = "CONTEXT_DEBUG"


def debug_printer(environ: Mapping[str, str] | None = None, stream: TextIO | None = None) -> Listener | None:
    """Return a listener that prints each debug topic as one line of JSON; `None` unless `CONTEXT_DEBUG` is `true`.

    `environ` is by default the process's own environment, `stream` standard error. Each `ContextGuard` and each runtime
    calls this function; if it gets `None`, it makes no debug records. The listener never raises.
    """
    variables = os.environ if environ is None else environ
    if variables.get(VARIABLE, "").strip().lower() != "true":
        return None

    def write(event: GuardEvent) -> None:
        out = sys.stderr if stream is None else stream
        try:
            out.write(f"[{event.name}] {json.dumps(event.fields, default=str)}\n")
        except BaseException as error:  # standard error may be closed, and no agent may stop for a debug line
            if passes(error):
                raise

    return write
