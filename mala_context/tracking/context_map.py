"""What fills a context: the parts of an agent's last request, which sum up to its size.

The CLI reports the parts before the conversation (`get_context_usage` with `detail: "summary"`), and newer transcripts
hold their text in attachments. The parts of the conversation are measured here, by the lengths of the messages, and
scaled to the API's count of the whole request. The tokens that no message shows are a part of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.text_counts import Length, all_text, attachment_text, field_of, kind_of, text_length
from mala_context.tracking.thinking_blocks import redacted_data, thought_chars

GROUPS: Final[Mapping[str, str]] = {
    "start": "system prompt, tools and memory",
    "system": "system prompt",
    "tools": "tools",
    "mcp": "MCP servers",
    "memory": "memory files",
    "skills": "skills",
    "agents": "agents",
    "prompts": "prompts",
    "answers": "answers",
    "results": "tool results",
    "attachments": "attachments",
    "summary": "summary of a compaction",
    "other": "not shown by messages",
}
"""The groups of parts and their words, in the order of a request."""
FIXED: Final = frozenset({"start", "system", "tools", "mcp", "memory", "skills", "agents"})
"""Groups before the conversation, which a compaction does not change."""
_CATEGORIES: Final = {
    "system_prompt": "system",
    "system_tools": "tools",
    "mcp_tools": "mcp",
    "custom_agents": "agents",
    "memory_files": "memory",
    "skills": "skills",
}
_ATTACHED: Final = {
    "instructions": "memory",
    "nested_memory": "memory",
    "skill_listing": "skills",
    "agent_listing_delta": "agents",
    "deferred_tools_delta": "tools",
    "mcp_instructions_delta": "mcp",
}
_READS: Final = {"Read": "file_path", "NotebookRead": "notebook_path"}
_MOST_GLOBAL: Final = 1.6
"""Most that the whole conversation may cost, as a multiple of the estimate by its length; the rest is "other"."""
_LEAST, _MOST = 0.4, 2.5
"""Least and most that the fixed parts may cost, as multiples of their estimate; outside this, the estimate stays."""
_OUTSIDE: Final = 1.5
"""Weight of a character outside ASCII, in ASCII characters."""
_THINGS: Final = {"image": 4_000.0, "document": 9_000.0, "tool_reference": 2_400.0}
"""Weight of a block without text, in characters."""
_UNIT: Final = 120.0
"""Most tokens that a result or an attachment costs besides its text."""
SIGNED: Final = 0.3
"""Most tokens of thinking for each character of its signature (see `token_costs.THINKING`).

With a token a character, each request after a thought was priced in full: 7.7 µs a message instead of 4.8.
"""
MOST_PARTS: Final = 512
"""Most parts that are told apart; all others of a group are one part."""

Key = tuple[str, str, str | None]
"""Group, name, and the path of a file."""


class ContextPart(NamedTuple):
    """One part of a context."""

    group: str
    """One of `GROUPS`."""
    name: str
    """Of a tool's results the tool, of a memory file its path, of an MCP server its name; else the group's words."""
    tokens: int
    """Its size, about; all parts of a context sum up to the size that the API counted."""
    path: str | None = None
    """The file whose text it is."""


class MapView(NamedTuple):
    """A map at one moment, which does not change."""

    fixed: Mapping[Key, float]
    sums: Mapping[Key, float]
    rest: str
    """The group of the tokens that are in neither of them."""

    def parts(self, tokens: int | None) -> tuple[ContextPart, ...]:
        """Return the parts of a context of this size, in the order of `GROUPS`; they sum up to it.

        If the known parts exceed the context (an estimate was too high), the conversation is scaled down first.
        """
        if tokens is None:
            return ()
        # Step 1: find the factors for the fixed parts and for the conversation. An answer's tokens were counted by the
        # API, so a factor above 1 is for the rest of the conversation alone.
        fixed, sums = sum(self.fixed.values()), sum(self.sums.values())
        first = min(1.0, tokens / fixed) if fixed else 0.0
        left, answers = tokens - first * fixed, self.sums.get(_ANSWERS, 0.0)
        second = min(1.0, left / sums) if sums else 0.0
        share = (left - answers) / (sums - answers) if sums > answers else 0.0
        if self.rest == "other" and 1.0 < share <= _MOST_GLOBAL:  # text cost more than its length says
            second = share
        # Step 2: scale, and show the remainder as a part, so that the sum is the API's count to the token.
        sized = {key: round(first * each) for key, each in self.fixed.items()}
        sized |= {key: round(min(second, 1.0 if key == _ANSWERS else second) * each) for key, each in self.sums.items()}
        rest = tokens - sum(sized.values())
        if rest > 0:
            key = (self.rest, GROUPS[self.rest], None)
            sized[key] = sized.get(key, 0) + rest
        elif rest:  # each was rounded by less than one half
            sized[max(sized, key=sized.__getitem__)] += rest
        places = {group: place for place, group in enumerate(GROUPS)}
        order = sorted(sized.items(), key=lambda each: (places[each[0][0]], -each[1], each[0][1]))
        return tuple(ContextPart(group, name, size, path) for (group, name, path), size in order if size)


EMPTY: Final = MapView({}, {}, "other")


class ContextMap:
    """What is known of the parts of one agent's context, in tokens."""

    __slots__ = (
        "_answers",
        "_lent",
        "_new",
        "_per_token",
        "_rate",
        "_rest",
        "_sums",
        "_told",
        "fixed",
        "prompted",
        "whole",
    )

    def __init__(self) -> None:
        self.whole = True
        """Whether the next first request holds a whole conversation, and nothing of an earlier one."""
        self.prompted = 0.0
        """Weight of the next first request's prompt, if no message shows it."""
        self.fixed: dict[Key, float] = {}
        """Tokens of each part before the conversation."""
        self._sums: dict[Key, float] = {}
        """Tokens of each part of the conversation."""
        self._new: dict[Any, list[Any]] = {}
        """Weights that are not in `_sums` yet: a weight and its key, by the tool's name or by the key."""
        self._answers = 0.0
        """Tokens of answers that are not in `_sums` yet."""
        self._per_token = 1.0
        """Weight of a token in `_new`."""
        self._rest = "other"
        self._lent = False
        """Whether a `MapView` holds `fixed` and `_sums`, so that they have to be copied before a change."""
        self._told: dict[str, float] = {}
        """Tokens of each fixed group, as the CLI reported them."""
        self._rate = 1.0
        """Tokens that the API counted for each token that the CLI reported."""

    def view(self) -> MapView:
        """Return the map as it is now."""
        if self._new or self._answers:
            self._settle()
        self._lent = True
        return MapView(self.fixed, self._sums, self._rest)

    def _own(self) -> None:
        """Make the map's own copy of what a view holds."""
        if self._lent:
            self.fixed, self._sums, self._lent = dict(self.fixed), dict(self._sums), False

    def _settle(self) -> dict[Key, float]:
        """Add the new weights to the sums; this waits until the map is read, because a live message must stay cheap."""
        self._own()
        sums = self._sums
        sums[_ANSWERS] = sums.get(_ANSWERS, 0.0) + self._answers
        self._answers = 0.0
        for weight, key in self._new.values():
            if weight:
                told = key if key in sums or len(sums) < MOST_PARTS else (key[0], "others", None)
                sums[told] = sums.get(told, 0.0) + weight / self._per_token
        self._new.clear()
        return sums

    def began(self, parts: Iterable[tuple[str, Any]], tokens: int, per_token: float) -> None:
        """Take a request of this size, before which no size was known."""
        # Step 1: the conversation. The stream does not show a session's first prompt: where it did not, take the noted
        # one.
        prompts = self._settle().get(_PROMPTS)
        self.grew(parts, 0, per_token, told=True)
        if self.whole and self._settle().get(_PROMPTS) == prompts:
            self._add(_PROMPTS, self.prompted)
        # Step 2: the rest of a whole conversation's first request is what stands before the conversation. In another
        # one, such as a resumed one, the rest holds older messages too, and tells nothing.
        whole, self.whole = self.whole, False
        if not whole:
            return
        before = sum(self.fixed.values())
        rest = tokens - sum(self._settle().values())
        if not self._told:
            if rest > before:
                self.fixed["start", GROUPS["start"], None] = rest - before
        elif _LEAST <= rest / before <= _MOST:  # the CLI estimates these sizes; the API has counted them
            self._rate = rest / before
            self.fixed = {key: each * self._rate for key, each in self.fixed.items()}

    def asked(self, prompt: Any) -> None:
        """Note a prompt that is about to be sent, because the stream does not show a session's first prompt."""
        self.prompted = _weight(prompt)

    def grew(  # noqa: C901  (a call costs more than most blocks may)
        self, parts: Iterable[tuple[str, Any]], output: int, per_token: float, *, told: bool
    ) -> float:
        """Add what came since the last request; return the most tokens that it may take, without a `told` output.

        `output` is the API's count of the answer. It is `told` if it is no placeholder.
        """
        # This runs with each response of a live agent. So only lengths are taken, the SDK's commonest blocks are tried
        # first, and nothing is called for them: with a call each, weighing a response took 3.8 µs instead of 1.7.
        if per_token != self._per_token:
            self._settle()
            self._per_token = per_token
        answer = came = thought = 0.0
        new, classes = self._new, _USUAL
        calls: dict[Any, list[Any]] = {}
        found: list[tuple[Key, float]] | None = None
        for kind, content in parts:
            if content.__class__ is not list:
                found = [] if found is None else found
                answer += _weigh_other(kind, content, found)
                continue
            try:
                for block in content:
                    usual = classes[block.__class__]
                    if usual == "ToolResultBlock":
                        said, identity = block.content, block.tool_use_id
                        size = len(said) if said.__class__ is str and said.isascii() else _weight(said)
                        cell = calls[identity] if identity in calls else self._cell(_UNKNOWN)
                        cell[0] += size
                        came += size + _UNIT
                    elif usual == "ToolUseBlock":
                        given, name = block.input, block.name
                        calls[block.id] = new[name] if name in new else self._cell_of(name, given)
                        if given.__class__ is dict:
                            for value in given.values():
                                answer += len(value) if value.__class__ is str else text_length(value)
                    elif usual == "TextBlock" and kind != "user":
                        answer += len(block.text)
                    elif usual == "ThinkingBlock" and block.signature.__class__ is str and block.signature:
                        thought += SIGNED * len(block.signature)
                    elif kind == "user":
                        called = field_of(block, "tool_use_id")  # rows have dicts where messages have classes
                        size = _weight(block if called is None else field_of(block, "content"))
                        cell = self._cell(_PROMPTS) if called is None else calls.get(called) or self._cell(_UNKNOWN)
                        cell[0] += size
                        came += size + _UNIT
                    else:
                        answer += self._weigh_block(block, calls)
            except TypeError:  # a name, an id or a text that is a list: nothing more is told of this message
                continue
        if found:
            for key, weight in found:
                self._add(key, weight)
                came += weight + _UNIT
        if told:
            self._answers += output
            return came
        self._answers += max(output, answer / per_token + thought)
        return came + answer + thought

    def _weigh_block(self, block: Any, calls: dict[Any, list[Any]]) -> float:
        """Weigh a block of an answer of a rarer kind, or one that is a dict."""
        given = field_of(block, "input")
        if given is None:
            text = field_of(block, "text") or field_of(block, "thinking") or field_of(block, "signature")
            return text_length(text) if text else float(thought_chars(redacted_data(block)))
        calls[field_of(block, "id")] = self._cell_of(field_of(block, "name"), given)
        return text_length(given)

    def _add(self, key: Key, weight: float) -> None:
        if key[0] in FIXED:  # the CLI announces these again after a compaction: replace the part, do not add to it
            self._own()
            self.fixed[key] = weight / self._per_token
        else:
            self._cell(key)[0] += weight

    def _cell(self, key: Key) -> list[Any]:
        """Return the cell in which the new weights of a key are added up."""
        return self._named(key, key)

    def _cell_of(self, tool: Any, given: Any) -> list[Any]:
        """Return the cell of a tool's results; each file that is read has a cell of its own."""
        place = given.get(_READS[tool]) if tool in _READS and given.__class__ is dict else None
        path = place if place.__class__ is str else None
        key = ("results", tool if tool.__class__ is str else "a tool", path)
        return self._named(key if tool in _READS else tool, key)

    def _named(self, name: Any, key: Key) -> list[Any]:
        cell = self._new.get(name)
        if cell is None:
            if len(self._new) >= MOST_PARTS and key not in self._sums and key[1] != "others":
                return self._cell((key[0], "others", None))
            cell = self._new[name] = [0.0, key]
        return cell

    def snapshot(self, attachment: Any, per_token: float) -> None:
        """Divide the start into system prompt and tools, by the text in an attachment `prompt_snapshot`.

        Their sum does not change if it is known, because the API has counted it.
        """
        found: dict[Key, float] = {}
        _sum(found, "system", all_text(field_of(attachment, "systemPrompt")))
        tools = field_of(attachment, "tools")
        for tool in tools if isinstance(tools, list) else ():
            name = field_of(tool, "name")
            _sum(
                found,
                "mcp" if server_of(name) else "tools",
                all_text(field_of(tool, "schema") or tool),
                server_of(name),
            )
        if not tools:
            return  # a snapshot of a request that is still to come; the next snapshot, after its answer, has the tools
        self._own()
        told = {key: each for key, each in self.fixed.items() if key[0] in ("start", "system") or key in found}
        known, total = sum(told.values()), sum(found.values()) / per_token
        rate = known / total if total and _LEAST <= known / total <= _MOST else 1.0
        for key in told:
            del self.fixed[key]
        self.fixed |= {key: each * rate / per_token for key, each in found.items()}

    def reported(self, parts: Iterable[ContextPart]) -> Mapping[str, float]:
        """Take the CLI's report of the parts; return the change of each fixed group that was known before."""
        now = dict[Key, float]()
        told = dict[Key, float]()
        for group, name, tokens, path in parts:
            (now if group in FIXED else told)[group, name, path] = float(tokens)
        if not now:
            return {}
        self._own()
        before, self._told = self._told, groups_of(now)
        self.fixed = {key: each * self._rate for key, each in now.items()}
        if not any(self._settle().values()):  # a conversation from before this process
            self._sums = told
        return {each: tokens - before.get(each, 0.0) for each, tokens in self._told.items()} if before else {}

    def compacted(self) -> None:
        """Forget the conversation: a summary stands in its place."""
        self._new.clear()
        self._answers = 0.0
        self._sums, self._rest, self._lent = {}, "summary", False
        self.fixed = dict(self.fixed)

    def forgotten(self) -> None:
        """Forget the conversation, of which nothing is known."""
        self.compacted()
        self._rest, self.whole = "other", False

    def went_back(self, tokens: int | None) -> None:
        """Go back to an earlier, smaller context of this size: all parts of the conversation shrink by one factor."""
        sums = self._settle()
        total = sum(sums.values())
        left = max(0.0, (tokens or 0) - sum(self.fixed.values()))
        if total > left:
            self._sums = {key: each * left / total for key, each in sums.items()}


class _Names(dict[type, str]):
    """Names of blocks' classes: to look one up costs less than to read the class's `__name__`."""

    def __missing__(self, cls: type) -> str:
        if len(self) < MOST_PARTS:  # memory stays flat even if a program makes classes without end
            self[cls] = cls.__name__
        return cls.__name__


_USUAL: Final = _Names()
_ANSWERS: Final = ("answers", GROUPS["answers"], None)
_UNKNOWN: Final = ("results", "a tool of unknown name", None)
_PROMPTS: Final = ("prompts", GROUPS["prompts"], None)


def groups_of(parts: Mapping[Key, float]) -> dict[str, float]:
    """Sum up parts by group."""
    sums: dict[str, float] = {}
    for key, tokens in parts.items():
        sums[key[0]] = sums.get(key[0], 0.0) + tokens
    return sums


def server_of(tool: Any) -> str | None:
    """Return the MCP server in a tool's name; `None` for a tool that belongs to no server."""
    return tool.split("__")[1] if isinstance(tool, str) and tool.startswith("mcp__") and tool.count("__") > 1 else None


def _sum(found: dict[Key, float], group: str, text: str, name: str | None = None) -> None:
    key = (group, name or GROUPS[group], None)
    found[key] = found.get(key, 0.0) + len(text)


def _weigh_other(kind: str, content: Any, found: list[tuple[Key, float]]) -> float:
    """Weigh a part that is no list of blocks; return its weight if it belongs to the answer, else 0."""
    if kind == "attachment":
        _attached(content, found)
    elif kind == "user":
        found.append((_PROMPTS, _weight(content)))
    else:
        return _weight(content)
    return 0.0


def _weight(content: Any) -> float:
    cls = content.__class__
    if cls is str:
        return len(content) if content.isascii() else _OUTSIDE * len(content)
    if cls is Length:
        return float(content)
    if cls is list or cls is tuple:
        return sum([_weight(block) for block in content])
    if content is None:
        return 0.0
    thing = _THINGS.get(kind_of(content) or "")
    if thing is not None:
        return thing
    said = field_of(content, "text")
    return _weight(said) if isinstance(said, str) else float(text_length(content))


def _attached(content: Any, found: list[tuple[Key, float]]) -> None:
    """Weigh an attachment; each memory file is a part of its own."""
    kind = kind_of(content)
    group = _ATTACHED.get(kind or "", "attachments")
    files = {"instructions": field_of(content, "files"), "nested_memory": [content]}.get(kind or "")
    for each in files if isinstance(files, list) else ():
        path = field_of(each, "path")
        if isinstance(path, str):
            found.append((("memory", path, path), _weight(all_text(field_of(each, "content")))))
    if not files and kind != "prompt_snapshot":
        name = GROUPS[group] if group in FIXED else kind or GROUPS[group]
        found.append(((group, name, None), _weight(attachment_text(content))))


def parts_reported(answer: Mapping[str, Any]) -> tuple[ContextPart, ...]:
    """Read the parts in the answer to `get_context_usage`; empty where it has none. Raises nothing on any answer."""
    found: list[ContextPart] = []
    lists = {"memory": ("memoryFiles", "path"), "mcp": ("mcpTools", "serverName"), "agents": ("agents", "agentType")}
    for category in _rows(answer.get("categories")):
        group = _CATEGORIES.get(str(category.get("id")))
        if group is None or category.get("isDeferred") is True:
            continue
        tokens, listed = _tokens(category), lists.get(group)
        rows = _rows(answer.get(listed[0])) if listed is not None else []
        named: dict[str, int] = {}
        for row in rows:
            name = row.get(listed[1]) if listed is not None else None
            if isinstance(name, str) and row.get("isLoaded") is not False:
                named[name] = named.get(name, 0) + _tokens(row)
        for name, each in named.items():
            found.append(ContextPart(group, name, each, name if group == "memory" else None))
        if tokens > sum(named.values()):
            found.append(ContextPart(group, GROUPS[group], tokens - sum(named.values())))
    told = answer.get("messageBreakdown")
    if isinstance(told, Mapping):
        rows = _rows(told.get("toolCallsByType"))
        found += [ContextPart("results", str(row.get("name")), _tokens(row, "resultTokens")) for row in rows]
        answers = _tokens(told, "assistantMessageTokens") + sum(_tokens(row, "callTokens") for row in rows)
        found.append(ContextPart("answers", GROUPS["answers"], answers))
        found.append(ContextPart("prompts", GROUPS["prompts"], _tokens(told, "userMessageTokens")))
    return tuple(each for each in found if each.tokens)


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _tokens(row: Mapping[str, Any], name: str = "tokens") -> int:
    value = row.get(name)
    return int(value) if isinstance(value, int | float) and 0 < value < 1 << 40 else 0
