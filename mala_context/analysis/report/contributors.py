"""What filled a context: tokens by tool, by file and by whatever else comes into it.

Tokens of a text are told from its characters by the table of `projection`, times the ratio that the session itself
taught for its maker. So they are estimates, right to a few percent in sum; answers are counted by the API, and the
beginning (system prompt, definitions of tools, the first prompt) is the first request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from mala_context.analysis.report.model import Contributor
from mala_context.tracking.events import Appended, Response
from mala_context.tracking.projection import Ratios
from mala_context.tracking.text_counts import Names, field_of, is_kept, pieces
from mala_context.tracking.token_costs import FAMILIES, family, fixed_tokens, text_tokens
from mala_context.transcripts.loss.collect import FILE_TOOLS

START: Final = "the beginning: system prompt, tools, first prompt"
ANSWERS: Final = "answers of the model"
PROMPTS: Final = "prompts"
SUMMARIES: Final = "summaries of compactions"
MOST_NAMES: Final = 20_000
"""Files and kinds that are told apart; the rest is one."""


class Contribution(NamedTuple):
    """One thing that came into the context."""

    kind: str
    """As in `Contributor`."""
    name: str
    """The tool, or what else it is."""
    path: str | None
    """The file that it is the text of."""
    text: float
    """Tokens of its text by the table."""
    fixed: float
    """Tokens besides."""
    key: str
    """What a ratio is learned by."""


class _Sum:
    __slots__ = ("count", "fixed", "largest", "text")

    def __init__(self) -> None:
        self.count = 0
        self.text = self.fixed = self.largest = 0.0


class Ledger:
    """Adds up what came into one agent's context."""

    def __init__(self) -> None:
        self._names: Names = {}
        self._paths: dict[str, str] = {}
        self._sums: dict[tuple[str, str, str], _Sum] = {}
        self._files: dict[tuple[str, str], _Sum] = {}

    def calls(self, event: Response) -> None:
        """Remember which tools a response calls, and with which file."""
        for block in event.content if isinstance(event.content, list | tuple) else ():
            identity, name = field_of(block, "id"), field_of(block, "name")
            if not isinstance(identity, str) or not isinstance(name, str):
                continue
            self._names[identity] = name
            read = FILE_TOOLS.get(name)
            given = field_of(block, "input")
            path = given.get(read[0]) if read is not None and read[1] == "read" and isinstance(given, Mapping) else None
            if isinstance(path, str) and path:
                self._paths[identity] = path
            if len(self._names) > MOST_NAMES:
                self._names.clear()
                self._paths.clear()

    def take(self, event: Appended, model: str | None) -> list[Contribution]:
        """Add what was appended, and return its parts with their tokens."""
        found = list(self._parts_of(event, model))
        for each in found:
            self.add(each)
        return found

    def add(self, added: Contribution) -> None:
        """Add one thing."""
        _count(self._sums, (added.kind, added.name, added.key), added)
        if added.path is not None:
            _count(self._files, (added.path, added.key), added)

    def plain(self, kind: str, name: str, tokens: int) -> None:
        """Add something whose tokens are known."""
        self.add(Contribution(kind, name, None, 0.0, float(tokens), ""))

    def _parts_of(self, event: Appended, model: str | None) -> Iterator[Contribution]:
        content = event.content
        if event.kind == "attachment":
            kind, path = field_of(content, "type"), field_of(content, "filename")
            is_file = kind == "file" and isinstance(path, str) and bool(path)
            name = f"attachment: {kind}" if isinstance(kind, str) else "attachment"
            yield from self._measured("attachment", name, path if is_file else None, "attachment", content, model)
            return
        words = ("summary", SUMMARIES) if event.kind == "summary" or is_kept(content) else ("prompts", PROMPTS)
        if isinstance(content, str):
            yield from self._measured(*words, None, "user", content, model)
        for block in content if isinstance(content, list | tuple) else ():
            identity = field_of(block, "tool_use_id")
            if isinstance(identity, str):
                name = self._names.get(identity, "a tool of unknown name")
                yield from self._measured("tool", name, self._paths.get(identity), "user", [block], model)
            else:
                yield from self._measured(*words, None, "user", [block], model)

    def _measured(
        self, kind: str, name: str, path: str | None, part: str, content: Any, model: str | None
    ) -> Iterator[Contribution]:
        found = pieces(part, content, self._names)
        if found:
            table = FAMILIES[family(model)]
            text = sum(text_tokens(piece, table) for piece in found)
            fixed = sum(fixed_tokens(piece, model) for piece in found)
            yield Contribution(kind, name, path, text, fixed, found[0].key)

    def contributors(self, ratios: Ratios) -> tuple[list[Contributor], list[Contributor]]:
        """Return all contributors and all files, the largest first, with their shares of everything."""
        all_of = _made(((kind, name, key, each) for (kind, name, key), each in self._sums.items()), ratios)
        files = _made((("file", path, key, each) for (path, key), each in self._files.items()), ratios)
        total = sum(each.tokens for each in all_of) or 1
        for each in (*all_of, *files):
            each.share = round(each.tokens / total, 4)
        return all_of, files


def tokens_of(added: Contribution, ratios: Ratios) -> int:
    """Return about how many tokens a thing takes."""
    return round(added.text * ratios.get(added.key) + added.fixed)


def _count(sums: dict[Any, _Sum], key: Any, added: Contribution) -> None:
    if key not in sums and len(sums) >= MOST_NAMES:
        key = (*("others" if part != added.kind else part for part in key[:-1]), "")
    each = sums.get(key)
    if each is None:
        each = sums[key] = _Sum()
    each.count += 1
    each.text += added.text
    each.fixed += added.fixed
    each.largest = max(each.largest, added.text + added.fixed)


def _made(sums: Iterator[tuple[str, str, str, _Sum]], ratios: Ratios) -> list[Contributor]:
    found: dict[tuple[str, str], Contributor] = {}
    for kind, name, key, each in sums:
        ratio = ratios.get(key) if key else 1.0
        entry = found.setdefault((kind, name), Contributor(name, kind, 0, 0, 0))
        entry.tokens += round(each.text * ratio + each.fixed)
        entry.count += each.count
        entry.largest = max(entry.largest, round(each.largest * (ratio if each.text else 1.0)))
    return sorted(found.values(), key=lambda each: (-each.tokens, each.name))
