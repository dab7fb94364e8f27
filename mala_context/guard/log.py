"""What the guard says, for people: WARNING lines, and the debug topics on standard error when `CONTEXT_DEBUG=true`.

The guard itself says nothing to anybody: give it `on_event=log_guard_event` and `on_debug=debug_printer()`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from mala_context._util.log import get_logger
from mala_context.guard import GuardEvent
from mala_context.guard.events import Listener

STILL_OVER: Final = "Context limit still exceeded with finishing tools alone; going on."
"""Words of a second WARNING where shrinking the tools was not enough."""
VARIABLE: Final = "CONTEXT_DEBUG"
_log = get_logger(__name__)


def log_guard_event(event: GuardEvent) -> None:
    """Log an `agent:context` event: as a WARNING with its words where it has some, else as a DEBUG line.

    Give it to `ContextGuard` as `on_event`.
    """
    if event.message is not None:
        _log.warning(event.message, **event.fields)
        if event.fields.get("still_over"):
            _log.warning(STILL_OVER, **event.fields)
    else:
        _log.debug("%s: %s", event.name, event.fields.get("outcome"), **event.fields)


def debug_printer(environ: Mapping[str, str] | None = None, stream: TextIO | None = None) -> Listener | None:
    """Return a listener that prints each debug topic as one line of JSON, or `None` unless `CONTEXT_DEBUG` is `true`.

    `environ` is the process's own environment unless it is given, and `stream` is standard error. Give the listener to
    `ContextGuard` as `on_debug`. With `None` the guard makes no debug records.
    """
    variables = os.environ if environ is None else environ
    if variables.get(VARIABLE, "").strip().lower() != "true":
        return None

    def write(event: GuardEvent) -> None:
        out = sys.stderr if stream is None else stream
        out.write(f"[{event.name}] {json.dumps(event.fields, default=str)}\n")

    return write
