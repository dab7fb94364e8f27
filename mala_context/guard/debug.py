"""The debug topics on standard error, where the environment has `CONTEXT_DEBUG=true`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from mala_context.guard.events import GuardEvent, Listener

VARIABLE: Final = "CONTEXT_DEBUG"


def debug_printer(environ: Mapping[str, str] | None = None, stream: TextIO | None = None) -> Listener | None:
    """Return a listener that prints each debug topic as one line of JSON, or `None` unless `CONTEXT_DEBUG` is `true`.

    `environ` is the process's own environment unless it is given, and `stream` is standard error. Each `ContextGuard`
    and each runtime asks for it by itself. With `None` they make no debug records.
    """
    variables = os.environ if environ is None else environ
    if variables.get(VARIABLE, "").strip().lower() != "true":
        return None

    def write(event: GuardEvent) -> None:
        out = sys.stderr if stream is None else stream
        out.write(f"[{event.name}] {json.dumps(event.fields, default=str)}\n")

    return write
