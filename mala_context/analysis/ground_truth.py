"""What an audit writes down: a truth of a recording, and what every formula said of it just before."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mala_context.analysis.replay.record import Problem

TRUTHS: Final = ("pre_tokens", "context_command", "next_prompt", "after_compaction")
"""Kinds of truth."""
FORMULAS: Final = ("cumulative", "max_cache_read", "total_tokens", "characters")
"""Estimators of the tracker that are audited besides its three numbers."""
NAMES: Final = ("projected", "cli_estimate", "tokens", *FORMULAS)
"""Everything that is held against a truth."""


class Observation(NamedTuple):
    """One truth and what was said of it."""

    truth: str
    """One of `TRUTHS`."""
    tokens: int
    """The true number."""
    estimates: tuple[int | None, ...]
    """By `NAMES`; `None` where a formula had nothing to say."""
    file: str
    """The recording."""
    row: int
    """Line of the truth, from 1."""
    model: str | None
    """Model of the agent."""
    version: str | None
    """CLI that wrote the row."""
    parent_missing: bool | None
    """Of a boundary: whether the row that it goes on from is not in the file."""
    identity: int
    """The same for copies of one truth."""

    def as_row(self) -> dict[str, Any]:
        """Return the observation as plain values, an estimate a column; the true number is `true_tokens` there."""
        row = self._asdict()
        row["true_tokens"] = row.pop("tokens")
        del row["estimates"], row["identity"]
        return {**row, **dict(zip(NAMES, self.estimates, strict=True))}


class Findings(NamedTuple):
    """What one recording gives to an audit."""

    observations: list[Observation]
    """Its truths."""
    problems: list[Problem]
    """What could not be read, and truths before which nothing was known."""
    left_out: int
    """Next requests that were no growth of the same context."""
