"""Follow what still runs in a session: tell whether it is at a safe point for a compaction or a restart.

These must not cut off a tool or a subagent. Tools run inside a turn. After a turn's result, tasks in the background may
still run; each ends with a message of its own. The end of a task is reported in one of two messages, sometimes in both.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

_ENDED: Final = ("completed", "failed", "stopped", "killed")
_SHELL: Final = "local_bash"
"""Type of a background task that is a shell command: a compaction does not disturb it."""
_MOST: Final = 1_024


class RunningTasks:
    """Follows one client's messages.

    Attributes:
        in_turn: whether a turn is going on, with or without a prompt of the caller's.
        tasks: type of each task that runs beside the agent, by its id.
    """

    def __init__(self) -> None:
        self.in_turn = False
        self.tasks: dict[str, str | None] = {}
        self._in_front: set[str] = set()

    def see(self, message: Any) -> None:
        """Take in one message. Never raises."""
        handler = _SEEN.get(message.__class__.__name__)
        if handler is not None:
            handler(self, message)

    @property
    def subagents(self) -> bool:
        """Whether a subagent is running."""
        return any(kind != _SHELL for kind in self.tasks.values())

    def _started(self, message: Any) -> None:
        task = str(message.task_id)
        self.tasks[task] = getattr(message, "task_type", None)
        if getattr(message, "data", {}).get("is_backgrounded") is False:
            self._in_front.add(task)
        if len(self.tasks) > _MOST:
            self._over(next(iter(self.tasks)))

    def _changed(self, message: Any) -> None:
        status = getattr(message, "status", None)
        patch = getattr(message, "patch", None)
        if status is None and isinstance(patch, dict):
            status = patch.get("status")
        if status in _ENDED:
            self._over(str(message.task_id))
        elif isinstance(patch, dict) and patch.get("is_backgrounded") is True:
            self._in_front.discard(str(message.task_id))

    def _system(self, message: Any) -> None:
        """Handle a task's change from an older SDK, which has no class for it."""
        data = getattr(message, "data", None)
        if getattr(message, "subtype", None) == "task_updated" and isinstance(data, dict) and "task_id" in data:
            self._changed(SimpleNamespace(task_id=data["task_id"], patch=data.get("patch")))

    def _over(self, task: str) -> None:
        self.tasks.pop(task, None)
        self._in_front.discard(task)

    def _answering(self, message: Any) -> None:
        if message.parent_tool_use_id is None and message.model != "<synthetic>":
            self.in_turn = True

    def _result(self, message: Any) -> None:
        self.in_turn = False
        for task in list(self._in_front):  # the turn waited for these; after an interrupt no message reports their end
            self._over(task)


_SEEN: Final[dict[str, Callable[[RunningTasks, Any], None]]] = {
    "TaskStartedMessage": RunningTasks._started,
    "TaskNotificationMessage": RunningTasks._changed,
    "TaskUpdatedMessage": RunningTasks._changed,
    "SystemMessage": RunningTasks._system,
    "AssistantMessage": RunningTasks._answering,
    "ResultMessage": RunningTasks._result,
}
