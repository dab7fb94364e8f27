"""Labels of metrics: words from fixed lists, and a bounded number of model names.

Each distinct set of labels is a time series of its own, for ever. A session id, a path or a tool's name must never be
one, and a value that somebody else chooses must come from a list: what is not on it becomes `other`. Model names are
chosen by whoever runs the agents, so the first `MOST_MODELS` that are seen keep their name and the rest share one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_MODELS: Final = 7
"""Models that get a label of their own."""
OTHER: Final = "other"
"""What stands for everything else."""
UNKNOWN: Final = "unknown"
"""What stands for what is not known."""
MAIN: Final = "main"
SUBAGENT: Final = "subagent"
COMPACTION_TRIGGERS: Final = frozenset({"auto", "manual"})
ARCHIVE_TRIGGERS: Final = frozenset({"auto", "manual", "boundary", "session_end", "subagent_end"})


class Models:
    """The names of models that metrics use.

    Args:
        names: models that have their label in any case, whoever comes first.
        most: how many have one, those included.
    """

    def __init__(self, names: Iterable[str] = (), *, most: int = MOST_MODELS) -> None:
        self._names = dict.fromkeys(names)
        self._most = max(most, len(self._names))

    def label(self, model: str | None) -> str:
        """Return the label for a model; `other` where all places are taken, and while it is not known."""
        if model in self._names:
            return model
        if model is None or len(self._names) >= self._most:
            return OTHER
        self._names[model] = None
        return model


def one_of(value: str | None, known: frozenset[str]) -> str:
    """Return a value that is on the list, else `other`; `unknown` for none."""
    if value is None:
        return UNKNOWN
    return value if value in known else OTHER


def kind_of(agent: str | None) -> str:
    """Return `main` or `subagent`."""
    return MAIN if agent is None else SUBAGENT
