"""Observations into tables: how far off each formula was, over all and by model and version of the CLI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from mala_context._util.text import version_numbers
from mala_context.analysis.ground_truth import NAMES, TRUTHS, Findings, Observation

APART: Final = 0.25
"""A preTokens that differs from our estimate by more than this share was no measure of the context."""
_CLI: Final = (2, 1, 90)
BEST: Final[Mapping[str, str]] = {
    "pre_tokens": "cli_estimate",
    "context_command": "tokens",
    "next_prompt": "projected",
    "after_compaction": "projected",
}
"""The number of ours that predicts each truth; worst cases are listed by its error."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered values lies, between two values in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    if low + 1 >= len(ordered):
        return ordered[-1]
    return ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])


def spread(errors: Iterable[float]) -> dict[str, float | int | None]:
    """Return the figures of signed errors: median, p90, p99 and max of their size, and their mean as the bias."""
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


def apart(each: Observation) -> bool:
    """Tell whether the CLI's preTokens is no measure of the last request that the API counted (case core-33).

    It is the CLI's own estimate of its messages, and may be six times the size of the next request.
    """
    said = each.estimates[NAMES.index(BEST["pre_tokens"])]
    return each.truth == "pre_tokens" and said is not None and abs(said - each.tokens) > APART * each.tokens


def _cli_of(each: Observation) -> str | None:
    """Return the group of the row's CLI: from 2.1.90 on, CLIs keep more rows of one response."""
    version = version_numbers(each.version or "")
    return ("before 2.1.90" if version < _CLI else "2.1.90 and later") if len(version) == 3 else None


def _parent_of(each: Observation) -> str | None:
    return None if each.parent_missing is None else "missing" if each.parent_missing else "present"


BY: Final[Mapping[str, Callable[[Observation], str | None]]] = {
    "model": lambda each: each.model,
    "version": lambda each: each.version,
    "cli": _cli_of,
    "parent": _parent_of,
}
"""The groupings of the figures: a name, and a function that names an observation's group."""


def summarise(findings: Findings, *, worst: int = 10) -> dict[str, Any]:
    """Return the tables, ready for JSON."""
    unmeasured = [each for each in findings.observations if apart(each)]
    groups: dict[str, list[Observation]] = {truth: [] for truth in TRUTHS}
    for each in findings.observations:
        if not apart(each):
            groups[each.truth].append(each)
    truths = {truth: _table(group) for truth, group in groups.items()}
    there = [each for each in groups["pre_tokens"] if each.parent_missing is False]
    truths["pre_tokens"]["parent_there"] = _table(there)
    truths["pre_tokens"]["apart"] = {"n": len(unmeasured), "cases": _worst("pre_tokens", unmeasured, worst)}
    truths["next_prompt"]["left_out"] = findings.left_out
    return {
        "truths": truths,
        **{f"by_{name}": _by(groups, key) for name, key in BY.items()},
        "worst": {truth: _worst(truth, group, worst) for truth, group in groups.items()},
        "problems": [each.as_dict() for each in findings.problems],
    }


def errors(observations: Iterable[Observation], name: str) -> list[float]:
    """Return the signed errors of a formula as fractions of the truth, where it had an answer."""
    place = NAMES.index(name)
    return [(said - each.tokens) / each.tokens for each in observations if (said := each.estimates[place]) is not None]


def _table(observations: Sequence[Observation]) -> dict[str, Any]:
    return {"n": len(observations), "estimators": {name: spread(errors(observations, name)) for name in NAMES}}


def _by(groups: Mapping[str, list[Observation]], key: Callable[[Observation], str | None]) -> dict[str, Any]:
    """Return, by truth and group, the figures of the number that predicts the truth."""
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
