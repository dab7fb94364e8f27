"""What a source sends that no reader here knows: names for a log line, never a number.

An SDK or a CLI that is newer than this package brings kinds of messages, blocks and counts that were unknown when it
was written. The readers pass over them; this module can say which they were. What is known and yet means nothing for
the context (a rate limit, a hook's progress) is in the tables too, as claude-agent-sdk 0.2.189 and Claude Code 2.1.332
have it, so that only news is news.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mala_context.tracking.readers.parts import mapping
from mala_context.tracking.usage import strangers

_MOST_KINDS = 100
_MOST_NAME = 80
_MOST_NAMES = 8
_MOST_BLOCKS = 1_000


def _table(words: str) -> frozenset[str]:
    return frozenset(words.split())


MESSAGES: Final = _table("""
    AssistantMessage ConversationResetMessage HookEventMessage MirrorErrorMessage RateLimitEvent ResultMessage
    StreamEvent SystemMessage TaskNotificationMessage TaskProgressMessage TaskStartedMessage TaskUpdatedMessage
    UserMessage
""")
"""Classes of the SDK's messages."""

LINES: Final = _table("""
    agent-name ai-title api-request api-request-blob api-request-resumed api-request-shape artifact-autoreact-ledger
    assistant atis-latch attachment bridge-session content-replacement control_cancel_request control_request
    control_response conversation_reset cost-state custom-title file-history-delta file-history-snapshot frame-link
    history-suppression host-row hybrid-organization keep_alive last-prompt mode permission-mode pr-link progress
    prompt_suggestion queue-operation rate_limit_event result resume-head-vouch stream_event summary system
    tool_progress tool_use_summary tools-used user
""")
"""Types of stream-json's lines and of a transcript's rows."""

SUBTYPES: Final = _table("""
    agents_killed api_error api_retry away_summary background_tasks_changed bridge_state bridge_status checkpoint_done
    cloud_session_delta cloud_session_status code_change_published commands_changed compact_boundary
    control_request_progress dev_intent elicitation_complete feedback_draft_queued file_attachments_missing
    file_snapshot files_persisted hook_progress hook_response hook_started informational inherited_asks_settled init
    instruction_size_warning late_allow_not_run local_command local_command_output memory_recall memory_saved
    microcompact_boundary mirror_error model_consent_fallback model_fallback model_refusal_fallback
    model_refusal_no_fallback notification peer_message_hold per_turn_effort_changed permission_check_status
    permission_denied permission_retry placed plugin_install post_turn_summary rewind_stand_in scheduled_task_fire
    session_metadata session_state_changed session_title_changed session_writes_lost shell_cwd start_folder status
    stop_hook_summary task_list_statuses task_notification task_progress task_started task_summary task_updated
    thinking thinking_tokens tool_host_result turn_began_before_init turn_duration turn_handoff_available
    turn_preempted turn_starting ui_focus ui_invalidate ui_log ui_notify ui_notify_cancel ui_panes ui_placed ui_scroll
    ui_status ui_toast upgrade_relay_marker vcs_state_changed voice_call_talk worker_shutting_down
""")
"""Subtypes of system messages and rows."""

BLOCKS: Final = _table("""
    TextBlock ThinkingBlock ToolUseBlock ToolResultBlock ServerToolUseBlock ServerToolResultBlock
    advisor_tool_result document image redacted_thinking server_tool_use text thinking tool_reference tool_result
    tool_use
""")
"""Content blocks, by class in the SDK and by type in stream-json, that are counted or known to cost nothing."""


class News:
    """The kinds that a source has brought and nobody knew, each told once. For one thread at a time."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def of(self, source: object) -> list[str]:
        """Return what is new in a message, a line or a row and was not in an earlier one; at most 100 kinds in all."""
        found = [kind for kind in unfamiliar(source) if kind not in self._told]
        del found[_MOST_KINDS - len(self._told) :]
        self._told.update(found)
        return found


def unfamiliar(source: object) -> tuple[str, ...]:
    """Name what no reader knows in one SDK message, stream-json line or transcript row. Never raises.

    A name is of the source's making: make it printable before it is shown.
    """
    try:
        found = _in_line(source) if isinstance(source, Mapping) else _in_message(source)
        return tuple(dict.fromkeys(found))
    except Exception:  # noqa: BLE001  (what cannot be looked at cannot be named either)
        return ()


def _in_message(message: Any) -> Iterator[str]:
    name = type(message).__name__
    if name not in MESSAGES:
        yield f"message class {_name(name)}"
    elif hasattr(message, "subtype") and isinstance(getattr(message, "data", None), Mapping):
        yield from _in_system(message.subtype, message.data)
    elif name == "StreamEvent":
        event = mapping(message.event)
        yield from _in_usage(mapping(event.get("message")).get("usage") or event.get("usage"))
    else:
        yield from _in_content(getattr(message, "content", None))
        yield from _in_usage(getattr(message, "usage", None))


def _in_line(line: Mapping[str, Any]) -> Iterator[str]:
    kind = line.get("type")
    if not (isinstance(kind, str) and kind in LINES):
        yield f"type {_name(kind)}"
    elif kind == "system":
        yield from _in_system(line.get("subtype"), line)
    elif kind in ("assistant", "user"):
        message = mapping(line.get("message"))
        yield from _in_content(message.get("content"))
        yield from _in_usage(message.get("usage"))
    elif kind == "result":
        yield from _in_usage(line.get("usage"))


def _in_system(subtype: Any, data: Mapping[str, Any]) -> Iterator[str]:
    if not (isinstance(subtype, str) and subtype in SUBTYPES):
        yield f"system message {_name(subtype)}"
    elif subtype == "compact_boundary":
        meta = mapping(data.get("compact_metadata") or data.get("compactMetadata"))
        if "pre_tokens" not in meta and "preTokens" not in meta:
            yield f"compact_boundary without pre_tokens, with {_names(meta)}"


def _in_content(content: Any) -> Iterator[str]:
    for block in content[:_MOST_BLOCKS] if isinstance(content, list | tuple) else ():
        kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
        if not (isinstance(kind, str) and kind in BLOCKS):
            yield f"content block {_name(kind)}"


def _in_usage(usage: Any) -> Iterator[str]:
    found = strangers(usage)
    if found:
        yield f"usage with {_names(found)} in place of a count"


def _name(kind: Any) -> str:
    return kind[:_MOST_NAME] if isinstance(kind, str) else f"of type {type(kind).__name__}"


def _names(names: Iterable[object]) -> str:
    return ", ".join(sorted(_name(name) for name in names)[:_MOST_NAMES]) or "nothing"
