"""Cross-check: fit the table of text on one half of the projects, and test it on the other.

A table that was fitted on the very sessions that it is tested on flatters itself, and sessions of one project are much
alike. Here each half's projects (recordings, where there are fewer than four projects) are projected with what the
other half alone would have taught: tokens by word, number, sign and so on and a few constants, for the two families of
models, fitted by least absolute relative error (iterated weighted least squares). Ratios are learned on the way,
session by session, as a live tracker does. Beside it stand chars/4 and the table that is shipped, on the same requests;
the ratio between them counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from mala_context.analysis.audit import Auditor
from mala_context.analysis.error_stats import spread
from mala_context.analysis.replay.engine import Engine, Progress, read_all
from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.rows import Line
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import ContextState
from mala_context.tracking.projection import UNSURE, Ratios, answer_cost
from mala_context.tracking.text_counts import Counts
from mala_context.tracking.token_costs import FAMILIES, family, fixed_tokens, text_tokens

COUNTS: Final = Counts._fields[1:-1]
"""Counts of a text that are fitted; random characters keep their price."""
CONSTANTS: Final = ("first result", "result", "attachment", "tool_use")
"""Constants that are fitted; others are rare and keep their shipped value."""
ROUNDS: Final = 30
RIDGE: Final = 1e-3
"""Pull towards `START`, so that a kind of character that a half lacks stays sensible."""
START: Final[tuple[float, ...]] = (
    *(0.5, 0.15, 1.0, 1.0, 0.5, 0.5, 1.0, 0.1, 1.0, 0.7, 1.3, 0.5),
    *(10.0, 10.0, 5.0, 38.0),
)
"""A price of each of `COUNTS`, then of the constants."""


class Sample(NamedTuple):
    """A request and what stood between it and the one before."""

    group: str
    """The project, or the session: what is tested was fitted without it."""
    thread: tuple[str, str]
    """Recording and agent: ratios are learned within it."""
    family: str
    """Of the model."""
    known: float
    """Tokens that need no fit: the request before, its output, units with a shipped constant."""
    features: dict[str, list[float]]
    """By key of the text, as `START`; constants stand under an empty key."""
    learns: bool
    """Whether ratios may be learned from it."""
    truth: int
    """The request's tokens."""
    quarter: int
    """What chars/4 says."""
    shipped: int
    """What the shipped table said."""
    thought: tuple[str, int, float] | None
    """Of an answer with thinking and its real output: model, length of the signatures, tokens left for the thinking."""


class Sampler(Auditor):
    """Takes a sample of each next request."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.samples: list[Sample] = []
        self._folder: str | None = None

    def line(self, line: Line) -> None:
        """Take the next line, and the project's folder from the first row that names one."""
        if self._folder is None:
            self._folder = next((row["cwd"] for row in line.rows if isinstance(row.get("cwd"), str)), None)
        super().line(line)

    def note(
        self, truth: str, tokens: int, context: ContextState, parts: int, state: AgentState, identity: str | None
    ) -> None:
        """Take the sample, and note the truth as an audit does."""
        before = len(self.observations)
        super().note(truth, tokens, context, parts, state, identity)
        if truth == "next_prompt" and len(self.observations) > before:
            said = self.observations[-1].estimates
            self._sample(tokens, context, parts, state, said[0] or 0, said[1] or 0)

    def _sample(
        self, tokens: int, context: ContextState, parts: int, state: AgentState, shipped: int, quarter: int
    ) -> None:
        base, output = context.tokens or 0, context.output or 0
        placeholder, real = answer_cost(output, cut=context.cut_at(parts), told=context.told)
        known = base + real
        size = len(COUNTS)
        constants = [0.0] * len(START)
        features: dict[str, list[float]] = {"": constants}
        learns = True
        signed, answer = 0, float(output)
        for kind, found in context.interval.measured(parts):
            if kind == "response" and not placeholder:
                signed += sum(piece.size[0] for piece in found if piece.unit == "thinking")
                answer -= sum(text_tokens(piece, FAMILIES[family(state.model)]) for piece in found)
                answer -= sum(fixed_tokens(piece, state.model) for piece in found if piece.unit != "thinking")
                continue
            for piece in found:
                row = features.setdefault(piece.key, [0.0] * len(START))
                for place, number in enumerate(piece.counts[1:-1]):
                    row[place] += number
                learns = learns and piece.unit not in UNSURE and piece.counts.teaches
                known += piece.counts.random
                name = piece.unit.partition(":")[0]
                if name in CONSTANTS:
                    constants[size + CONSTANTS.index(name)] += 1
                else:
                    known += round(fixed_tokens(piece, state.model))
        group = self._folder or self.tracker.session_id or self.recording.stem
        thread = (self.recording.path, state.agent_id or "")
        who = family(state.model)
        thought = (state.model or "", signed, answer) if signed and not context.cut_at(parts) else None
        self.samples.append(Sample(group, thread, who, known, features, learns, tokens, quarter, shipped, thought))


def sample(recording: Recording) -> list[Sample]:
    """Sample one recording; never raises."""
    sampler = Sampler(recording)
    sampler.follow()
    return sampler.samples


def held_out(
    paths: Iterable[str], *, jobs: int | None = None, progress: Progress | None = None, engine: Engine | None = None
) -> dict[str, Any]:
    """Return, for each half, what a table fitted on the other says of it, beside chars/4 and the shipped table.

    Raises `RecordingNotFoundError` for a path that is not there.
    """
    found: list[Sample] = read_all(find(paths, progress), sample, jobs=jobs, progress=progress, engine=engine)
    samples = sorted(found, key=lambda each: each.thread)
    report = {}
    halves = folded(samples, 2)
    for number, (tested, rest) in enumerate(zip(halves, reversed(halves), strict=True), 1):
        tables = {name: fit([each for each in rest if each.family == name]) for name in FAMILIES}
        report[f"half {number}, fitted on the other"] = {
            "fitted": spread(predict(tested, tables)),
            "projected": spread((each.shipped - each.truth) / each.truth for each in tested),
            "chars/4": spread((each.quarter - each.truth) / each.truth for each in tested),
        }
    return report


def folded(samples: Sequence[Sample], folds: int) -> list[list[Sample]]:
    """Deal the samples out by their projects; by their recordings where there are too few projects."""
    by_project = len({each.group for each in samples}) >= 2 * folds
    groups = [each.group if by_project else each.thread[0] for each in samples]
    place = {group: number % folds for number, group in enumerate(sorted(set(groups)))}
    dealt: list[list[Sample]] = [[] for _ in range(folds)]
    for each, group in zip(samples, groups, strict=True):
        dealt[place[group]].append(each)
    return dealt


def fit(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Return the coefficients, as `START`, that make the relative errors small; `START` where there is nothing."""
    rows = [(each, [sum(column) for column in zip(*each.features.values(), strict=True)]) for each in samples]
    rows = [row for row in rows if row[0].learns and abs(row[0].truth - row[0].known) < 0.2 * row[0].truth]
    table = START
    for _ in range(ROUNDS if rows else 0):
        table = _round(rows, table)
    return table


def _round(rows: Sequence[tuple[Sample, list[float]]], table: Sequence[float]) -> tuple[float, ...]:
    size = len(START)
    matrix = [
        [RIDGE * len(rows) / max(1e-9, START[i] ** 2) * (i == j) * 1e-6 for j in range(size)] for i in range(size)
    ]
    right = [matrix[i][i] * START[i] for i in range(size)]
    for each, row in rows:
        wanted = each.truth - each.known
        error = abs(sum(map(float.__mul__, row, table)) - wanted) / each.truth
        weight = 1.0 / (each.truth * each.truth * max(error, 2e-5))
        for i, value in enumerate(row):
            if value:
                scaled = weight * value
                right[i] += scaled * wanted
                line = matrix[i]
                for j, other in enumerate(row):
                    line[j] += scaled * other
    return tuple(_solve(matrix, right))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve by Gauss's elimination; the matrix is positive definite, so no pivot is zero."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            share = rows[j][i] / rows[i][i]
            if share:
                rows[j] = [b - share * a for a, b in zip(rows[i], rows[j], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][-1] - sum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found


def predict(samples: Iterable[Sample], tables: dict[str, tuple[float, ...]]) -> list[float]:
    """Return the signed relative errors of the tables, with ratios learned thread by thread."""
    errors = []
    thread, ratios = None, Ratios()
    for each in samples:
        if each.thread != thread:
            thread, ratios = each.thread, Ratios()
        table = tables[each.family]
        expected = {key: sum(map(float.__mul__, row, table)) for key, row in each.features.items() if key}
        constant = each.known + sum(map(float.__mul__, each.features[""], table))
        said = constant + sum(tokens * ratios.get(key) for key, tokens in expected.items())
        errors.append((round(said) - each.truth) / each.truth)
        if each.learns:
            ratios.learn(expected, each.truth - constant, 0)
    return errors
