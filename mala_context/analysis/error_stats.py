"""Observations into tables: how far off each formula was, over all and by model and version of the CLI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from mala_context.analysis.ground_truth import NAMES, TRUTHS, Findings, Observation

BEST: Final[Mapping[str, str]] = {
    "pre_tokens": "cli_estimate",
    "context_command": "tokens",
    "next_prompt": "projected",
    "after_compaction": "projected",
}
"""Which of our numbers is meant for a truth; worst cases are listed by its error."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered values lies, between two values in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    if low + 1 >= len(ordered):
        return ordered[-1]
    return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])


def spread(errors: Iterable[float]) -> dict[str, float | int | None]:
    """Return what is said of signed errors: median, p90, p99 and max of their size, and their mean as the bias."""
    signed = list(errors)
    if not signed:
        return {"n": 0, "median": None, "p90": None, "p99": None, "max": None, "bias": None}
    sizes = sorted(map(abs, signed))
    shares = {"median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        "n": len(signed),
        **{name: round(percentile(sizes, share), 7) for name, share in shares.items()},
        "bias": round(sum(signed) / len(signed), 7),
    }


def summarise(findings: Findings, *, worst: int = 10) -> dict[str, Any]:
    """Return the tables as JSON has them."""
    groups: dict[str, list[Observation]] = {truth: [] for truth in TRUTHS}
    for each in findings.observations:
        groups[each.truth].append(each)
    truths = {truth: _table(group) for truth, group in groups.items()}
    there = [each for each in groups["pre_tokens"] if each.parent_missing is False]
    truths["pre_tokens"]["parent_there"] = _table(there)
    truths["next_prompt"]["left_out"] = findings.left_out
    return {
        "truths": truths,
        "by_model": _by(groups, lambda each: each.model),
        "by_version": _by(groups, lambda each: each.version),
        "worst": {truth: _worst(truth, group, worst) for truth, group in groups.items()},
        "problems": [each.as_dict() for each in findings.problems],
    }


def errors(observations: Iterable[Observation], name: str) -> list[float]:
    """Return the signed errors of a formula as fractions of the truth, where it had something to say."""
    place = NAMES.index(name)
    pairs = ((each.estimates[place], each.tokens) for each in observations)
    return [(said - true) / true for said, true in pairs if said is not None]


def _table(observations: Sequence[Observation]) -> dict[str, Any]:
    return {"n": len(observations), "estimators": {name: spread(errors(observations, name)) for name in NAMES}}


def _by(groups: Mapping[str, list[Observation]], key: Callable[[Observation], str | None]) -> dict[str, Any]:
    """Return, by truth and key, the figures of the number that is meant for the truth."""
    tables: dict[str, Any] = {}
    for truth, group in groups.items():
        found: dict[str, list[Observation]] = {}
        for each in group:
            found.setdefault(key(each) or "unknown", []).append(each)
        tables[truth] = {name: spread(errors(some, BEST[truth])) for name, some in sorted(found.items())}
    return tables


def _worst(truth: str, group: Sequence[Observation], count: int) -> list[dict[str, Any]]:
    place = NAMES.index(BEST[truth])

    def error(each: Observation) -> float:
        said = each.estimates[place]
        return 0.0 if said is None else (said - each.tokens) / each.tokens

    ordered = sorted(group, key=lambda each: (-abs(error(each)), each.file, each.row))
    return [
        {
            "file": each.file,
            "row": each.row,
            "truth": each.tokens,
            **dict(zip(NAMES, each.estimates, strict=True)),
            "error": round(error(each), 6),
            "model": each.model,
            "version": each.version,
            "parent_missing": each.parent_missing,
        }
        for each in ordered[:count]
    ]
