"""Transcript rows as a conversation that people can read, and as plain values for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.text import printable, size_text
from mala_context.archive.compactions import Counter
from mala_context.transcripts.compactions import is_summary, kept_text
from mala_context.transcripts.json_rows import objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mala_context.archive.compactions import RecordedCompaction
    from mala_context.transcripts.rows import Row

LINES: Final = 12
CHARACTERS: Final = 1_500
"""How much of a tool's input or result is shown."""


def messages(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield messages and compactions in order, each with `kind`, `time`, `text` and, for tools, `name`.

    A row that was shortened is followed by the number of bytes that were left out of it.
    """
    counter = Counter()
    for row in rows:
        compaction = counter.see(row)
        if compaction is not None:
            yield _compaction(compaction)
        for value in objects(row.data):
            yield from _said(value)
        if row.left_out:
            yield {"kind": "left_out", "bytes": row.left_out, "text": ""}


def _compaction(found: RecordedCompaction) -> dict[str, Any]:
    return {
        "kind": "compaction",
        "time": found.time,
        "number": found.number,
        "trigger": found.trigger,
        "tokens_before": found.tokens_before,
        "tokens_after": found.tokens_after,
        "text": "",
    }


def _said(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    role = value.get("type")
    message = value.get("message")
    if role not in ("user", "assistant") or not isinstance(message, dict):
        return
    kind = "summary" if is_summary(value) else "kept" if kept_text(value) else "note" if value.get("isMeta") else role
    about = {"time": _text(value, "timestamp"), "agent": _text(value, "agentId") if value.get("isSidechain") else None}
    content = message.get("content")
    for block in [content] if isinstance(content, str) else content if isinstance(content, list) else []:
        part = _block(block, str(kind))
        if part is not None:
            yield {**part, **{key: each for key, each in about.items() if each is not None}}


def _text(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    return found if isinstance(found, str) else None


def _block(block: object, kind: str) -> dict[str, Any] | None:
    if isinstance(block, str):
        return {"kind": kind, "text": block}
    if not isinstance(block, dict):
        return None
    match block.get("type"):
        case "text":
            return {"kind": kind, "text": str(block.get("text", ""))}
        case "thinking":
            return {"kind": "thinking", "text": str(block.get("thinking", ""))}
        case "tool_use":
            given = json.dumps(block.get("input"), ensure_ascii=False)
            return {"kind": "tool", "name": str(block.get("name")), "text": given}
        case "tool_result":
            return {"kind": "result", "text": _result(block.get("content"))}
        case other:
            return {"kind": kind, "text": f"[{other}]"}


def _result(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
        for part in parts
        if isinstance(part, dict)
    )


# Two characters each: a message is indented by them, so that no line in it can pass for one of ours.
_MARKS: Final = {
    "user": "> ",
    "assistant": "  ",
    "summary": "| ",
    "kept": "| ",
    "note": "· ",
    "thinking": "~ ",
    "tool": "→ ",
    "result": "← ",
}
_SHORT: Final = frozenset({"tool", "result", "note", "kept"})


def text(found: Iterable[dict[str, Any]], *, full: bool = False) -> Iterator[str]:
    """Yield the conversation as text, safe on a terminal; long inputs and results are cut unless `full`."""
    for said in found:
        if said["kind"] in _LINES:
            yield _LINES[said["kind"]](said)
            continue
        mark = _MARKS.get(said["kind"], "  ")
        words = f"{said['name']} {said['text']}" if "name" in said else said["text"]
        if not words.strip():
            continue
        if not full and said["kind"] in _SHORT:
            words = _cut(words)
        who = f"({printable(said['agent'])}) " if "agent" in said else ""
        if said["kind"] == "user" and said.get("time"):
            yield f"[{printable(said['time'])}]\n"
        indented = printable(words, lines=True).replace("\n", "\n" + " " * len(mark))
        yield f"{mark}{who}{indented}\n\n"


def _cut(words: str) -> str:
    lines = words[:CHARACTERS].split("\n")
    short = "\n".join(lines[:LINES])
    left = len(words) - len(short)
    return short if not left else f"{short} … ({left:,} more characters)"


def _line(said: dict[str, Any]) -> str:
    sizes = [f"{size:,}" if isinstance(size, int) else "?" for size in (said["tokens_before"], said["tokens_after"])]
    trigger = printable(said["trigger"] or "unknown")
    when = f", {printable(said['time'])}" if said["time"] else ""
    return f"════ compaction {said['number']} ({trigger}, {sizes[0]} → {sizes[1]} tokens{when}) ════\n\n"


def _left_out(said: dict[str, Any]) -> str:
    return f"════ {size_text(said['bytes'])} of a row too long to be shown; `archives cat` has all of it ════\n\n"


_LINES: Final = {"compaction": _line, "left_out": _left_out}
