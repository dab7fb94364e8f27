"""The guard's events, as data: one kind of record for every listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

Trigger = Literal["turn_preflight", "tool_preflight"]
"""What the guard was asked about: a request to the model, or a tool's result that joins the context."""
Outcome = Literal["ok", "skip", "final"]
"""Of one target: `ok`, it can hold the request; `skip`, only another target can; `final`, no target can."""

EVENT_NAME: Final = "agent:context"
"""Name of the events that applications watch."""
DEBUG_TOPICS: Final = tuple(
    f"context-guard/{topic}"
    for topic in (
        "init-counters",
        "loop-init",
        "schema-estimate",
        "schema-tokens",
        "provider-eval",
        "enforce",
        "log-entry",
        "tool-eval",
        "request-metrics",
    )
)
"""Names of the debug records, which are made only for a listener."""


class GuardEvent(NamedTuple):
    """One event or debug record of the guard."""

    name: str
    """`agent:context`, or one of `DEBUG_TOPICS`."""
    fields: Mapping[str, Any]
    """Values by name. `agent:context` has trigger, outcome, limit_tokens, projected_tokens and remaining_tokens. It has
    provider and model if it is about one target, and still_over if a final turn was forced."""
    message: str | None = None
    """Words of a WARNING; `None` if the event is not worth a WARNING."""

    def as_dict(self) -> dict[str, Any]:
        """Return name and fields in one dict, for JSON."""
        return {"event": self.name, **self.fields}


Listener = Callable[[GuardEvent], None]
"""Gets each event inside the guard's own call. So it must be quick, and its errors reach the guard's caller."""
