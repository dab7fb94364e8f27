"""Turn every report of a full window into one record.

The CLI reports it in a result that otherwise looks like success (`terminal_reason`), in the text of a result or an
answer, or in the row of an API error. Other makers' servers report it in their own words.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mala_context.tracking.events import Event, Refusal, TurnEnd
from mala_context.tracking.readers.parts import number_in

TERMINAL_REASONS: Final = frozenset(
    {
        "prompt_too_long",
        "rapid_refill_breaker",  # the CLI's own breaker: it compacted, and the context was full again at once
        "model_context_window_exceeded",
        "context_window_exceeded",
    }
)
"""Values of a result's `terminal_reason` (or of a response's `stop_reason`) that mean it."""

_DIGITS: Final = r"[\d,_]{1,20}"
_NUMBER: Final = f"({_DIGITS})"
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"prompt is too long(?::\s*{_NUMBER} tokens\s*>\s*{_NUMBER} maximum)?",
        rf"input length and `?max_tokens`? exceed context limit:?\s*{_NUMBER}\s*\+\s*[\d,_]+\s*>\s*{_NUMBER}",
        rf"maximum context length is (?P<maximum>{_DIGITS}) tokens(?:.{{0,80}}?(?:resulted in|requested) {_NUMBER})?",
        r"context_length_exceeded",
        r"exceed(?:s|ed)? (?:the )?(?:model'?s )?(?:maximum )?context (?:window|length|limit)",
        r"^conversation (?:is )?too long",
    )
)
"""Words that report it; groups are the size and the maximum, if they name these."""
_LOOKED_AT: Final = 2_000
"""Only this many characters of a text are searched: an error is short, and a long answer may quote one."""


class ContextOverflow(NamedTuple):
    """The context was too large for the model."""

    source: str
    """`terminal_reason`, `text`, `refusal`: where it was said."""
    tokens: int | None = None
    """Size of the refused request, where that was said."""
    maximum: int | None = None
    """What the API takes at most, where that was said."""
    session_id: str | None = None
    """Session in which it happened."""

    def line(self) -> str:
        """Return the words of the WARNING."""
        size = "" if self.tokens is None else f" at {self.tokens:,} tokens"
        most = "" if self.maximum is None else f" (the model takes {self.maximum:,})"
        return f"Context: the window is full, the request was refused{size}{most}"


def overflow_of(event: Event) -> ContextOverflow | None:
    """Return the overflow that an event of the core reports, or `None`. Never raises.

    A result's text counts only where the result is an error; with a size in both, the text's numbers are kept.
    """
    if isinstance(event, Refusal):
        return ContextOverflow("refusal", event.tokens, event.maximum, event.session_id)
    if not isinstance(event, TurnEnd):
        return None
    found = _from_text(event.result, event.session_id) if event.is_error and event.result else None
    if event.terminal_reason in TERMINAL_REASONS:
        known = found or ContextOverflow("terminal_reason")
        return ContextOverflow("terminal_reason", known.tokens, known.maximum, event.session_id)
    return found


def _from_text(text: str, session_id: str | None) -> ContextOverflow | None:
    head = text[:_LOOKED_AT]
    for pattern in _PATTERNS:
        match = pattern.search(head)
        if match:
            named = match.groupdict().get("maximum")
            numbers = [number_in(group) for group in match.groups() if group and group != named]
            tokens = numbers[0] if numbers else None
            maximum = number_in(named) if named else numbers[1] if len(numbers) > 1 else None
            return ContextOverflow("text", tokens, maximum, session_id)
    return None
