"""Collect from a transcript's rows what was worked on: instructions, todo items, failed commands, files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mala_context.transcripts.branches import Branches
from mala_context.transcripts.compactions import is_boundary, is_clear, kept_text
from mala_context.transcripts.json_rows import content_text
from mala_context.transcripts.kept_rows import users_of
from mala_context.transcripts.loss.report import KINDS, Kind
from mala_context.transcripts.prompts import INJECTED, is_prompt

FILE_TOOLS: Final[Mapping[str, tuple[str, Kind]]] = {
    "Read": ("file_path", "read"),
    "NotebookRead": ("notebook_path", "read"),
    "Write": ("file_path", "written"),
    "Edit": ("file_path", "written"),
    "MultiEdit": ("file_path", "written"),
    "NotebookEdit": ("notebook_path", "written"),
}
"""Tools that read or write one file: the field that holds its path, and whether the file is read or written."""

NOT_RUN: Final = (
    "The user doesn't want to",
    "[Request interrupted",
    "Permission to use",
    "<tool_use_error>",
    "Cancelled:",
)
"""Beginnings of the results of commands that never ran: these count as neither failed nor successful."""

CLOSED: Final = frozenset({"completed", "done", "deleted", "cancelled", "canceled"})
"""States of a todo item that is no longer open."""

_MOST_CHARACTERS: Final = 10_000
"""Most characters of a prompt or a command that are examined."""
_REMINDER = re.compile(r"<(system-reminder|ide_[a-z_]{1,30})>.*?</\1>", re.DOTALL)
_COMMAND_NAME = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_COMMAND_ARGS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_LEAD = re.compile(
    r"^(?:cd\s+(?:'[^']*'|\"[^\"]*\"|[^\s&;]+)\s*&&\s*|(?:export\s+)?[A-Za-z_]\w*=[^\s;&]*\s*(?:&&|;)?\s+)"
)
_TRAIL = re.compile(r"\s*(?:2>&1|\d?>\s*/dev/null|\|\s*(?:tail|head|cat|less|tee)\b[^|&;]*)$")
_TASK_ID = re.compile(r"#(\d{1,9})\b")


class WorkItem(NamedTuple):
    """One thing that was worked on."""

    kind: Kind
    text: str
    uuid: str | None
    """Id of the row that holds it; of the latest row if several do."""


def collect(rows: Iterable[Any], *, sidechain: bool = False) -> list[WorkItem]:
    """Return the items of the last stretch of rows that has any, each once.

    A compaction inside the rows begins a new stretch, which keeps the open todo items. A `/clear` begins one without
    them. With `sidechain`, subagents' rows are read instead of the main agent's.
    """
    stretch = _Stretch()
    last: list[WorkItem] = []
    for row in rows:
        if not isinstance(row, dict) or bool(row.get("isSidechain")) != sidechain:
            continue
        if is_boundary(row):
            last = stretch.found() or last
            stretch = _Stretch(stretch)
        elif is_clear(row):
            stretch = _Stretch()
        else:
            stretch.take(row)
    return stretch.found() or last


class _Stretch:
    """What happened between two compactions; open todo items outlive them."""

    def __init__(self, before: _Stretch | None = None) -> None:
        self.calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.touches: list[tuple[str | None, WorkItem]] = []
        self.failed_calls: set[str] = set()
        self.failed: dict[str, WorkItem] = {}
        self.instructions: dict[str, WorkItem] = {}
        self.todos: dict[str, tuple[str, str, str | None]] = dict(before.todos) if before else {}
        self.touched = False
        self.branches = Branches()

    def found(self) -> list[WorkItem]:
        open_todos = [
            WorkItem("todo", text, uuid) for text, status, uuid in self.todos.values() if status not in CLOSED
        ]
        said = [each for each in self.instructions.values() if not self.branches.is_left(each.uuid)]
        things = [*said, *self.failed.values(), *self._files()]
        if not things and not self.touched:
            return []
        return sorted([*things, *open_todos], key=lambda item: list(KINDS).index(item.kind))

    def _files(self) -> Iterable[WorkItem]:
        """Return each file that a call which did not fail touched; once written it stays written."""
        files: dict[str, WorkItem] = {}
        for call_id, touch in self.touches:
            if call_id not in self.failed_calls:
                before = files.get(touch.text)
                files[touch.text] = touch._replace(kind="written") if before and before.kind == "written" else touch
        return files.values()

    def take(self, row: Mapping[str, Any]) -> None:
        self.branches.take(row)
        uuid = row.get("uuid") if isinstance(row.get("uuid"), str) else None
        kind = row.get("type")
        message = row.get("message")
        content = message.get("content") if isinstance(message, Mapping) else None
        if kind == "assistant":
            for block in _blocks(content, "tool_use"):
                self._call(block, uuid)
        elif kind == "user":
            for block in _blocks(content, "tool_result"):
                self._result(block, uuid)
            if is_prompt(row):
                self._instruction(content_text(content), uuid)
            for text in users_of(kept_text(row)) or ():
                self._instruction(text, uuid)
        elif kind == "attachment":
            attachment = row.get("attachment")
            if isinstance(attachment, Mapping) and attachment.get("type") == "queued_command":
                self._instruction(content_text(attachment.get("prompt")), uuid)

    def _call(self, block: Mapping[str, Any], uuid: str | None) -> None:
        name, given, call_id = block.get("name"), block.get("input"), block.get("id")
        if not isinstance(name, str) or not isinstance(given, Mapping):
            return
        if isinstance(call_id, str):
            self.calls[call_id] = (name, given)
        if name in FILE_TOOLS:
            field, kind = FILE_TOOLS[name]
            path = given.get(field)
            if isinstance(path, str) and path:
                self.touches.append((call_id if isinstance(call_id, str) else None, WorkItem(kind, path, uuid)))
        elif name == "TodoWrite":
            self._todo_list(given.get("todos"), uuid)
        elif name == "TaskUpdate":
            self._task_update(given, uuid)

    def _result(self, block: Mapping[str, Any], uuid: str | None) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            return
        name, given = self.calls.get(call_id, ("", {}))
        failed, text = bool(block.get("is_error")), content_text(block.get("content"))
        if name in FILE_TOOLS and failed:
            self.failed_calls.add(call_id)
        elif name == "Bash":
            self._command(given.get("command"), uuid, failed=failed, text=text)
        elif name == "TaskCreate" and not failed:
            match = _TASK_ID.search(text)
            subject = given.get("subject")
            if match and isinstance(subject, str):
                self.touched = True
                self.todos[match[1]] = (_line(subject), "pending", uuid)

    def _command(self, command: Any, uuid: str | None, *, failed: bool, text: str) -> None:
        if not isinstance(command, str) or not command.strip() or text.startswith(NOT_RUN):
            return
        plain = plain_command(command)
        if failed:
            self.failed[plain] = WorkItem("command", plain, uuid)
            return
        for known in [known for known in self.failed if known == plain or known.startswith(plain + " ")]:
            del self.failed[known]

    def _instruction(self, text: str, uuid: str | None) -> None:
        text = _REMINDER.sub("", text[:_MOST_CHARACTERS]).strip()
        name = _COMMAND_NAME.search(text)
        if name:
            arguments = _COMMAND_ARGS.search(text)
            given = arguments[1].strip() if arguments else ""
            text = f"{name[1].strip()} {given}" if given else ""
        if text and not text.startswith(INJECTED):
            self.instructions[text] = WorkItem("instruction", text, uuid)

    def _todo_list(self, todos: Any, uuid: str | None) -> None:
        if not isinstance(todos, list):
            return
        self.touched = True
        self.todos = {}
        for number, item in enumerate(todos):
            if isinstance(item, Mapping) and isinstance(item.get("content"), str) and item["content"].strip():
                self.todos[f"todo {number}"] = (_line(item["content"]), str(item.get("status")), uuid)

    def _task_update(self, given: Mapping[str, Any], uuid: str | None) -> None:
        task = str(given.get("taskId"))
        if task in self.todos:
            self.touched = True
            text, status, _ = self.todos[task]
            subject = given.get("subject")
            renamed = _line(subject) if isinstance(subject, str) and subject.strip() else text
            self.todos[task] = (renamed, str(given.get("status", status)), uuid)


def plain_command(command: str) -> str:
    """Return a command without the parts that agents vary: `cd`, variables, redirections, `| tail`.

    An agent often repeats a failed command with such changes. Its success must clear the failure.
    """
    text = _line(command[:_MOST_CHARACTERS])
    for pattern in (_LEAD, _TRAIL):
        shorter = pattern.sub("", text)
        while shorter != text and shorter:
            text, shorter = shorter, pattern.sub("", shorter)
    return text


def _blocks(content: Any, kind: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, list):
        for block in content:
            if isinstance(block, Mapping) and block.get("type") == kind:
                yield block


def _line(text: str) -> str:
    return " ".join(text.split())
