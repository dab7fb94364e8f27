"""How full a session is, from Claude Code's JSON and, where that lacks something, from its transcript."""

from __future__ import annotations

from mala_context.agent.claude_code.statusline.gauge import Gauge
from mala_context.agent.claude_code.statusline.usable import threshold_of
from mala_context.agent.claude_code.statusline.values import count, table, tokens_of
from mala_context.agent.hook_inputs import text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def measure(given: Mapping[str, Any], env: Mapping[str, str]) -> Gauge:
    """Say how full a session is, from Claude Code's JSON and, where that lacks something, from its transcript.

    Never raises: what cannot be read is unknown.
    """
    context, model = table(given, "context_window"), table(given, "model")
    path, identity = text_in(given, "transcript_path"), text_in(model, "id")
    tokens, source, named = tokens_of(table(context, "current_usage")), "cli", None
    if not tokens:
        tokens, source, named = _recorded(path) if path else (None, "none", None)
    window, window_source = _window(context, model, identity or named or "", tokens)
    return Gauge(
        session_id=text_in(given, "session_id"),
        model=text_in(model, "display_name") or identity or named or "",
        tokens=tokens,
        window=window,
        window_source=window_source,
        threshold=threshold_of(window, given, env),
        source=source,
    )


def _recorded(path: str) -> tuple[int | None, str, str | None]:
    from mala_context.agent.claude_code.statusline.recorded import from_transcript  # most lines need none of it

    return from_transcript(path)


def _window(context: Mapping[str, Any], model: Mapping[str, Any], identity: str, tokens: int | None) -> tuple[int, str]:
    said = count(context.get("context_window_size"))
    if said:
        return said, "cli"
    from mala_context.tracking.windows import LONG_WINDOW, from_name

    window = from_name(f"{identity} {text_in(model, 'display_name') or ''}".strip())
    if window.source != "suffix":
        window = from_name(identity)
    if tokens is not None and tokens > window.tokens:
        return max(tokens, LONG_WINDOW), window.source
    return window.tokens, window.source
