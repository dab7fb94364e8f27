"""The records of an audit: a token count that a recording tells, and the estimate of each formula just before it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mala_context.analysis.replay.record import Problem

TRUTHS: Final = ("pre_tokens", "context_command", "next_prompt", "after_compaction")
"""Kinds of known counts."""
FORMULAS: Final = ("cumulative", "max_cache_read", "total_tokens", "characters")
"""Estimators of the tracker that are audited besides its three numbers."""
NAMES: Final = ("projected", "cli_estimate", "tokens", *FORMULAS)
"""All estimates that are compared with a truth."""


class Observation(NamedTuple):
    """One known count and the estimates of it."""

    truth: str
    """One of `TRUTHS`."""
    tokens: int
    """The true number."""
    estimates: tuple[int | None, ...]
    """In the order of `NAMES`; `None` where a formula had no answer."""
    file: str
    """The recording."""
    row: int
    """Line of the truth, from 1."""
    model: str | None
    """Model of the agent."""
    version: str | None
    """CLI that wrote the row."""
    parent_missing: bool | None
    """For a boundary: whether the file lacks the row that the boundary names as its parent."""
    identity: int
    """The same for copies of one truth."""

    def as_row(self) -> dict[str, Any]:
        """Return the observation as plain values, an estimate a column; the true number is `true_tokens` there."""
        row = self._asdict()
        row["true_tokens"] = row.pop("tokens")
        del row["estimates"], row["identity"]
        return {**row, **dict(zip(NAMES, self.estimates, strict=True))}


class Findings(NamedTuple):
    """The result of an audit of one recording."""

    observations: list[Observation]
    """Its truths."""
    problems: list[Problem]
    """Rows that could not be read, and truths before which no size was known."""
    left_out: int
    """How many next requests were left out because they did not grow the same context."""
