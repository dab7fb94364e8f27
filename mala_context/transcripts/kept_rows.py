"""The rows that a compaction by reference leaves: write them, and read them again at the next compaction.

A part keeps one stretch of the conversation. It is copied unchanged as long as the budget allows. Each text in it is
preceded by its length, so that the user's texts are found again whatever they contain. The state is written new each
time, so there is only one, after the last part.
"""

from __future__ import annotations

import re

from mala_context.transcripts.compactions import KEPT_MARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

PART, STATE = KEPT_MARKS
_PART_END = "\n</kept-conversation>"
_STATE_END = "\n</kept-state>"

_HEAD = re.compile(r'<kept-conversation part="(\d{1,6})" calls="(\d{1,9})" file="([^"\n]*)">\n')
_BLOCK = re.compile(r'<([a-z]+) chars="(\d{1,9})">\n')
_ITEM = re.compile(r"^- (?:#(\d{1,9}): )?(.+)$")

HEADINGS = {
    "todo": "Open to-do items:",
    "command": "Commands that failed and were not fixed:",
    "written": "Files written:",
    "read": "Files read:",
}
"""Kinds of `loss.collect` that the state lists, with their headings; instructions stand in the parts word for word."""
PLAN = "The plan:"


def block(tag: str, text: str) -> str:
    """Return a text in the format of a part."""
    return f'<{tag} chars="{len(text)}">\n{text}\n</{tag}>'


def part_row(number: int, calls: int, path: str, body: Iterable[str]) -> str:
    """Return a part: its number, the number of the last tool call in it, its full text's path, and its lines."""
    return f'{PART}part="{number}" calls="{calls}" file="{path}">\n' + "\n".join(body) + _PART_END


def head_of(part: str) -> tuple[int, int, str] | None:
    """Return a part's number, its last call's number and its full text's path; `None` if the text is no part."""
    found = _HEAD.match(part)
    return (int(found[1]), int(found[2]), found[3]) if found and part.endswith(_PART_END) else None


def users_of(part: str) -> list[str] | None:
    """Return the user's texts in a part; `None` if the part was changed after it was written."""
    found = _blocks(part)
    return None if found is None else [text for tag, text, _, _ in found if tag == "user"]


def without_results(part: str) -> str:
    """Return a part without the results that it holds in full: the line of each call has a pointer to its result."""
    for tag, _, start, end in reversed(_blocks(part) or []):
        if tag == "result":
            part = part[:start] + part[end + 1 :]
    return part


def _blocks(part: str) -> list[tuple[str, str, int, int]] | None:
    """Return tag, text, start and end of each text in a part; `None` if the part was changed after it was written."""
    found, place, last = [], part.find("\n") + 1, len(part) - len(_PART_END)
    while place <= last:
        begin = _BLOCK.match(part, place)
        if begin is None:
            place = part.find("\n", place) + 1 or last + 1
            continue
        end = begin.end() + int(begin[2])
        closing = f"\n</{begin[1]}>"
        if not part.startswith(closing, end):
            return None
        found.append((begin[1], part[begin.end() : end], place, end + len(closing)))
        place = end + len(closing) + 1
    return found


def last_line_of(part: str) -> str:
    """Return the last line of a part's body, which never belongs to a quoted text."""
    return part.removesuffix(_PART_END).rpartition("\n")[2]


def state_row(lines: Iterable[str]) -> str:
    """Return the row after the last part."""
    return "\n".join([STATE, *lines]) + _STATE_END


def is_state(text: str) -> bool:
    """Tell whether a row is a whole state row."""
    return text.startswith(STATE + "\n") and text.endswith(_STATE_END)


def calls_of(state: str) -> list[tuple[str, Mapping[str, Any], str, bool]]:
    """Return tool calls (tool, input, result, failed) that would lead to the state in a row.

    So the next compaction collects this state by the same rules as real tool calls.
    """
    told = _told(state)
    todos = [{"content": text, "status": "pending"} for number, text in told["todo"] if not number]
    made: list[tuple[str, Mapping[str, Any], str, bool]] = []
    made += [("TodoWrite", {"todos": todos}, "", False)] if todos else []
    made += [("TaskCreate", {"subject": text}, f"#{number}", False) for number, text in told["todo"] if number]
    made += [("Bash", {"command": text}, "", True) for _, text in told["command"]]
    made += [("Write", {"file_path": text}, "", False) for _, text in told["written"]]
    made += [("Read", {"file_path": text}, "", False) for _, text in told["read"]]
    plan = "\n".join(text for _, text in told[""])
    return [*made, ("ExitPlanMode", {"plan": plan}, "", False)] if plan else made


def _told(state: str) -> dict[str, list[tuple[str, str]]]:
    """Return the items of each kind, with a task's number, and the plan's lines under no name."""
    kinds = {heading: kind for kind, heading in HEADINGS.items()} | {PLAN: ""}
    told: dict[str, list[tuple[str, str]]] = {kind: [] for kind in kinds.values()}
    kind: str | None = None
    for line in state.split("\n"):
        item = _ITEM.match(line)
        if line in kinds:
            kind = kinds[line]
        elif kind == "" and line.startswith("> "):
            told[""].append(("", line[2:]))
        elif kind and item:
            told[kind].append((item[1] or "", item[2]) if kind == "todo" else ("", line[2:]))
        else:
            kind = None
    return told
