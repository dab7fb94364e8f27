"""Callbacks for the SDK's hooks: one thin function for each event.

A callback calls its actions in turn. Most return nothing, and then the answer is `{}`. A hook never blocks a compaction
(a blocked automatic one leaves the agent stuck), never raises into the SDK, and answers within the archivist's
`ANSWER_SECONDS` whatever the disk does. `HookMatcher.timeout` is longer than that, so that the SDK never cancels a
callback that is about to answer.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from mala_context._util.foreign_code import passes
from mala_context._util.log import get_logger
from mala_context.agent.archiving import SessionArchiver
from mala_context.agent.reference.answer import SERVER
from mala_context.transcripts.session_ids import session_in

if TYPE_CHECKING:
    from mala_context.agent.hook_io import Answer

HOOK_SECONDS: Final = 20.0
"""`HookMatcher.timeout`, above the time in which a callback answers by itself."""

_ASKED_BY_OUR_MOD: Final = f"mcp__{SERVER}__"
HookCallback = Callable[..., Awaitable[dict[str, Any]]]
Action = Callable[[Mapping[str, Any]], Awaitable["Answer"]]

log = get_logger(__name__)

_FIELDS = (
    "session_id",
    "transcript_path",
    "cwd",
    "hook_event_name",
    "trigger",
    "agent_id",
    "agent_type",
    "agent_transcript_path",
    "compact_summary",
    "source",
    "reason",
    "prompt",
    "tool_name",
    "tool_input",
    "tool_response",
    "last_assistant_message",
)
_TEXTS = ("session_id", "transcript_path", "cwd", "trigger", "agent_id", "agent_transcript_path", "source", "tool_name")


def make_precompact_hook(repo_path: str | os.PathLike[str], archive: Any = None) -> HookCallback:
    """Return a PreCompact callback that archives the transcript under the runs directory of `repo_path`.

    For programs that set up their hooks themselves: `HookMatcher(hooks=[make_precompact_hook(repo)], timeout=20)`. It
    is called as `hook(hook_input, *args, **kwargs)` with a dict or an object, answers `{}` within ten seconds whatever
    happens, and never raises. `archive` is used instead of the repository's own `TranscriptArchive`.
    """
    archivist = SessionArchiver(archive) if archive is not None else SessionArchiver.for_repo(os.fspath(repo_path))
    return _callback("PreCompact", archivist.before_compaction)


def is_ours(hook: object) -> bool:
    """Tell whether a callback was made by this module."""
    return getattr(hook, "__mala_context__", False) is True


def as_mapping(hook_input: object) -> Mapping[str, Any]:
    """Return a hook's input as a mapping, whether it is a mapping or an object with attributes.

    A field of `_TEXTS` that is no text is left out. If the session's id is not a plain name, it is taken from the
    transcript's name.
    """
    if isinstance(hook_input, Mapping):
        found = dict(hook_input)
    else:
        found = {name: getattr(hook_input, name) for name in _FIELDS if hasattr(hook_input, name)}
    for name in _TEXTS:
        if not (isinstance(found.get(name), str) and found[name]):
            found.pop(name, None)
    return {**found, "session_id": session_in(found.get("session_id"), found.get("transcript_path"))}


def _callback(event: str, *actions: Action) -> HookCallback:
    async def hook(hook_input: object, *args: object, **kwargs: object) -> dict[str, Any]:
        answers: list[Answer] = []
        found: Mapping[str, Any] = {}
        try:
            found = as_mapping(hook_input)
        except BaseException as error:
            if _is_for_the_caller(error):
                raise
            log.warning("%s: the hook failed, the agent goes on", event, exc_info=True)
        if str(found.get("tool_name", "")).startswith(_ASKED_BY_OUR_MOD):
            return {}  # our mod's own tool: its answer must not be capped, nor its call denied in a final turn
        for action in actions:
            try:
                answers.append(await action(found))
            except BaseException as error:
                if _is_for_the_caller(error):
                    raise
                log.warning("%s: the hook failed, the agent goes on", event, exc_info=True)
        return merge(answers)

    hook.__mala_context__ = True  # type: ignore[attr-defined] # a mark for `is_ours`
    hook.__name__ = hook.__qualname__ = f"mala_context_{event}"
    return hook


def _is_for_the_caller(error: BaseException) -> bool:
    """Tell whether an error must reach the hook's caller: the cancellation of its task, Ctrl-C, a signal."""
    return isinstance(error, (anyio.get_cancelled_exc_class(), GeneratorExit)) or passes(error)


def merge(answers: Iterable[Answer]) -> dict[str, Any]:
    """Merge the actions' answers: texts for the agent are joined, and of each other field the last one wins."""
    whole: dict[str, Any] = {}
    for answer in answers:
        output = dict((answer or {}).get("hookSpecificOutput") or {})
        before = whole.get("hookSpecificOutput", {})
        if "additionalContext" in output and "additionalContext" in before:
            output["additionalContext"] = f"{before['additionalContext']}\n\n{output['additionalContext']}"
        whole.update(answer or {})
        if before or output:
            whole["hookSpecificOutput"] = {**before, **output}
    return whole


Factory = Callable[[Mapping[str, Any]], "HookCallback | None"]


def _factory(event: str, actions: Sequence[tuple[str, str]]) -> Factory:
    """Return a function that makes the callback of `event` from the parts that exist; `None` if none handles it."""

    def make(parts: Mapping[str, Any]) -> HookCallback | None:
        bound = [getattr(parts[part], method) for part, method in actions if parts.get(part) is not None]
        return _callback(event, *bound) if bound else None

    return make


HOOKS: Final[Mapping[str, Factory]] = {
    event: _factory(event, actions)
    for event, *actions in (
        ("PreCompact", ("archivist", "before_compaction"), ("pin", "before_compaction"), ("reference", "left_to_cli")),
        ("PostCompact", ("archivist", "after_compaction"), ("gauge", "after_compaction"), ("pin", "after_compaction")),
        ("SessionStart", ("archivist", "session_started"), ("gauge", "observe"), ("pin", "session_started")),
        (
            "UserPromptSubmit",
            ("archivist", "saw_session"),
            ("gauge", "observe"),
            ("pin", "next_chance"),
            ("notes", "tell"),
        ),
        ("PreToolUse", ("gate", "before_tool")),
        ("PostToolUse", ("cap", "after_tool")),
        (
            "PostToolBatch",
            ("gauge", "observe"),
            ("cap", "after_batch"),
            ("pin", "next_chance"),
            ("notes", "after_tools"),
        ),
        ("Stop", ("archivist", "saw_session"), ("gauge", "observe")),
        ("SubagentStop", ("archivist", "subagent_stopped"), ("pin", "agent_stopped"), ("gate", "agent_stopped")),
    )
}
"""Event → factory of its callback, which gets the runtime's parts by name. The parts are called in this order.

The gauge comes before `notes`, which
decides by the sizes that the gauge has read. The events are the CLI's; the SDK's `HookEvent` lists only some of them.
"""
