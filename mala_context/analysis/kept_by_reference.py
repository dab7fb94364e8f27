"""What a compaction by reference would have kept of a recorded session, at each compaction that was recorded.

The conversation is put together from the transcript's rows as the CLI hands it to a mod: what was said since the last
compaction, after the rows that the compactions before would have left. Rows that the CLI wrote itself (reminders, its
summaries, rows that it kept and wrote again) are none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from mala_context.tracking.text_counts import all_text
from mala_context.transcripts.compactions import kept_text
from mala_context.transcripts.reference import ReferenceLimits, UnknownShapeError, build, read_conversation
from mala_context.transcripts.reference.build import BUDGET

_PATH: Final = "/" + "x" * 150 + ".txt"
"""A full text's path of the usual length."""


class KeptByReference(NamedTuple):
    """What one compaction would have kept."""

    row: int
    """Row of the recorded compaction, counted from 1."""
    before: int | None
    """Tokens of the context before, as recorded."""
    tokens: int
    """About what is kept: rows of this compaction and of those before."""
    calls: int
    """Tool calls that became a pointer since the compaction before."""
    pointed_at: int
    """Messages of the user for which the budget had no room."""


class RecordedConversation:
    """The main agent's conversation, as far as rows have told of it.

    Args:
        budget: tokens that stay; `None` for the default.
    """

    def __init__(self, budget: int | None = None) -> None:
        self._budget = budget
        self._rows: list[dict[str, Any]] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()

    def row(self, row: Mapping[str, Any]) -> None:
        """Take a transcript's row."""
        uuid, message = row.get("uuid"), row.get("message")
        injected = row.get("isMeta") or row.get("isCompactSummary") or kept_text(row)
        if row.get("isSidechain") or injected or not isinstance(message, dict):
            return
        if isinstance(uuid, str):
            if uuid in self._seen:
                return  # a compaction kept it, and the CLI wrote it again
            self._seen.add(uuid)
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        made = self._user if row.get("type") == "user" else self._assistant if row.get("type") == "assistant" else None
        if made is not None:
            self._rows += made([block for block in blocks if isinstance(block, dict)], str(uuid))

    def _user(self, blocks: list[dict[str, Any]], uuid: str) -> Iterator[dict[str, Any]]:
        for block in blocks:
            call = self._calls.pop(str(block.get("tool_use_id")), None)
            if call is not None:
                call["text"], call["isError"] = all_text(block.get("content")), bool(block.get("is_error"))
                yield {**_message("user", "", uuid), "results": 1}
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
        if texts:
            yield _message("user", "\n".join(texts), uuid)

    def _assistant(self, blocks: list[dict[str, Any]], uuid: str) -> Iterator[dict[str, Any]]:
        for block in blocks:
            if isinstance(block.get("text"), str):
                yield _message("assistant", block["text"], uuid)
            elif block.get("type") == "tool_use":
                given = block.get("input")
                call = {"tool": str(block.get("name")), "input": given if isinstance(given, dict) else {}}
                self._calls[str(block.get("id"))] = call
                yield {**_message("assistant", "", uuid), "toolUses": [call]}

    def compact(self, row: int, before: int | None, window: int, per_token: float) -> KeptByReference | None:
        """Compact at a recorded row, and go on from what is kept; `None` where there is nothing to compact.

        `before` is the context's recorded size, `window` the model's, in tokens; `per_token` are characters a token.
        """
        limits = ReferenceLimits(self._budget or min(BUDGET, window // 10))
        try:
            kept = build(read_conversation(self._rows), limits, path_of=lambda _data: _PATH)
        except UnknownShapeError:
            return None
        self._rows = [
            self._rows[each] if isinstance(each, int) else _message("user", each, str(place))
            for place, each in enumerate(kept.rows)
        ]
        self._calls.clear()
        return KeptByReference(row, before, round(kept.characters / per_token), kept.calls, kept.pointed_at)

    def reset(self) -> None:
        """Forget all, as `/clear` does."""
        self._rows, self._calls = [], {}


def _message(role: str, text: str, handle: str) -> dict[str, Any]:
    return {"role": role, "text": text, "toolUses": [], "results": 0, "handle": handle}
