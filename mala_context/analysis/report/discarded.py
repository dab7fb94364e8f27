"""What each compaction replaced, and what its summary does not mention, while a recording is read.

The rows of the conversation are held back to the compaction before the last one, since open todo items outlive a
compaction; that is what fits into a window, so memory does not grow with the recording. `loss.measure` compares them
with the summary, as `archives lost` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from mala_context.analysis.report.contributors import Came
from mala_context.analysis.report.model import Discarded
from mala_context.tracking.projection import Ratios
from mala_context.tracking.text_counts import all_text, field, kind_of
from mala_context.transcripts.compactions import BOUNDARY, is_summary
from mala_context.transcripts.loss import measure

_BETWEEN: Final = {"type": "system", "subtype": BOUNDARY}
_KINDS: Final = frozenset({"user", "assistant", "attachment"})
_SHOWN: Final = 3


class Stretch:
    """The conversation since the last compaction."""

    def __init__(self) -> None:
        self._before: list[Mapping[str, Any]] = []
        self._rows: list[Mapping[str, Any]] = []
        self._waiting: list[Mapping[str, Any]] | None = None
        self._preserved: Collection[str] = ()
        self._begin()

    def _begin(self) -> None:
        self._counts = Discarded()
        self._came: dict[tuple[str, str], list[float]] = {}

    def row(self, row: dict[str, Any]) -> None:
        """Hold a row of the main agent; the CLI's own copy of a tool's result is let go."""
        if kind_of(row) in _KINDS and not row.get("isSidechain") and not is_summary(row):
            row.pop("toolUseResult", None)
            self._rows.append(row)

    def response(self) -> None:
        """Count a response."""
        self._counts.responses += 1

    def came(self, came: Came) -> None:
        """Count something that came into the context."""
        if came.kind == "prompts":
            self._counts.prompts += 1
        elif came.kind == "tool":
            self._counts.results += 1
        sums = self._came.setdefault((came.name, came.key), [0.0, 0.0])
        sums[0] += came.text
        sums[1] += came.fixed

    def compacted(self, ratios: Ratios, preserved: Collection[str] = ()) -> Discarded:
        """Close the stretch at a compaction and return what it held; the summary may follow."""
        found, tokens = self._counts, dict[str, int]()
        for (name, key), (text, fixed) in self._came.items():
            tokens[name] = tokens.get(name, 0) + round(text * ratios.get(key) + fixed)
        found.largest = sorted(tokens.items(), key=lambda each: (-each[1], each[0]))[:_SHOWN]
        self._waiting = [*self._before, _BETWEEN, *self._rows] if self._before else self._rows
        self._before, self._rows = self._rows, []
        self._preserved = preserved
        self._begin()
        return found

    def summary(self, content: Any) -> dict[str, Any] | None:
        """Compare what the last compaction replaced with its summary; `None` where that was done."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        return measure(waiting, _text(content), preserved=self._preserved).as_dict()

    def thrown_away(self) -> None:
        """Forget everything: the conversation began anew."""
        self._before, self._rows, self._waiting = [], [], None
        self._begin()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list | tuple) else []
    parts = [field(block, "text") for block in blocks if field(block, "type") == "text"]
    return "\n".join(part for part in parts if isinstance(part, str)) or all_text(content)
