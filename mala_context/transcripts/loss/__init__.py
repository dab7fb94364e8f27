"""What a compaction's summary does not mention, found without a model.

`measure(rows, summary)` collects from the dropped rows the files that were read and written, the commands that failed
and were not fixed, the instructions of the user, and the open todo items. Then it looks for each of them in the
summary. It compares words, not meaning: a file counts as named if its name is in the summary, a sentence if half of its
words are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from mala_context.transcripts.loss.collect import collect
from mala_context.transcripts.loss.mentions import SummaryText, distinct_suffixes
from mala_context.transcripts.loss.report import KINDS, Item, Loss, lost_words

__all__ = ["KINDS", "Item", "Loss", "lost_words", "measure"]


def measure(
    rows: Iterable[Any],
    summary: str,
    *,
    preserved: Collection[str] = (),
    sidechain: bool = False,
) -> Loss:
    """Compare the rows that a compaction dropped with its summary. Never raises on odd rows.

    `rows` are a transcript's rows as dicts, in order. If they hold several stretches between compactions, the last
    stretch that holds anything counts. `preserved` are ids of rows that stayed in the context word for word: nothing in
    them is lost. With `sidechain`, a subagent's rows are compared instead of the main agent's.
    """
    found = collect(rows, sidechain=sidechain)
    text = SummaryText(summary)
    suffixes = distinct_suffixes([item.text for item in found if item.kind in {"written", "read"}])
    kept = frozenset(preserved)
    items = []
    for kind, content, uuid in found:
        if uuid is not None and uuid in kept:
            named = True
        elif kind in {"written", "read"}:
            named = text.names_file(suffixes[content])
        elif kind == "command":
            named = text.names_command(content)
        else:
            named = text.names_sentence(content)
        items.append(Item(kind, content, named))
    return Loss(tuple(items))
