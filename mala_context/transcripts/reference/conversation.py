"""What a conversation is made of, read from the messages that the CLI hands to a mod's `session.compact`.

A row is `{role, text, toolUses, results, handle}`: one content block each, tool calls with the result as the model read
it. What the CLI injected in the user's place (the text of a command, reminders, caveats) is left out here; a
background agent's report becomes a tool call. A row of any other shape raises `UnknownShapeError`: then the CLI
compacts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mala_context.transcripts.compactions import KEPT_MARKS
from mala_context.transcripts.kept_rows import calls_of, head_of, is_state
from mala_context.transcripts.loss.collect import collect
from mala_context.transcripts.prompts import INJECTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

SUMMARY = "This session is being continued from a previous conversation"
"""How the CLI's own summary begins; it stays, since nothing else holds what it tells."""
NOTIFICATION = "<task-notification>"
_COMMAND = re.compile(r"\s*<command-(?:name|message)>.*</command-\w+>\s*", re.DOTALL)
_NAME = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_REMINDER = re.compile(r"\s*(?:<system-reminder>.*?</system-reminder>\s*)+", re.DOTALL)
_ARGUMENT = ("file_path", "notebook_path", "command", "pattern", "url", "query", "description", "prompt", "skill")
"""Inputs that tell most of a call, in order."""


class UnknownShapeError(ValueError):
    """A message is not what this version knows, so that what it holds could be lost."""


class Words(NamedTuple):
    """What somebody said."""

    role: str
    """`user` or `assistant`; `summary` for the CLI's own summary."""
    text: str


class Call(NamedTuple):
    """A tool call with its result."""

    number: int
    """Counted through the session."""
    tool: str
    given: Mapping[str, Any]
    text: str | None
    """The result as the model read it; `None` where there is none yet."""
    failed: bool

    @property
    def argument(self) -> str:
        """Return what tells most of the call, in one line of at most 100 characters."""
        named = (self.given[name] for name in _ARGUMENT if isinstance(self.given.get(name), str))
        texts = (value for value in self.given.values() if isinstance(value, str))
        line = " ".join(next(named, next(texts, ""))[:400].split())
        return line if len(line) <= 100 else line[:99] + "…"


class Whole(NamedTuple):
    """A row that stays as the CLI has it, since it holds more than text."""

    row: int
    text: str


class State(NamedTuple):
    """Plan, to-do items, failed commands and files as they stand at the end."""

    plan: str
    items: tuple[tuple[str, str], ...]
    """Kind (a key of `parts.HEADINGS`) and text; a task's text begins with its number."""


class Conversation(NamedTuple):
    """One conversation, as far as it is to be compacted."""

    before: tuple[str | int, ...]
    """What earlier compactions left: texts of parts, and numbers of rows that stay whole."""
    items: tuple[Words | Call | Whole, ...]
    """What came since, in order."""
    state: State
    number: int
    """Number of the part to come."""
    calls: int
    """Number of the last tool call."""
    unread: int = 0
    """How many calls at the end have results that no request has held yet."""


def read_conversation(messages: object, pictures: Collection[int] = ()) -> Conversation:
    """Return a conversation from the rows of `session.compact`; `pictures` are those that hold more than text.

    Raises `UnknownShapeError`.
    """
    if not isinstance(messages, list) or not messages:
        raise UnknownShapeError("there are no messages")
    texts = [_checked(row) for row in messages]
    # What a compaction left stands at the beginning, before anything was answered: the same words later on are a text
    # that somebody pasted, and the tool calls before it must not stay whole.
    answered = (place for place, row in enumerate(messages) if row["role"] == "assistant" or row.get("results"))
    marked = [place for place, text in enumerate(texts[: next(answered, None)]) if text.startswith(KEPT_MARKS)]
    parts = [place for place in marked if head_of(texts[place]) is not None]
    after = parts[-1] + 1 if parts else 0
    told = bool(parts) and after in marked and is_state(texts[after])
    before = tuple(texts[place] if place in parts else place for place in range(after))
    if any(isinstance(each, int) and not messages[each].get("handle") for each in before):
        raise UnknownShapeError("a row before the last part cannot be kept")
    number, calls, _ = head_of(texts[parts[-1]]) or (0, 0, "") if parts else (0, 0, "")
    items: list[Words | Call | Whole] = []
    for place in range(after + told, len(messages)):
        calls = _read(messages[place], place, items, calls, whole=place in pictures)
    state = _state(calls_of(texts[after]) if told else (), items)
    return Conversation(before, tuple(items), state, number + 1, calls, _unread(messages))


def _unread(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tool calls the last response made, where nothing but their results came after it."""
    count, place = 0, len(messages) - 1
    while place >= 0 and messages[place]["role"] == "user" and messages[place].get("results"):
        place -= 1
    while place >= 0 and messages[place].get("toolUses"):
        count, place = count + len(messages[place]["toolUses"]), place - 1
    return count


def _checked(row: object) -> str:
    """Return a row's text; raises `UnknownShapeError` where the row is not of the known shape."""
    if not isinstance(row, dict) or row.get("role") not in ("user", "assistant"):
        raise UnknownShapeError("a message is of an unknown role")
    text, uses = row.get("text"), row.get("toolUses", [])
    if not isinstance(text, str) or not isinstance(uses, list):
        raise UnknownShapeError("a message has no text")
    for use in uses:
        known = isinstance(use, dict) and isinstance(use.get("tool"), str) and isinstance(use.get("input"), dict)
        if not known or not isinstance(use.get("text"), str | None):
            raise UnknownShapeError("a tool call is of an unknown shape")
    if uses and row["role"] == "user":
        raise UnknownShapeError("a user's message calls a tool")
    return text


def _read(row: Mapping[str, Any], place: int, items: list[Words | Call | Whole], calls: int, *, whole: bool) -> int:
    """Add what a row holds; return the number of the last tool call."""
    text = row["text"]
    if row["role"] == "assistant":
        if text.strip():
            items.append(Words("assistant", text))
        for use in row.get("toolUses", []):
            calls += 1
            items.append(Call(calls, use["tool"], use["input"], use.get("text"), bool(use.get("isError"))))
        return calls
    if whole or (not text.strip() and not row.get("results")):
        if not row.get("handle"):
            raise UnknownShapeError("a message with more than text cannot be kept")
        items.append(Whole(place, text))
    elif text.startswith(NOTIFICATION):
        calls += 1
        items.append(Call(calls, "task notification", {}, text, failed=False))
    elif text.startswith(SUMMARY):
        items.append(Words("summary", text))
    elif said := _said(text):
        items.append(Words("user", said))
    return calls


def _said(text: str) -> str:
    """Return what the user said of a text in the user's place; empty where the CLI wrote it."""
    if _COMMAND.fullmatch(text):
        name, arguments = _NAME.search(text), _ARGUMENTS.search(text)
        given = arguments[1].strip() if arguments else ""
        return f"{name[1].strip()} {given}" if name and given and name[1].strip().strip("/") != "compact" else ""
    if not text.strip() or text.startswith(INJECTED) or _REMINDER.fullmatch(text):
        return ""
    return text


def _state(told: Iterable[tuple[str, Mapping[str, Any], str, bool]], items: Sequence[Words | Call | Whole]) -> State:
    """Return the state at the end: what was told before, and what the calls since made of it."""
    rows: list[dict[str, Any]] = []
    tasks: dict[str, str] = {}
    plan = ""
    calls = [
        *told,
        *((each.tool, each.given, each.text or "", each.failed) for each in items if isinstance(each, Call)),
    ]
    for place, (tool, given, text, failed) in enumerate(calls):
        name = str(place)
        used = {"type": "tool_use", "id": name, "name": tool, "input": given}
        answer = {"type": "tool_result", "tool_use_id": name, "content": text, "is_error": failed}
        rows.append({"type": "assistant", "uuid": name, "message": {"content": [used]}})
        rows.append({"type": "user", "uuid": name, "message": {"content": [answer]}})
        task = re.search(r"#(\d{1,9})\b", text) if tool == "TaskCreate" else None
        if task:
            tasks[name] = f"#{task[1]}: "
        if tool == "ExitPlanMode" and not failed and isinstance(given.get("plan"), str):
            plan = given["plan"]
    found = (
        (each.kind, (tasks.get(each.uuid or "", "") if each.kind == "todo" else "") + " ".join(each.text.split()))
        for each in collect(rows)
        if each.kind != "instruction"
    )
    return State(plan, tuple(found))
