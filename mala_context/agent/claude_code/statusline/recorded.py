"""How full a session is by its transcript, read from its end, and what was said since it was compacted."""

from __future__ import annotations

import os

from mala_context._util.safe_open import open_regular
from mala_context.agent.claude_code.statusline.values import count, rows, table, tokens_of
from mala_context.agent.hook_inputs import text_in
from mala_context.transcripts.compactions import MARKS, is_main_boundary, is_summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_BLOCK = 1 << 16
_MOST_TAIL = 32 << 20
_MOST_HEAD = 8 << 20


def _lines_from_end(path: str) -> Iterator[bytes]:
    """Yield a file's lines from the last to the first, of `_MOST_TAIL` bytes at most; a cut first line is left out."""
    descriptor = open_regular(path)
    try:
        end = os.fstat(descriptor).st_size
        least, parts, size = max(0, end - _MOST_TAIL), [], _BLOCK
        while end > least:
            start = max(least, end - size)
            data = os.pread(descriptor, end - start, start)
            end, size = start, min(size * 2, 1 << 20)
            head, found, rest = data.partition(b"\n")
            if not found:
                parts.append(data)
                continue
            lines = (rest + b"".join(reversed(parts))).split(b"\n")
            parts = [head]
            yield from reversed(lines)
        if least == 0 and parts:
            yield b"".join(reversed(parts))
    finally:
        os.close(descriptor)


def _response(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return the size and the model of a response of the main agent; `None` for any other row."""
    message = table(row, "message")
    model = text_in(message, "model")
    if row.get("type") != "assistant" or row.get("isSidechain") is True or model == "<synthetic>":
        return None, None
    return tokens_of(table(message, "usage")), model


def from_transcript(path: str) -> tuple[int | None, str, str | None]:
    """Return size, source and model of the session by its transcript, read from the end."""
    summarized = False
    try:
        for data in _lines_from_end(path):
            if b'"assistant"' not in data and b"ompact" not in data:
                continue
            for row in reversed(rows(data)):
                tokens, model = _response(row)
                if tokens:  # before a summary that no boundary announced (old CLIs) it says nothing of what is left
                    return (None, "none", model) if summarized else (tokens, "transcript", model)
                if is_main_boundary(row):
                    return _after_compaction(path, row)
                summarized = summarized or (is_summary(row) and not row.get("isSidechain"))
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    return None, "none", None


def _after_compaction(path: str, boundary: Mapping[str, Any]) -> tuple[int | None, str, str | None]:
    """Estimate the next request, by the tracker's formula, from the transcript's head."""
    post = count(table(boundary, "compactMetadata").get("postTokens"))
    prompt_chars, attachment_chars, first, model = _opening(path)
    if first is None or not post:
        return None, "none", model
    from mala_context.tracking.projection import CHARS_PER_TOKEN, after_compaction, family

    per_token = CHARS_PER_TOKEN[family(model)]
    return *after_compaction(first, post, prompt_chars, attachment_chars or None, per_token), model


def _opening(path: str) -> tuple[int, int, int | None, str | None]:
    """Return what the session's first request held: characters of prompts and attachments, its size, its model."""
    from mala_context.tracking.text_counts import REANNOUNCED, kind_of, text_length

    prompt = attachments = 0
    with os.fdopen(open_regular(path), "rb") as file:
        while file.tell() < _MOST_HEAD and (data := file.readline(_MOST_HEAD)):
            if not any(kind in data for kind in (b'"user"', b'"attachment"', b'"assistant"')):
                continue
            for row in rows(data):
                kind = row.get("type")
                tokens, model = _response(row)
                if tokens:
                    return prompt, attachments, tokens, model
                if kind == "user" and row.get("isSidechain") is not True:
                    prompt += text_length(table(row, "message").get("content"))
                elif kind == "attachment" and kind_of(table(row, "attachment")) in REANNOUNCED:
                    attachments += _rendered_length(row)
    return prompt, attachments, None, None


def _rendered_length(row: Mapping[str, Any]) -> int:
    """Count the characters of an attachment as the model gets it, which the CLI writes beside it or in it."""
    beside, inside = row.get("rendered"), table(row, "attachment").get("rendered")
    if isinstance(beside, list):
        parts = [part.get("content") for part in beside if isinstance(part, dict)]
        return len("\n".join(part for part in parts if isinstance(part, str)))
    return len(inside) if isinstance(inside, str) else 0


def said_since_compaction(path: str, words: str) -> bool:
    """Tell whether a transcript has these words in an attachment behind its last compaction."""
    needle = words.encode()
    try:
        for data in _lines_from_end(path):
            if needle in data and b'"attachment"' in data:
                return True
            if MARKS[0] in data and any(map(is_main_boundary, rows(data))):
                return False
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    return False
