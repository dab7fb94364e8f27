"""Which formula was right: every estimate beside the known counts of a recording.

A recording holds four kinds of known counts, called truths here:

* `pre_tokens`: the CLI's count when it compacted. It is the CLI's own estimate, not the API's count, so this says how
  well we foresee a compaction;
* `context_command`: the size that `/context` printed, which it rounds to a hundred tokens;
* `next_prompt`: the next request of the same conversation, as the API counted it. Compactions and drops of more than
  3 % (context that was cleared without a row) are left out, and their number is reported;
* `after_compaction`: the first request after a compaction whose boundary states the size that remained.

Each observation is a truth with the answer of every formula just before it. A truth that several recordings repeat
counts once. A truth before which no size was known becomes a problem with its row, and is in no figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mala_context.analysis.error_stats import summarise
from mala_context.analysis.ground_truth import FORMULAS, Findings, Observation
from mala_context.analysis.replay.engine import Engine, Progress, read_all
from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.record import identify
from mala_context.analysis.replay.recording_reader import EventReader
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import ContextState
from mala_context.tracking.events import Compaction, Event, Response, WindowReport

DROP: Final = 0.97
"""A request below this share of the previous request is no growth of the same context."""


def as_streamed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a transcript's row as the live stream shows its message: outputs of 1, and thinking without its text."""
    message = row.get("message")
    if row.get("type") != "assistant" or not isinstance(message, dict):
        return row
    usage, content = message.get("usage"), message.get("content")
    if isinstance(usage, dict):
        calls = usage.get("iterations")
        usage = {**usage, "output_tokens": 1}
        if isinstance(calls, list):
            usage["iterations"] = [{**call, "output_tokens": 1} if isinstance(call, dict) else call for call in calls]
    if isinstance(content, list):
        content = [
            {**block, "thinking": ""} if isinstance(block, dict) and block.get("type") == "thinking" else block
            for block in content
        ]
    return {**row, "message": {**message, "usage": usage, "content": content}}


class Auditor(EventReader):
    """Follows a recording and writes down every truth."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.observations: list[Observation] = []
        self.left_out = 0
        self._formulas: tuple[int | None, ...] = ()
        self._last: dict[AgentState, tuple[ContextState, int, ContextState | None] | None] = {}

    def findings(self) -> Findings:
        """Return the findings; call it after `follow`."""
        return Findings(self.observations, self.problems.found, self.left_out)

    def _start_over(self) -> None:
        super()._start_over()
        self.tracker.reducer.count_text()  # `characters` is asked for each truth, so no text may go by uncounted

    def before(self, event: Event) -> None:
        """Ask the formulas that keep sums, before they take in the truth."""
        if event.__class__ is Response:
            state = self.tracker.state_of(event)
            if event.usage is None or event.message_id == state.current:
                return
        elif isinstance(event, Compaction):
            state = self.tracker.state_of(event)
        elif isinstance(event, WindowReport):
            state = self.tracker.main
        else:
            return
        self._formulas = tuple([state.estimate(name).tokens for name in FORMULAS])

    def after(self, event: Event, state: AgentState | None) -> None:
        """Write a truth down."""
        if event.__class__ is Response:
            # `left` is another object once a request was counted, and at no other time: so each request is noted once.
            if state is not None and state.left is not self._last.get(state):
                left = self._last[state] = state.left
                if left is not None and left[2] is state.context:
                    self._request(event, state, left[0], left[1])
        elif isinstance(event, Compaction):
            if event.pre_tokens and state is not None:
                self._boundary(event, event.pre_tokens, state)
        elif isinstance(event, WindowReport) and event.tokens:
            main = self.tracker.main
            context = main.context
            self.note("context_command", event.tokens, context, len(context.interval), main, None)

    def _boundary(self, event: Compaction, pre_tokens: int, state: AgentState) -> None:
        before = state.before
        if before is None:
            self.problem(self.number, "a compaction before which no size was known")
            return
        said = (before.projected, before.cli_estimate, before.tokens, *self._formulas)
        self._add("pre_tokens", pre_tokens, said, state, event.uuid, missing=self._missing)

    def _request(self, event: Response, state: AgentState, left: ContextState, parts: int) -> None:
        tokens = state.context.tokens
        if not tokens or left.tokens is None:
            return
        identity = event.message_id
        if left.source == "boundary":
            self.note("after_compaction", tokens, left, parts, state, identity)
        elif tokens < DROP * left.tokens:
            self.left_out += 1
        else:
            self.note("next_prompt", tokens, left, parts, state, identity)

    def note(
        self, truth: str, tokens: int, context: ContextState, parts: int, state: AgentState, identity: str | None
    ) -> None:
        """Write down the estimates of a context's size, and the true size."""
        base, output, interval = context.tokens, context.output or 0, context.interval
        if base is None:
            self.problem(self.number, "a /context output before which no size was known")
            return
        said = (context.projected(parts), interval.cli_estimate(base, output, parts=parts), base, *self._formulas)
        self._add(truth, tokens, said, state, identity)

    def _add(
        self,
        truth: str,
        tokens: int,
        said: Sequence[int | None],
        state: AgentState,
        identity: str | None,
        *,
        missing: bool | None = None,
    ) -> None:
        who = identity or f"{self.recording.path}\0{self.number}"
        self.observations.append(
            Observation(
                truth,
                tokens,
                tuple(said),
                self.recording.path,
                self.number,
                state.model,
                self.tracker.reducer.cli,
                missing,
                identify(f"{truth}\0{who}"),
            )
        )


class LiveAuditor(Auditor):
    """Follows a recording whose outputs and thinking it hides, as live streams do."""

    def _row(self, row: Mapping[str, Any]) -> None:
        super()._row(as_streamed(row))


def audit_one(recording: Recording, *, as_live: bool = False) -> list[Findings]:
    """Audit one recording; never raises."""
    auditor = (LiveAuditor if as_live else Auditor)(recording)
    auditor.follow()
    return [auditor.findings()]


def collect(
    paths: Iterable[str],
    *,
    as_live: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Findings:
    """Return the truths in the recordings of the paths, each once.

    With `as_live` the estimates are those of the live stream, which shows no outputs and no thinking. Raises
    `RecordingNotFoundError` for a path that is not there.
    """
    one = partial(audit_one, as_live=as_live)
    found = read_all(find(paths, progress), one, jobs=jobs, progress=progress, engine=engine)
    seen: set[int] = set()
    observations = []
    for each in sorted((each for part in found for each in part.observations), key=lambda each: (each.file, each.row)):
        if each.identity not in seen:
            seen.add(each.identity)
            observations.append(each)
    problems = sorted((each for part in found for each in part.problems), key=lambda each: (each.file, each.row or 0))
    return Findings(observations, problems, sum(part.left_out for part in found))


def audit(
    paths: Iterable[str],
    *,
    as_live: bool = False,
    jobs: int | None = None,
    worst: int = 10,
    progress: Progress | None = None,
) -> Mapping[str, Any]:
    """Return the tables of an audit, ready for JSON; see `docs/reference/replay-json.md`.

    Errors are fractions of the truth; `as_live` is as in `collect`. `worst` is how many cases are listed for each
    truth. Raises `RecordingNotFoundError` for a path that is not there.
    """
    return summarise(collect(paths, as_live=as_live, jobs=jobs, progress=progress), worst=worst)
