"""What another policy would have done on recorded sessions.

The work is taken as it was recorded: the same prompts, calls and results, whatever the policy does. A simulated context
runs beside the recorded one. It grows by the same tokens, and it shrinks by the actions of the policy:

* A capped tool result adds only its cap.
* A compaction that the policy asks for drops the context to the size that compactions of that session left.
* A restart drops it to the size at the session's beginning and a checkpoint.
* If the recording compacted, and the simulated context is smaller than the size that made the CLI compact, this
  compaction is avoided for now. The simulated context is compacted when it grows to that size.

The simulated context is kept as a difference: the recorded size less the tokens that the policy took. So a policy that
does nothing saves nothing, in tokens and in cost (see `cost`). With a size of its own, an empty policy was credited
1,198,930 tokens on one recording.

An avoided compaction keeps the context large, so a policy may save compactions and cost prompt tokens, or the reverse.
The figures say how the sizes would have differed. A recording cannot tell what the agent would have done differently. A
final turn is counted, and the recording goes on. Only main agents are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from mala_context.analysis.cost import Costs, PricedRequest
from mala_context.analysis.kept_by_reference import KeptByReference, RecordedConversation
from mala_context.analysis.replay.engine import Engine, Progress, read_all
from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.record import Stretch
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.config import ContextConfig
from mala_context.guard.policy import LEAST_FREED, Policy
from mala_context.guard.thresholds import Compact, Finish, Restart, Warn, thresholds_from
from mala_context.guard.tool_output import cap_tokens, estimate_tokens
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.cache import (
    HOUR,
    SHORT,
    SUMMARY,
    WRITE_HOUR,
    WRITE_SHORT,
    idle_after,
    pays_to_compact,
    seconds,
)
from mala_context.tracking.events import Appended, Compaction, Event, Reset, Response, Summary
from mala_context.tracking.text_counts import all_text
from mala_context.tracking.windows import DEFAULT_WINDOW

if TYPE_CHECKING:
    from mala_context.tracking.snapshot import ContextSnapshot

LEFT_OVER: Final = SUMMARY
"""Tokens that a compaction leaves on top of the session's fresh context, if the recording does not tell."""
SAME: Final = 0.02
"""A simulated context that is smaller by at most this share is compacted together with the recorded one."""
CHECKPOINT: Final = 2_000
"""Tokens of a checkpoint with which a restarted session begins."""
FRESH: Final = 40_000
"""Tokens of a fresh session, assumed if the recording begins in the middle of a session."""
RECORDED: Final = -1
"""Stands for the recorded size after a compaction, which is known only from the next request."""

POLICIES: Final[Mapping[str, ContextConfig]] = {
    "as recorded": ContextConfig(warn_at=None),
    **{f"compact_at: {at}": ContextConfig(warn_at=None, compact_at=at) for at in (0.3, 0.5, 0.7, 0.9)},
    **{f"restart_at: {at}": ContextConfig(warn_at=None, restart_at=at) for at in (0.5, 0.7, 0.9)},
    "compaction: reference": ContextConfig(warn_at=None, compaction="reference"),
    "compact_idle: true": ContextConfig(warn_at=None, compact_idle=True),
    "compact_idle and reference": ContextConfig(warn_at=None, compact_idle=True, compaction="reference"),
}
"""Policies that `simulate --best` ranks, by name."""

Place = tuple[int, int, float]
"""A row, counted from 1, the turn, and a clock for the policy."""


class Standing(NamedTuple):
    """The fields of a `ContextSnapshot` that a policy reads, for the simulated context."""

    session_id: str | None
    tokens: int | None
    projected: int | None
    window: int
    ratio: float | None
    estimator: str = "occupancy"
    auto_compact_threshold: int | None = None
    window_source: str = "config"
    """A simulated policy does not doubt its window, so it never waits for a confirmation of a guess."""
    exact: bool = True


@dataclass(slots=True)
class Outcome:
    """The actions of one policy on one recording; rows are counted from 1."""

    policy: str
    path: str
    session_id: str | None = None
    responses: int = 0
    warnings: list[int] = field(default_factory=list)
    compactions_asked: list[int] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    final_turns: list[int] = field(default_factory=list)
    capped: dict[str, list[int]] = field(default_factory=dict)
    """For each tool: the number of capped results, and the tokens that the caps removed."""
    recorded_compactions: int = 0
    simulated_compactions: int = 0
    """The CLI's own compactions, without those that the policy asked for."""
    recorded_first: int | None = None
    """Turns until the first recorded compaction; `None` if there was none."""
    simulated_first: int | None = None
    """Turns until the first simulated compaction, by the CLI or the policy; `None` if there was none."""
    recorded_tokens: int = 0
    """Prompt tokens of all responses as recorded."""
    simulated_tokens: int = 0
    idle_compactions: list[int] = field(default_factory=list)
    """Rows before which `compact_idle` would have compacted; the number of the last row may mean the end."""
    costs: Costs = field(default_factory=Costs)
    """What the requests cost, recorded and simulated."""
    by_reference: list[KeptByReference] = field(default_factory=list)
    """The content that `compaction: reference` would have kept at each recorded compaction."""

    @property
    def asked(self) -> int:
        """Compactions that the policy asked for, between turns and while idle."""
        return len(self.compactions_asked) + len(self.idle_compactions)

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome for JSON; the keys are stable."""
        return {
            "policy": self.policy,
            "session_id": self.session_id,
            "path": self.path,
            "responses": self.responses,
            "warnings": self.warnings,
            "compactions_asked": self.compactions_asked,
            "restarts": self.restarts,
            "final_turns": self.final_turns,
            "capped": {name: {"results": n, "tokens": tokens} for name, (n, tokens) in sorted(self.capped.items())},
            "compactions": {
                "recorded": self.recorded_compactions,
                "simulated": self.simulated_compactions,
                "avoided": self.recorded_compactions - self.simulated_compactions,
            },
            "turns_until_first": {"recorded": self.recorded_first, "simulated": self.simulated_first},
            "prompt_tokens": {"recorded": self.recorded_tokens, "simulated": self.simulated_tokens},
            "tokens_saved": self.recorded_tokens - self.simulated_tokens,
            "idle_compactions": self.idle_compactions,
            "cost": {"recorded": round(self.costs.recorded), "simulated": round(self.costs.simulated)},
            "by_reference": [each._asdict() for each in self.by_reference],
        }


class Course:
    """The simulated context under one policy: the recorded context less the tokens that the policy took from it."""

    def __init__(self, name: str, config: ContextConfig, path: str) -> None:
        self.outcome = Outcome(name, path)
        self._config = config
        self._policy = Policy(thresholds_from(config))
        self._recorded: int | None = None
        """Size of the recorded context; `None` before the first response of a conversation."""
        self._less = 0
        """Tokens by which the simulated context is smaller; below 0 after a recorded compaction was avoided."""
        self._pending = 0
        """Tokens that the policy took from text that no request has held yet."""
        self._limit: int | None = None
        """Size at which the CLI compacted by itself; `None` before it did."""
        self._fresh = 0
        """Size of a fresh session."""
        self._left: int | None = None
        """Tokens that the last recorded compaction left on top of a fresh session."""
        self._after: int | None = None
        """Between a recorded compaction and the next request: the simulated size, or `RECORDED`; otherwise `None`."""
        self._summary = 0
        """Tokens of messages that the last recorded compaction left."""
        self._swapped = 0
        """These tokens less the tokens that a compaction by reference keeps instead."""
        self._equal = True
        """Whether recorded and simulated context have been the same since the conversation began."""
        self.per_token = 4.0
        """Characters a token."""
        self._broken = False
        """Whether the policy changed the conversation since the last request, so that the cache has little of it."""
        self._recorded_window = DEFAULT_WINDOW
        self._model: str | None = None
        self.conversation = RecordedConversation(config.reference.budget) if config.compaction == "reference" else None

    @property
    def _size(self) -> int:
        return (self._recorded or 0) - self._less

    def appended(self, tokens: int, tool: str | None) -> None:
        """Take `tokens` of text for the next request; the result of a `tool` may be capped."""
        if tool is not None:
            left = None
            if self._recorded is not None:
                left = self._window(0) - self._config.guard.buffer_tokens - self._size
            cap = cap_tokens(self._config.guard.tool_output_tokens, left)
            if cap is not None and tokens > cap:
                counts = self.outcome.capped.setdefault(tool, [0, 0])
                counts[0] += 1
                counts[1] += tokens - cap
                self._pending += tokens - cap

    def _window(self, recorded: int) -> int:
        window = self._config.window
        if isinstance(window, int):
            return window
        self._recorded_window = recorded or self._recorded_window
        return self._recorded_window

    def response(self, request: PricedRequest, at: Place) -> None:
        """Take a response to a request, and let the policy decide."""
        # Step 1: move the simulated context by the change of the recorded one.
        outcome, tokens = self.outcome, request.tokens
        saved, self._pending = self._pending, 0
        self._equal = self._equal and not saved
        # The first request of a conversation. A resumed session's is the whole old context: taken for a fresh one, it
        # gave an empty policy 378 simulated compactions for 90 recorded ones.
        if self._recorded is None:
            self._fresh, self._less, self._equal = min(tokens, FRESH if request.base is None else tokens), 0, True
        # An ordinary request. No policy can make the context smaller than a fresh session.
        elif self._after is None:
            self._less = tokens - max(min(self._fresh, tokens), tokens - self._less - saved)
        # The first request after a recorded compaction, which tells how much of the context a compaction leaves.
        else:
            self._fresh = max(0, min(self._fresh, tokens - self._summary))
            self._left = tokens - self._fresh
            self._equal = self._after == RECORDED and not self._swapped
            self._less = self._swapped if self._after == RECORDED else tokens - self._after
            self._swapped = 0
        self._recorded, self._after, self._model = tokens, None, request.model
        outcome.responses += 1
        outcome.recorded_tokens += tokens
        # Step 2: make up for an avoided compaction once the context is as large as at the recorded one. One that would
        # free next to nothing is left out: it would repeat itself at every request.
        full = self._limit is not None and self._size >= self._limit and self._less < 0
        if full and self._fresh + self._leaves < (1 - LEAST_FREED) * self._size:
            self._compact(at)
            outcome.simulated_compactions += 1
        # Step 3: price the request before the policy decides: it was sent with the context as it was.
        outcome.simulated_tokens += self._size
        broken = (request.base or self._fresh) if self._broken else None
        outcome.costs.request(request, self._size, equal=self._equal, broken=broken)
        self._broken = False
        self._decide(self._window(request.window), at, safe=False)

    def prompt(self, window: int, at: Place, idle: float | None, ttl: float) -> None:
        """Take a new prompt after `idle` seconds, if entries of the cache live for `ttl` seconds.

        The policy may compact or restart before the prompt.
        """
        if self._recorded is None:
            return
        # An idle compaction comes first: it was made before the cache lapsed, so the actions below pay no lapsed price.
        if idle is not None and idle >= idle_after(ttl):
            self._idle(at, ttl)
        lapsed = idle is not None and idle >= ttl and not self._broken
        write = (WRITE_HOUR if ttl >= HOUR else WRITE_SHORT) if lapsed else None
        self._decide(self._window(window), at, safe=True, write=write)

    def _idle(self, at: Place, ttl: float) -> None:
        left = self._fresh + self._leaves
        if self._config.compact_idle and pays_to_compact(self._size, left, self._model, ttl):
            self.outcome.idle_compactions.append(at[0])
            self._compact(at)

    def finish(self, at: Place, ttl: float) -> None:
        """Take the recording's end: a client that stays connected compacts once more, and no request profits."""
        if self._recorded is not None:
            self._idle(at, ttl)

    def compacted(self, before: int | None, left: int | None, at: Place, *, manual: bool) -> None:
        """Take a recorded compaction of a context of `before` tokens, which left `left` tokens of messages.

        A `manual` one is the user's wish, so it is never avoided, and says nothing about where the CLI compacts.
        """
        # Step 1: count the recorded compaction.
        outcome = self.outcome
        outcome.recorded_compactions += 1
        if outcome.recorded_first is None:
            outcome.recorded_first = at[1]
        self._summary = left or LEFT_OVER
        recorded = self._recorded if self._recorded is not None else before
        kept = self._by_reference(at, before if before is not None else recorded)
        if kept is not None:
            outcome.by_reference.append(kept)
        if recorded is None:
            return
        if not manual:
            self._limit = recorded if before is None else before
        outcome.costs.recorded_compaction(recorded, self._model)
        # Step 2: avoid it if the simulated context is smaller.
        smaller, self._pending = self._less + self._pending, 0
        if not manual and smaller > SAME * (self._limit or 0):
            self._after, self._equal = self._size, False
            return
        # Step 3: otherwise compact the simulated context too. How much is left, the next request tells.
        outcome.simulated_compactions += 1
        outcome.costs.compacted(self._size, self._model, free=kept is not None)
        size = self._fresh + (self._summary if kept is None else kept.tokens)
        self._drop(size, at)
        self._after = RECORDED
        if kept is not None:
            self._swapped, self._broken = self._summary - kept.tokens, True

    def _by_reference(self, at: Place, size: int | None) -> KeptByReference | None:
        if self.conversation is None:
            return None
        return self.conversation.compact(at[0], size, self._window(0), self.per_token)

    def reset(self) -> None:
        """Take a `/clear`."""
        self._recorded = self._after = None
        self._less = self._pending = 0
        self._policy.reset()
        if self.conversation is not None:
            self.conversation.reset()

    @property
    def _leaves(self) -> int:
        return LEFT_OVER if self._left is None else min(self._left, LEFT_OVER)

    def _compact(self, at: Place, write: float | None = None) -> None:
        """Compact the simulated context; `write` is the price of a written token after a lapse of the cache."""
        kept = self._by_reference(at, self._size)
        self.outcome.costs.compacted(self._size, self._model, write=write, free=kept is not None)
        self._drop(self._fresh + (self._leaves if kept is None else kept.tokens), at)
        self._change()

    def _change(self) -> None:
        """Note that the policy changed the conversation."""
        self._equal, self._broken, self._swapped = False, True, 0
        if self._after is not None:
            self._after = self._size

    def _drop(self, size: int, at: Place) -> None:
        before = self._size
        self._less = (self._recorded or 0) - size
        if self.outcome.simulated_first is None:
            self.outcome.simulated_first = at[1]
        self._policy.compacted(before, size, at[2])

    def _decide(self, window: int, at: Place, *, safe: bool, write: float | None = None) -> None:
        size, outcome = self._size, self.outcome
        standing = cast("ContextSnapshot", Standing(outcome.session_id, size, size, window, size / window))
        for decision in self._policy.decide(standing, at[2], safe=safe, new_prompt=safe):
            if isinstance(decision, Warn):
                outcome.warnings.append(at[0])
            elif isinstance(decision, Finish):
                outcome.final_turns.append(at[0])
            elif isinstance(decision, Compact):
                outcome.compactions_asked.append(at[0])
                self._compact(at, write)
            elif isinstance(decision, Restart):
                outcome.restarts.append(at[0])
                outcome.costs.compacted(size, self._model, write=write)
                self._less = (self._recorded or 0) - self._fresh - CHECKPOINT
                self._change()
                self._policy.restarted(at[2])


class Simulator(RecordingReader):
    """Follows a recording and moves a course for each policy."""

    def __init__(self, recording: Recording, policies: Mapping[str, ContextConfig]) -> None:
        super().__init__(recording)
        self.courses = [Course(name, config, recording.path) for name, config in policies.items()]
        self._turns = 0
        self._last: Any = None
        self._compacted = False
        self._before: tuple[int, object, float] = (0, None, SHORT)
        """The tokens that the request before left in the cache, the time, and the seconds that they live."""
        self._tools: dict[str, str] = {}

    def run(self) -> list[Stretch]:
        """Read the whole recording and return its stretches; never raises."""
        stretches = super().run()
        for course in self.courses:
            course.finish((self.number, self._turns, float(self.number)), self.tracker.main.cache.ttl)
        return stretches

    def _row(self, row: Mapping[str, Any]) -> None:
        super()._row(row)
        for course in self.courses:
            if course.conversation is not None:
                course.conversation.row(row)

    def before(self, event: Event) -> None:
        """Note the state of the cache before a response changes it."""
        if event.__class__ is Response:
            cache = self.tracker.main.cache
            self._before = (cache.held or 0, cache.time, cache.ttl)

    def after(self, event: Event, state: AgentState | None) -> None:
        """Pass the main agent's events on to the courses."""
        if getattr(event, "agent", None) is not None:
            return
        main = self.tracker.main
        at = (self.number, self._turns, float(self.number))
        if isinstance(event, Response):
            self._names(event.content)
            # A response comes as several rows. `left` is another object when a request was counted, once for each; its
            # third value tells a request from a rewind, which changes `left` too.
            if state is main and state.left is not self._last:
                self._last = state.left
                if state.left is not None and state.left[2] is state.context:
                    self._answered(main, event.hour, at)
        elif isinstance(event, Appended) and event.kind == "user":
            self._user(event, main, at)
        elif isinstance(event, Compaction | Summary) and state is main:
            self._compacted = True
            boundary = event if isinstance(event, Compaction) else None
            before, left = (None, None) if boundary is None else (boundary.pre_tokens, boundary.post_tokens)
            for course in self.courses:
                course.compacted(before, left, at, manual=boundary is not None and boundary.trigger == "manual")
        elif isinstance(event, Reset) and state is main:
            for course in self.courses:
                course.reset()

    def _answered(self, main: AgentState, hour: int, at: Place) -> None:
        usage, tokens = main.context.usage, main.context.tokens
        if not tokens or usage is None:
            return
        held, time, ttl = self._before
        now, then = seconds(main.cache.time), seconds(time)
        cold = now is not None and then is not None and now - then >= ttl
        lost = max(0, held - usage.cache_read_tokens)
        # After a compaction the request has other text, so unread tokens were not lost unless the cache had lapsed.
        if self._compacted:
            lost, self._compacted = held if cold else 0, False
        window = self.tracker.window_of(main.model).tokens
        request = PricedRequest(tokens, usage, hour, lost, held, cold, window, main.model, main.baseline)
        for course in self.courses:
            course.outcome.session_id = self.tracker.session_id
            course.per_token = main.ratios.chars_per_token(main.model)
            course.response(request, at)

    def _names(self, content: Any) -> None:
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._tools[str(block.get("id"))] = str(block.get("name"))

    def _user(self, event: Appended, main: AgentState, at: Place) -> None:
        content = event.content
        results = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        results = [each for each in results if each.get("tool_use_id") is not None]
        for result in results:
            tool = self._tools.pop(str(result["tool_use_id"]), "tool")
            tokens = estimate_tokens(all_text(result.get("content")))
            for course in self.courses:
                course.appended(tokens, tool)
        if not results:
            self._turns += 1
            window = self.tracker.window_of(main.model).tokens
            now, then = seconds(event.time), seconds(main.cache.time)
            idle = None if now is None or then is None else now - then
            for course in self.courses:
                course.prompt(window, at, idle, main.cache.ttl)


def simulate_one(recording: Recording, policies: Mapping[str, ContextConfig]) -> list[Outcome]:
    """Return what each policy would have done with one recording; never raises."""
    simulator = Simulator(recording, policies)
    simulator.run()
    return [course.outcome for course in simulator.courses if course.outcome.responses]


def simulate_policies(
    paths: Iterable[str],
    policies: Mapping[str, ContextConfig],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> list[Outcome]:
    """Return what each policy would have done with each recording of a main agent, in the order of the files.

    Raises `RecordingNotFoundError` for a path that is not there.
    """
    reader = partial(simulate_one, policies=policies)
    found: list[Outcome] = read_all(find(paths, progress), reader, jobs=jobs, progress=progress, engine=engine)
    order = {name: place for place, name in enumerate(policies)}
    return sorted(found, key=lambda each: (each.path, order[each.policy]))
