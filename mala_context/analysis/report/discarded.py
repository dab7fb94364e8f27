"""Find what each compaction replaced, and what its summary does not mention, while a recording is read.

The rows since the compaction before the last one are held, because open todo items outlive a compaction. They fit into
two windows, so memory does not grow with the recording. `loss.measure` compares them with the summary, as `archives
lost` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from mala_context.analysis.report.contributors import Contribution, Ledger
from mala_context.analysis.report.model import Discarded, NamedTokens
from mala_context.tracking.projection import Ratios
from mala_context.tracking.text_counts import all_text, kind_of
from mala_context.transcripts.compactions import BOUNDARY, KEPT_MARKS, is_summary
from mala_context.transcripts.json_rows import content_text
from mala_context.transcripts.loss import measure

_BETWEEN: Final = {"type": "system", "subtype": BOUNDARY}
_KINDS: Final = frozenset({"user", "assistant", "attachment"})
_SHOWN: Final = 3


class SinceCompaction:
    """What came into the context since the last compaction, or since the start."""

    def __init__(self) -> None:
        self._before: list[Mapping[str, Any]] = []
        self._rows: list[Mapping[str, Any]] = []
        self._waiting: list[Mapping[str, Any]] | None = None
        self._preserved: Collection[str] = ()
        self._kept: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._counts = Discarded()
        self._ledger = Ledger()

    def row(self, row: dict[str, Any]) -> None:
        """Hold a row of the main agent, without the CLI's own copy of a tool's result."""
        if kind_of(row) in _KINDS and not row.get("isSidechain") and not is_summary(row):
            row.pop("toolUseResult", None)
            self._rows.append(row)

    def response(self) -> None:
        """Count a response."""
        self._counts.responses += 1

    def add(self, added: Contribution) -> None:
        """Count something that came into the context."""
        if added.kind == "prompts":
            self._counts.prompts += 1
        elif added.kind == "tool":
            self._counts.results += 1
        self._ledger.add(added)

    def compacted(self, ratios: Ratios, preserved: Collection[str] = ()) -> Discarded:
        """Return what a compaction replaced, and start over; the summary may follow."""
        found = self._counts
        contributors, _ = self._ledger.contributors(ratios)
        found.largest = [NamedTokens(each.name, each.tokens) for each in contributors[:_SHOWN]]
        self._waiting = [*self._before, _BETWEEN, *self._rows] if self._before else self._rows
        self._before, self._rows = self._rows, []
        self._preserved, self._kept = preserved, []
        self._begin()
        return found

    def summary(self, content: Any) -> dict[str, Any] | None:
        """Compare what the last compaction replaced with its summary; `None` if it was compared already."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return None
        return measure(waiting, content_text(content) or all_text(content), preserved=self._preserved).as_dict()

    def kept(self, text: str) -> dict[str, Any] | None:
        """Take the text of a row that a compaction by reference kept; the last one tells what was not kept."""
        self._kept.append(text)
        return self.summary("\n".join(self._kept)) if text.startswith(KEPT_MARKS[1]) else None

    def thrown_away(self) -> None:
        """Forget everything: a new conversation begins."""
        self._before, self._rows, self._waiting = [], [], None
        self._begin()
