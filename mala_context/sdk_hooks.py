"""Callbacks for the SDK's hooks: one thin function an event, all of which answer `{}`.

A hook never blocks a compaction (a blocked automatic one leaves the agent stuck), never raises into the SDK, and has
answered within `ANSWER_SECONDS` whatever the disk does. `HookMatcher.timeout` stands above that, so that the SDK never
cancels a callback that is about to answer.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mala_context.archivist import Archivist
from mala_context.log import get_logger

if TYPE_CHECKING:
    from mala_context.gauge import TranscriptGauge

HOOK_SECONDS: Final = 20.0
"""`HookMatcher.timeout`, above the time in which a callback answers by itself."""

HookCallback = Callable[..., Awaitable[dict[str, Any]]]
Action = Callable[[Mapping[str, Any]], Awaitable[None]]

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
)


def make_precompact_hook(repo_path: str | os.PathLike[str], archive: Any = None) -> HookCallback:
    """Return a PreCompact callback that archives the transcript under the repository's runs directory.

    For those who wire their hooks themselves: `HookMatcher(hooks=[make_precompact_hook(repo)], timeout=20)`. It is
    called as `hook(hook_input, *args, **kwargs)` with a dict or an object, answers `{}` within ten seconds whatever
    happens, and never raises. `archive` takes the place of the repository's own `TranscriptArchive`.
    """
    archivist = Archivist(archive) if archive is not None else Archivist.for_repo(os.fspath(repo_path))
    return _callback("PreCompact", archivist.before_compaction)


def is_ours(hook: object) -> bool:
    """Tell whether a callback came out of this module."""
    return getattr(hook, "__mala_context__", False) is True


def as_mapping(hook_input: object) -> Mapping[str, Any]:
    """Return a hook's input as a mapping, whether it came as one or as an object with attributes."""
    if isinstance(hook_input, Mapping):
        return hook_input
    return {name: getattr(hook_input, name) for name in _FIELDS if hasattr(hook_input, name)}


def _callback(event: str, *actions: Action) -> HookCallback:
    async def hook(hook_input: object, *args: object, **kwargs: object) -> dict[str, Any]:
        del args, kwargs
        for action in actions:
            try:
                await action(as_mapping(hook_input))
            except Exception:
                log.warning("%s: the hook failed, the agent goes on", event, exc_info=True)
        return {}

    hook.__mala_context__ = True  # type: ignore[attr-defined] # a mark for `is_ours`
    hook.__name__ = hook.__qualname__ = f"mala_context_{event}"
    return hook


Factory = Callable[["Archivist | None", "TranscriptGauge | None"], "HookCallback | None"]


def _factory(event: str, archive: str | None, *, gauge: bool) -> Factory:
    """Return what makes the callback of `event` from those who want to hear of it, `None` where nobody does."""

    def make(archivist: Archivist | None, observer: TranscriptGauge | None) -> HookCallback | None:
        actions: list[Action] = []
        if archive is not None and archivist is not None:
            actions.append(getattr(archivist, archive))
        if gauge and observer is not None:
            actions.append(observer.observe)
        return _callback(event, *actions) if actions else None

    return make


HOOKS: Final[Mapping[str, Factory]] = {
    event: _factory(event, archive, gauge=gauge)
    for event, archive, gauge in (
        ("PreCompact", "before_compaction", False),
        ("PostCompact", "after_compaction", False),
        ("SessionStart", "session_started", True),
        ("UserPromptSubmit", "saw_session", True),
        ("PostToolBatch", None, True),
        ("Stop", "saw_session", True),
        ("SubagentStop", "subagent_stopped", False),
    )
}
"""Event → factory of its callback. The keys are the CLI's; the SDK's `HookEvent` lists only some of them."""
