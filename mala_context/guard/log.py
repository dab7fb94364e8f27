"""Log a guard's events for people. The guard itself logs nothing: give it `on_event=log_guard_event`."""

from __future__ import annotations

from typing import Final

from mala_context._util.log import get_logger
from mala_context.guard import GuardEvent

STILL_OVER: Final = "Context limit still exceeded with finishing tools alone; going on."
"""Words of a second WARNING, if the request is over the limit even with the finishing tools alone."""
_log = get_logger(__name__)


def log_guard_event(event: GuardEvent) -> None:
    """Log an event: with its message as a WARNING, without a message as a DEBUG line.

    Give it to `ContextGuard` as `on_event`.
    """
    if event.message is not None:
        _log.warning(event.message, **event.fields)
        if event.fields.get("still_over"):
            _log.warning(STILL_OVER, **event.fields)
    else:
        _log.debug("%s: %s", event.name, event.fields.get("outcome"), **event.fields)
