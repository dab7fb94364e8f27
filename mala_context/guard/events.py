"""What the guard says, as data: one frozen record for every observer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

Trigger = Literal["turn_preflight", "tool_preflight"]
"""What was about to happen: a request to the model, or a tool's result joining the context."""
Outcome = Literal["ok", "skip", "final"]
"""Of one target: it holds the request; it does not, but another does; none does."""

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
"""Names of the debug records, which are made only where somebody asked for them."""


class GuardEvent(NamedTuple):
    """One thing that the guard has to say."""

    name: str
    """`agent:context`, or one of `DEBUG_TOPICS`."""
    fields: Mapping[str, Any]
    """Values by name; of `agent:context`: trigger, outcome, limit_tokens, projected_tokens, remaining_tokens,
    provider and model of the target meant, and of a forced final turn still_over."""
    message: str | None = None
    """Words of a WARNING, where this event is one."""

    def as_dict(self) -> dict[str, Any]:
        """Return name and fields in one dict, for JSON."""
        return {"event": self.name, **self.fields}


Listener = Callable[[GuardEvent], None]
"""Takes an event at once, in the guard's own call: be quick; what it raises reaches the guard's caller."""
