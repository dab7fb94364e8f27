"""Read a session's size, pace and cache from the end of its transcript; find words since its last compaction."""

from __future__ import annotations

import os
from itertools import pairwise

from mala_context._util.safe_open import Held, open_regular
from mala_context._util.text import utc_seconds
from mala_context.agent.claude_code.statusline.input_values import count, rows, table, tokens_of
from mala_context.agent.hook_io import text_in
from mala_context.transcripts.compactions import KEPT_MARKS, MARKS, is_main_boundary, is_summary, kept_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from mala_context.tracking.pace import Pace

_BLOCK = 1 << 16
_MOST_TAIL = 256 << 20
_MOST_TURNS = 16 << 20
"""Bytes of a transcript's end in which the last turns are looked for."""
_RESPONSE, _COMPACTION = b'"assistant"', b"ompact"
_KEPT = tuple(mark.encode() for mark in KEPT_MARKS)
_LONGEST_MARK = 64
_MANY_PARTS = 8
CACHE_SECONDS = 300.0
"""Seconds for which the API keeps a prompt's cache after its last use, if it was not written for an hour."""
_MOST_HEAD = 8 << 20


def _lines_from_end(path: str, *marks: bytes, most: int = _MOST_TAIL) -> Iterator[bytes]:
    """Yield a file's lines from the last to the first, of `most` bytes at most; a cut first line is left out.

    A line of more than one block is left out too if none of the marks is found in it. It is not even joined: the last
    rows of a session may be images of 32 MB each (case people-20).
    """
    with Held(open_regular(path)) as descriptor:
        end = os.fstat(descriptor).st_size
        least, size = max(0, end - most), _BLOCK
        parts: list[bytes] = []
        """The end of a row that begins in a block before, its last part first."""
        while end > least:
            start = max(least, end - size)
            data = os.pread(descriptor, end - start, start)
            end, size = start, min(size * 2, 1 << 20)
            head, found, rest = data.partition(b"\n")
            if not found:
                parts.append(data)
                continue
            *whole, last = rest.split(b"\n")
            parts.append(last)
            if len(parts) == 1 or _holds(parts, marks):
                yield b"".join(reversed(parts))
            yield from reversed(whole)
            parts = [head]
        if least == 0 and parts and (len(parts) == 1 or _holds(parts, marks)):
            yield b"".join(reversed(parts))


def _holds(parts: list[bytes], marks: tuple[bytes, ...]) -> bool:
    """Tell whether a row has one of the marks; its parts are given from the last to the first.

    Of a row of many parts only both ends are searched: there stand the keys that tell its kind, whatever it holds.
    """
    if len(parts) > _MANY_PARTS:
        parts = [parts[0], b"".join(reversed(parts[-2:]))]
    borders = (before[-_LONGEST_MARK:] + after[:_LONGEST_MARK] for after, before in pairwise(parts))
    return any(mark in part for part in (*parts, *borders) for mark in marks)


def _response(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return the size and the model of a response of the main agent; `None` for any other row."""
    message = table(row, "message")
    model = text_in(message, "model")
    if row.get("type") != "assistant" or row.get("isSidechain") is True or model == "<synthetic>":
        return None, None
    return tokens_of(table(message, "usage")), model


def from_transcript(path: str) -> tuple[int | None, str, str | None]:
    """Return size, source and model of the session by its transcript, read from the end."""
    summarized, kept = False, 0
    marks = (_RESPONSE, _COMPACTION, *_KEPT)
    try:
        for data in _lines_from_end(path, *marks):
            if not any(mark in data for mark in marks):
                continue
            for row in reversed(rows(data)):
                tokens, model = _response(row)
                # Old CLIs wrote a summary without a boundary: a response before it tells nothing of the size after it.
                if tokens:
                    return (None, "none", model) if summarized else (tokens, "transcript", model)
                if is_main_boundary(row):
                    return _after_compaction(path, row, kept)
                kept += 0 if row.get("isSidechain") is True else len(kept_text(row))
                summarized = summarized or (is_summary(row) and not row.get("isSidechain"))
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    return None, "none", None


def _after_compaction(path: str, boundary: Mapping[str, Any], kept: int) -> tuple[int | None, str, str | None]:
    """Estimate the next request, by the tracker's formulas, from the transcript's head.

    `kept` are the characters that a compaction by reference kept, 0 after a summary.
    """
    about = table(boundary, "compactMetadata")
    post = count(about.get("postTokens"))
    prompt_chars, attachment_chars, first, model = _opening(path)
    if first is None or not (post or kept):
        return None, "none", model
    from mala_context.tracking.projection import after_compaction, after_keeping
    from mala_context.tracking.token_costs import CHARS_PER_TOKEN, family

    per_token = CHARS_PER_TOKEN[family(model)]
    head = prompt_chars, attachment_chars or None, per_token
    if kept:
        return *after_keeping(first, kept, about.get("trigger") == "auto", *head), model
    return *after_compaction(first, post, *head), model


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
    """Tell whether a transcript has these words in an attachment after its last compaction."""
    needle = words.encode()
    try:
        for data in _lines_from_end(path, needle, MARKS[0]):
            if needle in data and b'"attachment"' in data:
                return True
            if MARKS[0] in data and any(map(is_main_boundary, rows(data))):
                return False
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    return False


def pace_and_cache(path: str) -> tuple[Pace, float | None]:
    """Return the pace of the last turns, and when the prompt's cache lapses, in seconds since 1970.

    The last turns are read from the transcript's end, back to a compaction at most, and are then taken in order.
    """
    from mala_context.tracking.pace import TURNS, Pace
    from mala_context.transcripts.prompts import begins_turn

    found: list[int | None] = []
    lapses: float | None = None
    keeps: float | None = None
    prompts = 0
    try:
        for data in _lines_from_end(path, _RESPONSE, _COMPACTION, most=_MOST_TURNS):
            if prompts > TURNS and found[-1] is not None:  # the size before the oldest of the turns is known
                break
            for row in reversed(rows(data)):
                tokens, _ = _response(row)
                if tokens:
                    found.append(tokens)
                    usage = table(table(row, "message"), "usage")
                    lapses = lapses or utc_seconds(row.get("timestamp"))
                    keeps = keeps or _kept(table(usage, "cache_creation"))
                elif row.get("type") == "user" and not row.get("isSidechain") and begins_turn(row):
                    found.append(None)
                    prompts += 1
            if _COMPACTION in data and any(is_main_boundary(row) or is_summary(row) for row in rows(data)):
                break
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    pace = Pace()
    for tokens in reversed(found):
        if tokens is None:
            pace.prompt()
        else:
            pace.size(tokens)
    return pace, None if lapses is None else lapses + (keeps or CACHE_SECONDS)


def _kept(creation: Mapping[str, Any]) -> float | None:
    """Return for how many seconds a request had its cache kept; `None` where it wrote none."""
    if count(creation.get("ephemeral_1h_input_tokens")):
        return 3_600.0
    return CACHE_SECONDS if count(creation.get("ephemeral_5m_input_tokens")) else None
