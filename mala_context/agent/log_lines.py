"""The words of the log lines that people watch, from plain values, and the key-values of these lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mala_context._util.text import percent, window_words

if TYPE_CHECKING:
    from mala_context.tracking.events import Compaction
    from mala_context.tracking.tracker import ContextSnapshot


def context_line(snapshot: ContextSnapshot, agent: str = "main") -> str:
    """Return the gauge in one line: `Context: 63.4% (126,812 of 200,000 tokens), main, claude-sonnet-4-5`.

    Size and share are those of the chosen estimator. An estimate has `about` in it, an unknown size says so, and a
    guessed window is marked.
    """
    window = window_words(snapshot.window, snapshot.window_source)
    model = snapshot.model or "model unknown"
    if snapshot.estimate is None:
        return f"Context: unknown (of {window} tokens), {agent}, {model}"
    about = "" if snapshot.exact else "about "
    ratio = "unknown" if snapshot.ratio is None else percent(snapshot.ratio)
    return f"Context: {about}{ratio} ({snapshot.estimate:,} of {window} tokens), {agent}, {model}"


def size_before(event: Compaction, snapshot: ContextSnapshot | None) -> int | None:
    """Return what the API counted last before a compaction; the CLI's own estimate where that is not known."""
    known = None if snapshot is None or snapshot.before is None else snapshot.before.tokens
    return event.pre_tokens if known is None else known


def compaction_line(event: Compaction, snapshot: ContextSnapshot | None, *, by_reference: bool = False) -> str:
    """`Compaction: 183,021 → 24,310 tokens (trigger=auto, 3.2 s)`; an unknown value reads `unknown`.

    The size before is the measured one. The CLI's own count follows where it is another (case core-33).
    """
    before = size_before(event, snapshot)
    sizes = [before, None if snapshot is None else snapshot.tokens]
    words = " → ".join("unknown" if size is None else f"{size:,}" for size in sizes)
    took = "" if event.duration_ms is None else f", {event.duration_ms / 1000:.1f} s"
    cli = "" if event.pre_tokens in (None, before) else f", {event.pre_tokens:,} by the CLI's own count"
    by = ", by reference" * by_reference
    return f"Compaction: {words} tokens (trigger={event.trigger or 'unknown'}{took}){cli}{by}"


def log_values(snapshot: ContextSnapshot) -> dict[str, object]:
    """Return the key-values of a context line."""
    return {
        "session": snapshot.session_id,
        "agent": snapshot.agent_id,
        "model": snapshot.model,
        "tokens": snapshot.estimate,
        "window": snapshot.window,
        "ratio": snapshot.ratio,
        "source": snapshot.window_source,
    }
