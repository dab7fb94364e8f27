"""The words of the log lines that people watch, from plain values, and the key-values of these lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mala_context._util.text import percent, window_words

if TYPE_CHECKING:
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


def compaction_line(
    before: int | None, after: int | None, trigger: str | None, milliseconds: int | None, *, by_reference: bool = False
) -> str:
    """`Compaction: 183,021 → 24,310 tokens (trigger=auto, 3.2 s)`; what is not known reads `unknown`."""
    sizes = " → ".join("unknown" if size is None else f"{size:,}" for size in (before, after))
    took = "" if milliseconds is None else f", {milliseconds / 1000:.1f} s"
    return f"Compaction: {sizes} tokens (trigger={trigger or 'unknown'}{took}){', by reference' * by_reference}"


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
