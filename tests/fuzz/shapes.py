"""Values made of bytes: JSON of the shapes that our readers know, with something wrong in it.

Bytes that are JSON are taken as they are, one value a line. Other bytes steer a generator: each decides which of the
known keys comes next and what stands behind it, so that a fuzzer's mutations stay near what is read and still reach
every odd value. The same bytes always make the same values.
"""

from __future__ import annotations

import json
from typing import Any

_KEYS = (
    "type subtype uuid parentUuid logicalParentUuid isSidechain isMeta isCompactSummary isApiErrorMessage agentId"
    " sessionId session_id requestId timestamp version message id model role content usage stop_reason text thinking"
    " input name tool_use_id parent_tool_use_id is_error input_tokens output_tokens cache_read_input_tokens"
    " cache_creation_input_tokens iterations compactMetadata compact_metadata preTokens postTokens pre_tokens"
    " post_tokens trigger durationMs preservedMessages uuids attachment rendered event delta result modelUsage"
    " model_usage contextWindow num_turns terminal_reason origin kind user_message_uuids errorDetails error betas cwd"
    " status compact_result task_id data choices total_tokens prompt_tokens completion_tokens context_window"
    " context_window_size current_usage transcript_path hook_event_name source custom_instructions"
)
_WORDS = (
    "assistant user system result attachment stream_event summary compact_boundary init status task_started"
    " message_start message_delta message text thinking tool_use tool_result image document tool_reference <synthetic>"
    " claude-opus-4-8 claude-sonnet-4-5[1m] auto manual max_tokens prompt_too_long success compacting a b toolu_1"
    " deferred_tools_delta local_command PreCompact SessionStart"
)
KEYS, WORDS = _KEYS.split(), _WORDS.split()
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, 1e308, float("inf"), float("nan"), 10**30, -(10**30), 200_000, 167_000),
    *("", "\x00", "\ud800", "\u2028", "\x1b[2J", "a" * 5_000, "12 tokens > 7 maximum", "27k/200k tokens (14%)", [], {}),
)
_DEEPEST = 12


class Shapes:
    """Makes values of the bytes until they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        """Tell whether bytes are left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Return the next byte; 0 behind the end."""
        if not self.more():
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def value(self, depth: int = 0) -> Any:
        """Return the next value."""
        kind = self.byte() % 16
        if kind < 6 and depth < _DEEPEST:
            return {self.key(): self.value(depth + 1) for _ in range(self.byte() % 9)}
        if kind < 8 and depth < _DEEPEST:
            return [self.value(depth + 1) for _ in range(self.byte() % 5)]
        if kind < 11:
            return WORDS[self.byte() % len(WORDS)]
        if kind < 13:
            return self.byte() << (self.byte() % 24)
        return ODD[self.byte() % len(ODD)]

    def key(self) -> str:
        """Return the next key."""
        return KEYS[self.byte() % len(KEYS)]


def values(data: bytes) -> list[Any]:
    """Return the values in some bytes: one a line where they are JSON, else what the generator makes of them."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    if found:
        return found
    shapes = Shapes(data)
    made = []
    while shapes.more():
        made.append(shapes.value())
    return made
