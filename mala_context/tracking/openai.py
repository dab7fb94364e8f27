"""The status of an OpenAI-compatible conversation, for a status line or a health endpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

from mala_context.tracking.estimators import COMPACT_AT
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.windows import OPENAI_WINDOW


class OpenAIStatus(NamedTuple):
    """How full an OpenAI-compatible conversation is; made by `status`."""

    tokens: int | None
    """The last answer's total; ceil(chars/4) while no answer had usage, and `None` before the first answer."""
    max_tokens: int
    """The window: the configured one, or 128,000."""
    messages: int
    """Answers so far, with or without usage; a stream is one answer."""
    is_estimate: bool
    """Whether `tokens` was derived from text, because no answer had usage yet."""

    @property
    def ratio(self) -> float | None:
        """`tokens` as a share of the window; may exceed 1.0; `None` while unknown."""
        return None if self.tokens is None or self.max_tokens <= 0 else self.tokens / self.max_tokens

    @property
    def wants_compaction(self) -> bool:
        """Whether 90 % of the window is full: summarise the conversation before the next request."""
        return self.ratio is not None and self.ratio >= COMPACT_AT

    def as_dict(self) -> dict[str, Any]:
        """Return the payload for JSON; the keys are stable."""
        return {**self._asdict(), "ratio": self.ratio, "wants_compaction": self.wants_compaction}


def openai_status(tracker: ContextTracker) -> OpenAIStatus:
    """Return the status of a tracker that was made with `estimator="total_tokens"`.

    Raises `ValueError` for a tracker with another estimator, because its window is not this conversation's.
    """
    if tracker.estimator != "total_tokens":
        raise ValueError(f"the estimator is {tracker.estimator!r}: 'total_tokens' would be right")
    answer = tracker.estimates_of(tracker.main)["total_tokens"]
    snapshot = tracker.snapshot()
    guessed = answer.window is None and snapshot.window_source in {"table", "guess"}  # no answer came yet
    window = OPENAI_WINDOW if guessed else snapshot.window
    return OpenAIStatus(answer.tokens, window, answer.audit["messages"] or 0, answer.is_estimate)
