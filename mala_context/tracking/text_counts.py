"""Content into numbers: what a prompt, a result, an answer or an attachment has in it that costs tokens.

No tokenizer is public, but a dozen counts of a text predict most of its tokens: its words and their letters, numbers,
signs, gaps and line ends. Their error for a tool result is half that of counts of characters by kind. Characters
outside ASCII are counted apart, since each takes far more tokens. So are random characters (base64), which cost about
one token each wherever they stand (case core-26).

Of very long texts a sample is counted and scaled; random runs are looked for in the whole text.

Blocks come as dicts (stream-json, transcripts) or as objects (the SDK); both have the same field names. Nothing here
raises on content of an unknown shape: it has no characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.byte_kinds import BASE64, BITS, DIGITS, LOWER, UPPER, runs, tally
from mala_context.tracking.images import UNKNOWN, Size, size_of
from mala_context.tracking.thinking_blocks import REDACTED, redacted_data, thought_chars
from mala_context.transcripts.compactions import KEPT_MARKS

_SAMPLE: Final = 3_072
_SUMMARY: Final = "This session is being continued from a previous conversation"
_DEPTH: Final = 24


class Counts(NamedTuple):
    """Counts of a text. All but the first have a price in `token_costs.FAMILIES`, in this order."""

    chars: int = 0
    """All its characters."""
    words: int = 0
    """Runs of ASCII letters."""
    letters: int = 0
    """ASCII letters; those beyond a word's first few make pieces of their own."""
    turns: int = 0
    """Upper-case letters after a lower-case one, as in `camelCase`."""
    capitals: int = 0
    """Runs of two or more upper-case letters."""
    numbers: int = 0
    """Runs of ASCII digits."""
    digits: int = 0
    """ASCII digits."""
    signs: int = 0
    """Runs of ASCII punctuation."""
    punctuation: int = 0
    """ASCII punctuation."""
    gaps: int = 0
    """Runs of two or more blanks or tabs."""
    lines: int = 0
    """Line ends."""
    cjk: int = 0
    """Chinese, Japanese and Korean characters."""
    other: int = 0
    """All other characters outside ASCII."""
    random: int = 0
    """Characters of random runs; they are in none of the counts above but the first."""

    @property
    def teaches(self) -> bool:
        """Whether its cost says something about other text of its kind, unlike that of random or minified text."""
        return not self.random and self.chars <= _MINIFIED * (self.lines + 1)


class Countable(NamedTuple):
    """One countable thing in the context."""

    key: str
    """Its source: a tool's name, `prompt`, `response`, `attachment`; ratios are learned by source."""
    counts: Counts
    """Its text."""
    unit: str = ""
    """Key of its cost besides its text, in the table of constants of `token_costs`."""
    size: Size = UNKNOWN
    """Two numbers that depend on the unit.

    An image: width and height in pixels. Thinking: length of the signature, and 0. Redacted thinking: the characters of
    its data that are the thought, and all of them. A tool call: characters of its name and its JSON beside the text,
    and 0."""


class Length(int):
    """The number of characters of content that was freed; `pieces` takes it instead of the content."""

    __slots__ = ()


NOTHING: Final = Counts()
PLAN: Final = "ExitPlanMode"
"""The tool whose input the next request does not hold."""
Names = MutableMapping[str, str]


_TYPICAL: Final = (0.116, 0.623, 0.014, 0.006, 0.024, 0.0565, 0.086, 0.114, 0.018, 0.019)
"""Counts a character of what agents read and write, from `words` to `lines`."""
_RUN: Final = 60
"""Characters of the shortest random run that is looked for; base64 is wrapped at 64 or 76."""
_MINIFIED: Final = 20_000
"""Characters a line from which on a text is taken for minified."""


def count_text(text: str) -> Counts:
    """Count a text; a long one by samples of its head, middle and tail."""
    length = len(text)
    if length < _RUN:
        return count_short(text)
    random, text = _without_random(text)
    counts, rest = _count_sample(text), length - random
    if random:
        return counts._replace(chars=length, random=random) if rest else Counts(length, random=random)
    return counts


def _count_sample(text: str) -> Counts:
    length = len(text)
    if length <= 2 * _SAMPLE:
        return count_short(text)
    middle = (length - _SAMPLE) // 2
    third = _SAMPLE // 3
    sample = count_short(text[:third] + text[middle : middle + third] + text[-third:])
    scale = length / sample.chars
    return Counts(length, *(round(number * scale) for number in sample[1:]))


def typical(chars: int) -> Counts:
    """Return the counts of `chars` characters of usual text, where only their number is known."""
    return Counts(chars, *(round(chars * share) for share in _TYPICAL))


def random_chars(text: str) -> int:
    """Count the characters of a text's random runs: base64 and its like."""
    return _without_random(text)[0]


def _without_random(text: str) -> tuple[int, str]:
    """Return the number of characters in random runs, and the text without them."""
    kept, end = [], 0
    for start, stop in runs(text, BASE64, _RUN):
        if _is_random(text[start:stop]):
            kept.append(text[end:start])
            end = stop
    if not end:
        return 0, text
    rest = "".join((*kept, text[end:]))
    return len(text) - len(rest), rest


def _is_random(run: str) -> bool:
    """Tell base64 from a path or a long name: two in five of base64's characters are upper case, a sixth are digits."""
    sample = run[: 2 * _SAMPLE].encode()  # a run may be megabytes long
    size = len(sample)

    def has(share: float, kind: bytes) -> bool:
        return size - len(sample.translate(None, kind)) >= share * size

    return has(0.25, UPPER) and has(0.2, LOWER) and has(0.03, DIGITS)


def count_short(text: str) -> Counts:
    """Count all of a text, whose random runs count as any other text."""
    return Counts(len(text), *tally(text, BITS))


def field_of(block: Any, name: str) -> Any:
    """Return a block's field, whether the block is a dict or an object."""
    if block.__class__ is dict:
        return block.get(name)
    return block.get(name) if isinstance(block, Mapping) else getattr(block, name, None)


def kind_of(block: Any) -> str | None:
    """Return a block's or an attachment's type; `None` where it has none that could be one."""
    kind = field_of(block, "type")
    return kind if isinstance(kind, str) else None


def _begins(content: Any, words: str | tuple[str, ...]) -> bool:
    """Tell whether a message's text begins with some words."""
    if isinstance(content, list) and content:
        content = field_of(content[0], "text")
    return isinstance(content, str) and content.startswith(words)


def is_kept(content: Any) -> bool:
    """Tell whether a message is one that a compaction by reference wrote."""
    return _begins(content, KEPT_MARKS)


def is_summary(content: Any) -> bool:
    """Tell whether a message is the summary that a compaction leaves; the stream does not mark it."""
    return _begins(content, _SUMMARY)


def is_result(content: Any) -> bool:
    """Tell whether a user's message holds a tool's result."""
    if not isinstance(content, list) or not content:
        return False
    return any(field_of(block, "tool_use_id") is not None for block in content)


def is_picture(value: Mapping[Any, Any]) -> bool:
    """Tell whether a mapping is an image or a document whose bytes, as base64, are no text."""
    return value.get("type") in ("image", "document") and ("source" in value or "file" in value)


def all_text(value: Any, depth: int = 0) -> str:
    """Join every string in a value of unknown shape, keys too: the text of a tool's input, or of an attachment.

    An image or a document has only its bytes there, which are no text.
    """
    cls = value.__class__
    if cls is str:
        return str(value)
    if cls is dict or isinstance(value, Mapping):
        if depth > _DEPTH or is_picture(value):
            return ""
        return " ".join([f"{key} {all_text(item, depth + 1)}" for key, item in value.items()])
    if cls is list or cls is tuple:
        return "" if depth > _DEPTH else " ".join([all_text(item, depth + 1) for item in value])
    return str(value) if cls is int or cls is float else ""


def text_length(content: Any, depth: int = 0) -> int:
    """Count the characters of content quickly; below the depth of `all_text` nothing is counted."""
    cls = content.__class__
    if cls is str:
        return len(content)
    if cls is dict:
        content = content.values()
    elif cls is not list and cls is not tuple:
        if cls is Length:
            return int(content)
        name = _TEXT_FIELDS.get(cls.__name__)
        return 0 if name is None or depth > _DEPTH else text_length(getattr(content, name, None), depth + 1)
    total = 0
    for value in () if depth > _DEPTH else content:
        total += len(value) if value.__class__ is str else text_length(value, depth + 1)
    return total


def strings(content: Any, depth: int = 0) -> Iterator[str | None]:
    """Yield the texts that `text_length` counts; `None` for a picture, a tool reference and a text that was freed."""
    cls = content.__class__
    if cls is str:
        yield content
    elif cls is Length or (cls is dict and (is_picture(content) or content.get("type") == "tool_reference")):
        yield None
    elif cls is dict or cls is list or cls is tuple:
        for value in () if depth > _DEPTH else content.values() if cls is dict else content:
            yield from strings(value, depth + 1)
    elif cls.__name__ in _TEXT_FIELDS and depth <= _DEPTH:
        yield from strings(getattr(content, _TEXT_FIELDS[cls.__name__], None), depth + 1)


def hidden_thinking(signed: Iterable[Any]) -> int:
    """Return the length of the signatures of those blocks of thinking whose text is not shown; 0 for none.

    Redacted blocks have no signature. The CLI counts their data as text.
    """
    return sum(len(field_of(block, "signature") or "") for block in signed if not field_of(block, "thinking"))


def is_thought(content: Any) -> bool:
    """Tell whether a response's content is nothing but thinking."""
    for block in content if isinstance(content, list | tuple) else (content,):
        cls = block.__class__
        kind = block.get("type") if cls is dict else _CLASSES.get(cls.__name__) or kind_of(block)
        if kind not in _THOUGHTS:
            return False
    return True


def pieces(kind: str, content: Any, names: Names) -> list[Countable]:
    """Return the countable things in a response's content, an appended message's, or an attachment.

    `names` maps ids of tool calls to names of tools; a response's calls are added to it.
    """
    if kind == "attachment":
        return _attachment(content)
    if isinstance(content, str):
        return [Countable("prompt" if kind == "user" else "response", count_text(content), "prompt")]
    if content.__class__ is Length:
        return [Countable("response" if kind == "response" else "tool", typical(content))]
    found: list[Countable] = []
    for block in content if isinstance(content, list | tuple) else ():
        cls = block.__class__
        kind_here = block.get("type") if cls is dict else _CLASSES.get(cls.__name__)
        reader = _BLOCKS.get(kind_here) if isinstance(kind_here, str) else None
        if reader is not None:
            reader(block, kind, names, found)
    return found


def _text(block: Any, kind: str, names: Names, found: list[Countable]) -> None:
    text = field_of(block, "text")
    if isinstance(text, str):
        found.append(Countable("response" if kind == "response" else "prompt", count_text(text), "text"))


def _thinking(block: Any, kind: str, names: Names, found: list[Countable]) -> None:
    text, signature = field_of(block, "thinking"), field_of(block, "signature")
    if isinstance(text, str):
        signed = len(signature) if isinstance(signature, str) else 0
        counts = Counts(len(text)) if signed else count_text(text)  # the signature tells more than what is shown
        found.append(Countable("response", counts, "thinking", (signed, 0)))


def _redacted(block: Any, kind: str, names: Names, found: list[Countable]) -> None:
    data = redacted_data(block)
    found.append(Countable("response", NOTHING, REDACTED, (thought_chars(data), len(data))))


def _tool_use(block: Any, kind: str, names: Names, found: list[Countable]) -> None:
    name, identity = field_of(block, "name"), field_of(block, "id")
    if isinstance(name, str) and isinstance(identity, str):
        names[identity] = name
    given = field_of(block, "input")
    text = all_text(given)
    # The CLI puts the plan into the input after the answer; the request holds it in the result alone (case core-31).
    counts = Counts(len(text)) if name == PLAN else count_text(text)
    more = sum(map(text.count, '"\\\n')) + (4 * len(given) + 2 if isinstance(given, dict) else 0)
    found.append(Countable("response", counts, "tool_use", (more + len(name) if isinstance(name, str) else more, 0)))


def _tool_result(block: Any, kind: str, names: Names, found: list[Countable]) -> None:
    identity = field_of(block, "tool_use_id")
    key = names.get(identity, "tool") if isinstance(identity, str) else "tool"
    content = field_of(block, "content")
    found.append(Countable(key, count_text(content) if isinstance(content, str) else NOTHING, "result"))
    for inner in content if isinstance(content, list | tuple) else ():
        inner_kind = kind_of(inner)
        if inner_kind == "text":
            text = field_of(inner, "text")
            if isinstance(text, str):
                found.append(Countable(key, count_text(text)))
        elif inner_kind in _UNITS:
            found.append(_thing(key, inner_kind, inner))


def _unit(block: Any, kind: str, names: Names, found: list[Countable]) -> None:
    found.append(_thing("prompt", field_of(block, "type"), block))


def _thing(key: str, kind: str, block: Any) -> Countable:
    """Return the piece of a block that is no text: an image with its size, a reference with its tool's name."""
    if kind == "image":
        return Countable(key, NOTHING, kind, size_of(field_of(field_of(block, "source"), "data")))
    if kind == "tool_reference":
        tool = field_of(block, "tool_name")
        return Countable(key, NOTHING, f"{kind}:{tool}" if isinstance(tool, str) else kind)
    return Countable(key, NOTHING, kind)


_UNITS: Final = frozenset({"image", "document", "tool_reference"})
_BLOCKS: Final[Mapping[Any, Callable[[Any, str, Names, list[Countable]], None]]] = {
    "text": _text,
    "thinking": _thinking,
    REDACTED: _redacted,
    "tool_use": _tool_use,
    "server_tool_use": _tool_use,
    "tool_result": _tool_result,
    "advisor_tool_result": _tool_result,
    "image": _unit,
    "document": _unit,
    "tool_reference": _unit,
}
_THOUGHTS: Final = ("thinking", REDACTED)  # no set: a type that is a list has no hash
_CLASSES: Final[Mapping[str, str]] = {
    "TextBlock": "text",
    "ThinkingBlock": "thinking",
    "RedactedThinkingBlock": REDACTED,
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
"""Attachments of a session's first request that a compaction writes again, so that `post_tokens` counts them too."""


def attachment_text(attachment: Any) -> str:
    """Return the text of an attachment that the model gets: `rendered` where it is there, else its known fields."""
    rendered = field_of(attachment, "rendered")
    if rendered:
        return rendered if isinstance(rendered, str) else all_text(rendered)
    names = _ATTACHMENTS.get(kind_of(attachment))
    if names is None:
        return all_text(field_of(attachment, "content"))
    return "\n".join(filter(None, (all_text(field_of(attachment, name)) for name in names)))


def _attachment(attachment: Any) -> list[Countable]:
    kind = kind_of(attachment)
    if kind is None:
        return []
    text = attachment_text(attachment)
    if not text and kind in _SILENT:
        return []
    found = [Countable("attachment", count_text(text), f"attachment:{kind}")]
    _pictures(attachment, found)
    return found


def _pictures(value: Any, found: list[Countable], depth: int = 0) -> None:
    """Find the images in an attachment: in a prompt that was sent while the agent works, for example (case core-25)."""
    if depth > _DEPTH:
        return
    if isinstance(value, Mapping):
        if is_picture(value):
            found.append(_thing("attachment", value["type"], value))
            return
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if item.__class__ is not str:
            _pictures(item, found, depth + 1)
