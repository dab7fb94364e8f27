"""Reads answers of OpenAI-compatible servers, whole or streamed, as objects or dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mala_context.tracking.events import Events, TotalTokens
from mala_context.tracking.readers.parts import count, text


def read_openai(answer: Any) -> Events:
    """Return the counts of an answer or of a stream's chunk. Never raises.

    Only the last chunk of a stream has counts, and it has no choices. Chunks of one stream share an id. An answer
    without usage gives an event without a total, so that the last value stays. The same holds for a total of 0, because
    every answer takes tokens (case core-35).
    """
    try:
        usage = _get(answer, "usage")
        choices = _get(answer, "choices")
        if usage is None and choices is None:
            return ()
        total = count(_get(usage, "total_tokens")) or None
        prompt, completion = count(_get(usage, "prompt_tokens")), count(_get(usage, "completion_tokens"))
        if total is None and prompt is not None and completion is not None:
            total = prompt + completion or None
        model, answer_id = text(_get(answer, "model")), text(_get(answer, "id"))
        return (TotalTokens(total, model, prompt, completion, _content(choices), answer_id),)
    except Exception:  # noqa: BLE001  (an answer that we do not understand moves nothing)
        return ()


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _content(choices: Any) -> str:
    if not isinstance(choices, list | tuple):
        return ""
    parts = []
    for choice in choices:
        message = _get(choice, "message") or _get(choice, "delta")
        content = _get(message, "content")
        if isinstance(content, str):
            parts.append(content)
    return "".join(parts)
