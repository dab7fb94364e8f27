"""The things that a summary lost: as a record, as words, and as a note to the agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from mala_context._util.text import blanked
from mala_context.transcripts.loss.mentions import SummaryText

Kind = Literal["instruction", "todo", "command", "written", "read"]

KINDS: Final[dict[Kind, str]] = {
    "instruction": "Instructions of the user",
    "todo": "Open todo items",
    "command": "Commands that failed and were not fixed",
    "written": "Files written",
    "read": "Files read",
}
"""Kinds of things in order of weight, with their headings."""

PIN_TOKENS: Final = 2_000
"""Most tokens of the note to the agent."""
_SHOWN: Final = 300


class Item(NamedTuple):
    """One thing that the dropped rows were about."""

    kind: Kind
    """What it is."""
    text: str
    """The instruction, item, command or path."""
    named: bool
    """Whether the summary names it."""

    def shown(self) -> str:
        """Return the text on one line, at most 300 characters."""
        line = " ".join(blanked(self.text[: 4 * _SHOWN]).split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


@dataclass(frozen=True, slots=True)
class Loss:
    """The items that a summary names, and those that it does not name."""

    items: tuple[Item, ...] = ()
    """Everything that was found, in order of weight."""

    @property
    def missing(self) -> tuple[Item, ...]:
        """Items that the summary does not name."""
        return tuple(item for item in self.items if not item.named)

    def and_earlier(self, items: Iterable[Item], summary: str) -> Loss:
        """Return this with items from before earlier compactions that are not among its own."""
        text, known = SummaryText(summary), {item.text for item in self.items}
        earlier = [item._replace(named=text.names_sentence(item.text)) for item in items if item.text not in known]
        return Loss(tuple(sorted((*self.items, *earlier), key=lambda item: list(KINDS).index(item.kind))))

    def count(self, kind: Kind) -> tuple[int, int]:
        """Return how many items of this kind are named, and how many there are."""
        chosen = [item.named for item in self.items if item.kind == kind]
        return sum(chosen), len(chosen)

    def words(self, text: str = "summary") -> str:
        """Return the words for the log line: `summary names 7 of 12 files, 2 of 3 instructions`.

        `text` is the name of the searched text.
        """
        return lost_words(self.as_dict(), text)

    def as_dict(self) -> dict[str, Any]:
        """Return counts and what is missing, kind by kind, for a manifest's row; texts are at most 300 characters."""
        result: dict[str, Any] = {}
        for kind in KINDS:
            named, total = self.count(kind)
            lost = [item.shown() for item in self.missing if item.kind == kind]
            result[kind] = {"total": total, "named": named, "missing": lost}
        return result

    def pin(self, archive: str | None = None, *, max_tokens: int = PIN_TOKENS) -> str:
        """Return the note for the agent after the compaction, within `max_tokens`; empty if nothing is missing.

        The most important items come first. If not all fit, the note says how many more there are. `archive` is the
        path of the full history. Tokens are estimated on the safe side.
        """
        missing = self.missing
        if not missing:
            return ""
        where = f"The full history is in {archive}" if archive else ""
        lines = ["The summary above does not mention the following, from before the compaction."]
        left_out = 0
        heading: Kind | None = None
        for item in missing:
            added = [f"- {item.shown()}"] if item.kind == heading else [f"{KINDS[item.kind]}:", f"- {item.shown()}"]
            if left_out or safe_tokens("\n".join([*lines, *added, _more(len(missing)), where])) > max_tokens:
                left_out += 1
                continue
            lines += added
            heading = item.kind
        lines += [_more(left_out)] if left_out else []
        text = "\n".join([*lines, where] if where else lines)
        return text if safe_tokens(text) <= max_tokens else ""


def lost_words(lost: Mapping[str, Any], text: str = "summary") -> str:
    """Return `Loss.words` from the dict of `as_dict`, for example out of a manifest; a missing count is 0."""

    def count(*kinds: Kind) -> tuple[int, int]:
        entries = [entry for kind in kinds if isinstance(entry := lost.get(kind), Mapping)]
        named, total = (sum(int(entry.get(key) or 0) for entry in entries) for key in ("named", "total"))
        return named, total

    files, instructions = count("written", "read"), count("instruction")
    return f"{text} names {files[0]} of {files[1]} files, {instructions[0]} of {instructions[1]} instructions"


def safe_tokens(text: str) -> int:
    """Return a count that most texts stay below: a token for three ASCII characters, and for each other one."""
    ascii_count = len(text.encode("ascii", "ignore"))
    return -(-ascii_count // 3) + len(text) - ascii_count


def _more(number: int) -> str:
    return f"… and {number} more."
