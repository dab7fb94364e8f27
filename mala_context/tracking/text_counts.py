"""Content into numbers: how many characters of which kind a prompt, a result, an answer or an attachment has.

A tokenizer cannot be had, but most of what one does can be told from four counts: characters in all, digits,
punctuation and white space; text outside ASCII is counted apart, since it takes far more tokens a character.
Counting is done on bytes with deletion tables, at about a nanosecond a character and kind; of very long texts a
sample is counted and scaled.

Blocks come as dicts (stream-json, transcripts) or as objects (the SDK); both are read by the same names. Nothing
here raises on content of an unknown shape: what is not known has no characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from mala_context.transcripts.compactions import KEPT_MARKS

_DIGITS: Final = b"0123456789"
_SPACE: Final = b" \t\r\n"
_PUNCTUATION: Final = bytes(code for code in range(33, 127) if not chr(code).isalnum())
_CJK: Final = "[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+"
"""Compiled where such text is met: that takes 3 ms, which a process of 30 ms would notice."""
_SAMPLE: Final = 3_072
_SUMMARY: Final = "This session is being continued from a previous conversation"
_DEPTH: Final = 24


class Counts(NamedTuple):
    """Characters of a text, by kind."""

    chars: int = 0
    """All of them."""
    digits: int = 0
    """ASCII digits."""
    punctuation: int = 0
    """ASCII punctuation."""
    space: int = 0
    """Blanks, tabs and line ends."""
    cjk: int = 0
    """Chinese, Japanese and Korean."""
    other: int = 0
    """What else is outside ASCII."""


class Piece(NamedTuple):
    """One countable thing in the context."""

    key: str
    """What made it: a tool's name, `prompt`, `response`, `attachment`; ratios are learned by it."""
    counts: Counts
    """Its text."""
    unit: str = ""
    """What it costs besides its text: a key of the projection's table of constants."""


class Length(int):
    """The characters of content whose text is no longer there; `pieces` takes it in the content's place."""

    __slots__ = ()


NOTHING: Final = Counts()
Names = MutableMapping[str, str]


def count_text(text: str) -> Counts:
    """Count a text; a long one by samples of its head, middle and tail."""
    length = len(text)
    if length > 2 * _SAMPLE:
        middle = (length - _SAMPLE) // 2
        third = _SAMPLE // 3
        sample = _count(text[:third] + text[middle : middle + third] + text[-third:])
        scale = length / sample.chars
        return Counts(length, *(round(number * scale) for number in sample[1:]))
    return _count(text)


def _count(text: str) -> Counts:
    length = len(text)
    raw = text.encode("ascii", "ignore")
    plain = len(raw)
    if plain == length:
        translate = raw.translate
        return Counts(
            length,
            length - len(translate(None, _DIGITS)),
            length - len(translate(None, _PUNCTUATION)),
            length - len(translate(None, _SPACE)),
        )
    cjk = sum(map(len, re.findall(_CJK, text)))
    return Counts(
        length,
        plain - len(raw.translate(None, _DIGITS)),
        plain - len(raw.translate(None, _PUNCTUATION)),
        plain - len(raw.translate(None, _SPACE)),
        cjk,
        length - plain - cjk,
    )


def field(block: Any, name: str) -> Any:
    """Return a block's field, whether the block is a dict or an object."""
    if block.__class__ is dict:
        return block.get(name)
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)


def kind_of(block: Any) -> str | None:
    """Return a block's or an attachment's type; `None` where it has none that could be one."""
    kind = field(block, "type")
    return kind if isinstance(kind, str) else None


def is_kept(content: Any) -> bool:
    """Tell whether a message is one that a compaction by reference wrote."""
    if isinstance(content, list) and content:
        content = field(content[0], "text")
    return isinstance(content, str) and content.startswith(KEPT_MARKS)


def is_summary(content: Any) -> bool:
    """Tell whether a message is the summary that a compaction leaves; the stream does not mark it."""
    if isinstance(content, list) and content:
        content = field(content[0], "text")
    return isinstance(content, str) and content.startswith(_SUMMARY)


def is_result(content: Any) -> bool:
    """Tell whether a user's message holds a tool's result."""
    if not isinstance(content, list) or not content:
        return False
    return any(field(block, "tool_use_id") is not None for block in content)


def all_text(value: Any, depth: int = 0) -> str:
    """Join every string in a value of unknown shape, keys too: the text of a tool's input, or of an attachment."""
    cls = value.__class__
    if cls is str:
        return str(value)
    if cls is dict or isinstance(value, Mapping):
        if depth > _DEPTH:
            return ""
        return " ".join([f"{key} {all_text(item, depth + 1)}" for key, item in value.items()])
    if cls is list or cls is tuple:
        return "" if depth > _DEPTH else " ".join([all_text(item, depth + 1) for item in value])
    return str(value) if cls is int or cls is float else ""


def text_length(content: Any) -> int:
    """Count the characters of content, however it is nested, as fast as that goes."""
    cls = content.__class__
    if cls is str:
        return len(content)
    if cls is dict:
        content = content.values()
    elif cls is not list and cls is not tuple:
        if cls is Length:
            return int(content)
        name = _TEXT_FIELDS.get(cls.__name__)
        return 0 if name is None else text_length(getattr(content, name, None))
    total = 0
    for value in content:
        total += len(value) if value.__class__ is str else text_length(value)
    return total


def pieces(kind: str, content: Any, names: Names) -> list[Piece]:
    """Return the countable things in a response's content, an appended message's, or an attachment.

    `names` maps ids of tool calls to names of tools; a response's calls are added to it.
    """
    if kind == "attachment":
        return _attachment(content)
    if isinstance(content, str):
        return [Piece("prompt" if kind == "user" else "response", count_text(content), "prompt")]
    if content.__class__ is Length:
        return [Piece("response" if kind == "response" else "tool", Counts(content))]
    found: list[Piece] = []
    for block in content if isinstance(content, list | tuple) else ():
        cls = block.__class__
        kind_here = block.get("type") if cls is dict else _CLASSES.get(cls.__name__)
        reader = _BLOCKS.get(kind_here) if isinstance(kind_here, str) else None
        if reader is not None:
            reader(block, kind, names, found)
    return found


def _text(block: Any, kind: str, names: Names, found: list[Piece]) -> None:
    del names
    text = field(block, "text")
    if isinstance(text, str):
        found.append(Piece("response" if kind == "response" else "prompt", count_text(text), "text"))


def _thinking(block: Any, kind: str, names: Names, found: list[Piece]) -> None:
    del kind, names
    text = field(block, "thinking")
    if isinstance(text, str):
        found.append(Piece("response", count_text(text), "thinking"))


def _tool_use(block: Any, kind: str, names: Names, found: list[Piece]) -> None:
    del kind
    name, identity = field(block, "name"), field(block, "id")
    if isinstance(name, str) and isinstance(identity, str):
        names[identity] = name
    found.append(Piece("response", count_text(all_text(field(block, "input"))), "tool_use"))


def _tool_result(block: Any, kind: str, names: Names, found: list[Piece]) -> None:
    del kind
    identity = field(block, "tool_use_id")
    key = names.get(identity, "tool") if isinstance(identity, str) else "tool"
    content = field(block, "content")
    found.append(Piece(key, count_text(content) if isinstance(content, str) else NOTHING, "result"))
    for inner in content if isinstance(content, list | tuple) else ():
        inner_kind = kind_of(inner)
        if inner_kind == "text":
            text = field(inner, "text")
            if isinstance(text, str):
                found.append(Piece(key, count_text(text)))
        elif inner_kind in _UNITS:
            found.append(Piece(key, NOTHING, inner_kind))


def _unit(block: Any, kind: str, names: Names, found: list[Piece]) -> None:
    del kind, names
    found.append(Piece("prompt", NOTHING, field(block, "type")))


_UNITS: Final = frozenset({"image", "document", "tool_reference"})
_BLOCKS: Final[Mapping[Any, Callable[[Any, str, Names, list[Piece]], None]]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "server_tool_use": _tool_use,
    "tool_result": _tool_result,
    "advisor_tool_result": _tool_result,
    "image": _unit,
    "document": _unit,
    "tool_reference": _unit,
}
_CLASSES: Final[Mapping[str, str]] = {
    "TextBlock": "text",
    "ThinkingBlock": "thinking",
    "ToolUseBlock": "tool_use",
    "ServerToolUseBlock": "server_tool_use",
    "ToolResultBlock": "tool_result",
    "ServerToolResultBlock": "advisor_tool_result",
}

_TEXT_FIELDS: Final[Mapping[str, str]] = {
    "TextBlock": "text",
    "ThinkingBlock": "thinking",
    "ToolUseBlock": "input",
    "ServerToolUseBlock": "input",
    "ToolResultBlock": "content",
    "ServerToolResultBlock": "content",
}

_ATTACHMENTS: Final[Mapping[Any, tuple[str, ...]]] = {
    "hook_success": ("content",),
    "hook_additional_context": ("content",),
    "hook_blocking_error": ("blockingError",),
    "total_tokens_reminder": ("text",),
    "task_reminder": ("content",),
    "todo_reminder": ("content",),
    "mcp_instructions_delta": ("addedBlocks",),
    "deferred_tools_delta": ("addedLines", "removedNames"),
    "agent_listing_delta": ("addedLines",),
    "skill_listing": ("content",),
    "queued_command": ("prompt",),
    "edited_text_file": ("filename", "snippet"),
    "file": ("filename", "content"),
    "nested_memory": ("path", "content"),
    "compact_file_reference": ("displayPath",),
    "plan_file_reference": ("planFilePath", "planContent"),
    "date_change": ("newDate",),
    "companion_intro": (),
    "command_permissions": (),
}
_SILENT: Final = frozenset({"command_permissions", "hook_success", "hook_non_blocking_error", "hook_cancelled"})
REANNOUNCED: Final = frozenset({"environment", "model", "deferred_tools_delta", "agent_listing_delta", "skill_listing"})
"""Attachments that a compaction writes again and `post_tokens` counts, though a session's first request has them."""


def attachment_text(attachment: Any) -> str:
    """Return what of an attachment the model gets: `rendered` where the CLI says it, else the fields known for it."""
    rendered = field(attachment, "rendered")
    if rendered:
        return rendered if isinstance(rendered, str) else all_text(rendered)
    names = _ATTACHMENTS.get(kind_of(attachment))
    if names is None:
        return all_text(field(attachment, "content"))
    return "\n".join(filter(None, (all_text(field(attachment, name)) for name in names)))


def _attachment(attachment: Any) -> list[Piece]:
    kind = kind_of(attachment)
    if kind is None:
        return []
    text = attachment_text(attachment)
    if not text and kind in _SILENT:
        return []
    return [Piece("attachment", count_text(text), f"attachment:{kind}")]
