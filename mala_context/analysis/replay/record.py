"""The results of a replay, as plain records: of one agent, of one stretch of a file, of one session.

A `Stretch` is the part of one session that one recording shows. It is made by the process that reads the file, travels
between processes, and knows nothing of other files. `sessions.join` makes `SessionRecord`s from all stretches. Their
`as_dict` is the JSON that `docs/reference/replay-json.md` describes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from mala_context._util.records import Record

Counts = tuple[int, int, int, int]
"""Tokens of a response: input, cache creation, cache read, output."""
PRIME: Final = 0x4754924175FFC559
"""The divisor of `identify`."""
MOST_PROBLEMS: Final = 100
"""Most entries for one recording; further problems are counted in the last entry."""


def identify(text: str) -> int:
    """Return a number of 63 bits for an id, which is the same in every process and on every machine (`hash` is not).

    It is the remainder of the id's bytes divided by a prime. That two of a million ids get the same number by chance
    happens once in ten million corpora.
    """
    return int.from_bytes(text.encode("utf-8", "surrogatepass"), "little") % PRIME


class Problem(Record):
    """A file that could not be read, or rows of it."""

    file: str
    """The recording's path."""
    row: int | None
    """The first such row; `None` if the problem is the file's."""
    rows: int
    """How many rows, one after the other; 0 if the problem is the file's."""
    problem: str
    """The problem in words."""

    def as_dict(self) -> dict[str, Any]:
        """Return the problem for JSON."""
        return {"file": self.file, "row": self.row, "rows": self.rows, "problem": self.problem}


class Problems:
    """The problems of one recording: neighbours with the same words are one, and there are at most `MOST_PROBLEMS`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.found: list[Problem] = []

    def add(self, row: int | None, words: str, rows: int = 1) -> None:
        """Take a problem of a row, or of the whole file if `row` is `None`."""
        rows = 0 if row is None else rows
        last = self.found[-1] if self.found else None
        if last is not None and row is not None and last.row is not None:
            if last.problem == words and last.row + last.rows == row:
                last.rows += rows
                return
            if len(self.found) >= MOST_PROBLEMS:
                last.rows += rows
                last.problem = "and others, the first of them here"
                return
        self.found.append(Problem(self._file, row, rows, words))


class Best(dict[str, Counts]):
    """The counts of responses by their ids; of several rows of a response, those with the largest output count."""

    def take(self, identity: str, counts: Counts) -> None:
        """Take the counts of a row."""
        known = self.get(identity)
        if known is None or counts[3] >= known[3]:
            self[identity] = counts

    def arrays(self) -> tuple[array[int], array[int], Counts]:
        """Return an `AgentRecord`'s `ids`, `counts` and `sums`; raises `OverflowError` for a count beyond 64 bits."""
        plain = array("q", chain.from_iterable(self.values()))
        one, two, three, four = map(sum, zip(*self.values(), strict=True)) if self else (0, 0, 0, 0)
        return array("q", map(identify, self)), plain, (one, two, three, four)


class AgentRecord(Record):
    """One agent's part in a stretch or in a session."""

    agent_id: str | None = None
    """`None` for the main agent."""
    model: str | None = None
    """Model of its last response."""
    responses: int = 0
    """Responses that it received."""
    tokens: int | None = None
    """Size of its last request; an estimate after a compaction; `None` if unknown."""
    peak_tokens: int | None = None
    """The largest request that the API counted."""
    compactions: int = 0
    """How often its conversation was replaced by a summary."""
    window: int | None = None
    """The window of its last model."""
    window_source: str | None = None
    """The source of the window."""
    window_doubtful: bool = False
    """Whether an event has contradicted this window."""
    accuracy: str = "unknown"
    """How well `tokens` is known: `exact`, `estimate`, `rough` or `unknown`."""
    ids: array[int] = array("q")
    """The ids of its responses as numbers of `identify`."""
    counts: array[int] = array("q")
    """Four counts for each of `ids`: input, cache creation, cache read and output tokens."""
    sums: Counts = (0, 0, 0, 0)
    """The sums of `counts`."""

    def as_dict(self) -> dict[str, Any]:
        """Return a subagent for JSON."""
        return {
            "agent_id": self.agent_id,
            "model": self.model,
            "responses": self.responses,
            "tokens": self.tokens,
            "accuracy": self.accuracy,
            "peak_tokens": self.peak_tokens,
            "compactions": self.compactions,
        }


class CompactionRecord(Record):
    """One compaction of the main agent."""

    row: int
    """Line of its boundary, from 1."""
    trigger: str | None
    """`auto` or `manual`; `None` if only a summary shows the compaction."""
    pre_tokens: int | None
    """The CLI's own estimate of the context before the compaction."""
    post_tokens: int | None
    """The CLI's chars/4 of the messages that remained."""
    cli_estimate: int | None
    """Our estimate of `pre_tokens`, just before the compaction."""
    projected: int | None
    """The projection of the next request, just before the compaction."""
    parent_missing: bool | None
    """Whether the row that the boundary goes on from is missing in the file; `None` if the boundary names no row."""
    uuid: str | None = None
    """The boundary's own id."""

    @property
    def error(self) -> float | None:
        """Signed error of `cli_estimate` as a share of `pre_tokens`."""
        if self.cli_estimate is None or not self.pre_tokens:
            return None
        return (self.cli_estimate - self.pre_tokens) / self.pre_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return the compaction for JSON."""
        error = self.error
        return {
            "row": self.row,
            "trigger": self.trigger,
            "pre_tokens": self.pre_tokens,
            "post_tokens": self.post_tokens,
            "cli_estimate": self.cli_estimate,
            "projected": self.projected,
            "error": None if error is None else round(error, 6),
            "parent_missing": self.parent_missing,
        }


class Stretch(Record):
    """The part of one session that one recording shows."""

    path: str
    """The recording."""
    session_id: str | None
    """Id of the session; `None` if no row names one."""
    main: AgentRecord
    """The main agent; without responses in a subagent's own file."""
    agents: list[AgentRecord]
    """Subagents with rows in this recording."""
    compactions: list[CompactionRecord]
    """Compactions of the main agent."""
    resets: int = 0
    """How often the conversation started again within the session."""
    overflows: int = 0
    """Requests of all agents that were refused because they were too long."""
    microcompactions: int = 0
    """How often the CLI cleared the main agent's old tool results by itself."""
    is_fork: bool = False
    """Whether rows say that they were copied from another session."""
    started_at: str | None = None
    """Earliest time of a row."""
    ended_at: str | None = None
    """Latest time of a row."""
    problems: Sequence[Problem] = ()
    """The parts that could not be read."""


class Totals(Record):
    """Tokens that were paid for; each response counts once."""

    input_tokens: int = 0
    """Uncached prompt tokens."""
    cache_creation_tokens: int = 0
    """Prompt tokens written to the cache."""
    cache_read_tokens: int = 0
    """Prompt tokens read from the cache."""
    output_tokens: int = 0
    """Answers."""

    def add(self, counts: Iterable[int]) -> None:
        """Add four counts in this order."""
        one, two, three, four = counts
        self.input_tokens += one
        self.cache_creation_tokens += two
        self.cache_read_tokens += three
        self.output_tokens += four


class SessionRecord(Record):
    """One session, from all recordings that have rows of it."""

    session_id: str | None
    """Its id; `None` for a recording in which no row names one."""
    path: str
    """The main transcript, or a subagent's if there is no main transcript."""
    main: AgentRecord
    """The main agent."""
    subagents: list[AgentRecord]
    """Every subagent, by id."""
    compactions: list[CompactionRecord]
    """Compactions of the main agent, in order."""
    resets: int
    """How often the conversation started again within the session."""
    overflows: int
    """Requests that were refused because they were too long."""
    started_at: str | None
    """Earliest time of a row."""
    ended_at: str | None
    """Latest time of a row."""
    problems: list[Problem]
    """The parts that could not be read."""
    totals: Totals
    """Tokens of all its agents, each response counted in one session only."""
    microcompactions: int = 0
    """How often the CLI cleared old tool results by itself, which is no compaction."""

    @property
    def peak_ratio(self) -> float | None:
        """The largest request as a share of the window."""
        peak, window = self.main.peak_tokens, self.main.window
        return None if peak is None or not window else peak / window

    def as_dict(self) -> dict[str, Any]:
        """Return the session for JSON; the keys are stable."""
        main, ratio = self.main, self.peak_ratio
        return {
            "session_id": self.session_id,
            "path": self.path,
            "model": main.model,
            "window": main.window,
            "window_source": main.window_source,
            "window_doubtful": main.window_doubtful,
            "responses": main.responses,
            "tokens": main.tokens,
            "accuracy": main.accuracy,
            "peak_tokens": main.peak_tokens,
            "peak_ratio": None if ratio is None else round(ratio, 6),
            "compactions": [each.as_dict() for each in self.compactions],
            "resets": self.resets,
            "overflows": self.overflows,
            "microcompactions": self.microcompactions,
            "subagents": [each.as_dict() for each in self.subagents],
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "problems": [each.as_dict() for each in self.problems],
        }
