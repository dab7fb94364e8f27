"""Fit the projection's coefficients to recorded transcripts, on one half of the files, and test them on the other.

Run `python tests/benchmarks/fit_text.py FOLDER`, where FOLDER has `*.jsonl` or `*.jsonl.gz` transcripts. It prints,
for each half and in percent of the next request: what chars/4 would say, what the table in
`mala_context.tracking.projection` says (with the ratios learned on the way), and what a table fitted on the other
half says; then the table fitted on all of it.

The fit is a least-absolute-deviations regression of relative errors, by iterated weighted least squares.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

from mala_context.tracking import projection
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.projection import FAMILIES, PLACEHOLDER, UNITS, Family, family
from mala_context.tracking.readers import read_row
from mala_context.tracking.tracker import ContextTracker

TEXT = tuple(Family._fields)
CONSTANTS = ("request", "result", "attachment", "tool_reference", "image")
ROUNDS = 25
RIDGE = 30.0


class Step(NamedTuple):
    """One request and the next of the same thread."""

    file: int
    family: str
    base: int
    answer: float
    """Output of the answer, where it is real."""
    features: list[float]
    next: int
    projected: int
    cli: int


def objects(path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a transcript; a line of two objects gives both."""
    decoder = json.JSONDecoder()
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as lines:
        for line in lines:
            text, start = line.decode("utf-8", "replace").strip(), 0
            while start < len(text):
                try:
                    row, start = decoder.raw_decode(text, start)
                except ValueError:
                    break
                if isinstance(row, dict):
                    yield row


def features(state: AgentState, parts: int) -> tuple[float, list[float]]:
    """Return the answer's real output and the features of what else came, in the order of TEXT and CONSTANTS."""
    context, interval = state.context, state.context.interval
    output = context.output or 0
    real = output > PLACEHOLDER or context.cut
    row = [0.0] * (len(TEXT) + len(CONSTANTS))
    row[len(TEXT)] = 1.0
    for (kind, _), found in zip(interval._parts[:parts], interval._measured, strict=False):
        if kind == "response" and real:
            continue
        for piece in found:
            chars, digits, punctuation, space, cjk, other = piece.counts
            plain = chars - digits - punctuation - space - cjk - other
            for index, number in enumerate((plain, digits, punctuation, space, cjk, other)):
                row[index] += number
            unit = piece.unit.partition(":")[0]
            if unit in CONSTANTS:
                row[len(TEXT) + CONSTANTS.index(unit)] += 1
    return (0.0 if context.cut or not real else output), row


def collect(paths: list[str]) -> tuple[list[Step], int]:
    """Return the steps in transcripts, and how many were left out since the request shrank by more than 3 %."""
    steps: list[Step] = []
    shrunk = file = 0
    rebase = AgentState._rebase

    def watch(state: AgentState, usage: Any, source: str) -> bool:
        nonlocal shrunk
        context, begun = state.context, state.begun
        base = context.tokens
        if context.accuracy == "exact" and base is not None:
            if usage.context_tokens < 0.97 * base:
                shrunk += 1
            else:
                output = context.output or 0
                projected = context.interval.projected(base, output, cut=context.cut, parts=begun)
                cli = context.interval.cli_estimate(base, output, parts=begun) - projection.CLI_CONSTANT
                answer, row = features(state, begun)
                kind = family(context.model)
                steps.append(Step(file, kind, base, answer, row, usage.context_tokens, projected, cli))
        return rebase(state, usage, source)

    with mock.patch.object(AgentState, "_rebase", watch):
        for file, path in enumerate(paths):  # noqa: B007 - `watch` reads it
            tracker = ContextTracker()
            for row in objects(path):
                for event in read_row(row):
                    tracker.advance(event)
    return steps, shrunk


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a small symmetric system by elimination."""
    size = len(right)
    rows = [[*matrix[index], right[index]] for index in range(size)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(rows[index][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for index in range(column + 1, size):
            factor = rows[index][column] / rows[column][column]
            if factor:
                rows[index] = [a - factor * b for a, b in zip(rows[index], rows[column], strict=True)]
    answer = [0.0] * size
    for index in range(size - 1, -1, -1):
        rest = sum(rows[index][other] * answer[other] for other in range(index + 1, size))
        answer[index] = (rows[index][size] - rest) / rows[index][index]
    return answer


def fit(steps: list[Step], start: list[float]) -> list[float]:
    """Fit one family; little-used features stay near where they started."""
    size = len(start)
    solution = list(start)
    for _ in range(ROUNDS):
        matrix = [[0.0] * size for _ in range(size)]
        right = [0.0] * size
        for step in steps:
            wanted = step.next - step.base - step.answer
            error = (wanted - sum(a * b for a, b in zip(solution, step.features, strict=True))) / step.next
            weight = 1.0 / (max(abs(error), 2e-5) * step.next * step.next)
            used = [index for index, value in enumerate(step.features) if value]
            for one in used:
                scaled = weight * step.features[one]
                right[one] += scaled * wanted
                for other in used:
                    matrix[one][other] += scaled * step.features[other]
        for index in range(size):
            pull = RIDGE * 1e-6 / max(abs(start[index]), 0.05) ** 2
            matrix[index][index] += pull
            right[index] += pull * start[index]
        solution = solve(matrix, right)
    return solution


def start_of(kind: str) -> list[float]:
    """Return the present table as a vector."""
    return [*FAMILIES[kind], *(float(UNITS[name]) for name in CONSTANTS)]


def figures(errors: list[float]) -> str:
    """Return median, 90th and 99th percentile in percent."""
    ranked = sorted(map(abs, errors))
    if not ranked:
        return "none"
    at = [100 * ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in (0.5, 0.9, 0.99)]
    return " / ".join(f"{value:.3f}" for value in at)


def main() -> None:
    """Print the figures of both halves and the table fitted on all files."""
    folder = sys.argv[1]
    paths = sorted(glob.glob(os.path.join(folder, "*.jsonl")) + glob.glob(os.path.join(folder, "*.jsonl.gz")))
    steps, shrunk = collect(paths)
    print(f"{len(paths)} files, {len(steps)} next requests; {shrunk} that shrank by more than 3 % left out")
    tables = [
        {kind: fit([s for s in steps if s.family == kind and s.file % 2 == half], start_of(kind)) for kind in FAMILIES}
        for half in (0, 1)
    ]
    for half in (0, 1):
        tested = [step for step in steps if step.file % 2 == half]
        other = tables[1 - half]
        fitted = [
            (s.base + s.answer + sum(a * b for a, b in zip(other[s.family], s.features, strict=True))) / s.next - 1
            for s in tested
        ]
        print(f"half {half}, n = {len(tested)} (median / p90 / p99 of the error, %)")
        print(f"  chars/4                        {figures([s.cli / s.next - 1 for s in tested])}")
        print(f"  the table, with learned ratios {figures([s.projected / s.next - 1 for s in tested])}")
        print(f"  fitted on the other half       {figures(fitted)}")
    print(f"all, the table with learned ratios {figures([s.projected / s.next - 1 for s in steps])}")
    for kind in FAMILIES:
        found = fit([s for s in steps if s.family == kind], start_of(kind))
        names = (*TEXT, *CONSTANTS)
        print(kind, {name: round(value, 3) for name, value in zip(names, found, strict=True)})


if __name__ == "__main__":
    main()
