"""What another policy would have done on recorded sessions.

The work is taken as it was recorded: the same prompts, calls and results, whatever the policy does. Beside the
recorded context runs a simulated one, which grows by what the recorded one grew by and shrinks by what the policy
does: a capped tool result adds only its cap, a compaction that the policy asks for drops it to what compactions of
that session left, a restart to what the session began with and a checkpoint. Where the recording compacted and the
simulated context is smaller than what made the CLI compact, that compaction is avoided, for now: the simulated one is
compacted when it grows to that size.

An avoided compaction keeps the context large, so a policy may save compactions and cost prompt tokens, or the other
way round. The figures say what would have been different in size; what the agent would have done differently, a
recording cannot tell. A final turn is counted and the recording goes on. Only main agents are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from mala_context.analysis.kept_by_reference import KeptByReference, RecordedConversation
from mala_context.analysis.replay.engine import Engine, Progress, read_all
from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.config import ContextConfig
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Compact, Finish, Restart, Warn, thresholds_from
from mala_context.guard.tool_output import cap_tokens, estimate_tokens
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.events import Appended, Compaction, Event, Reset, Response, Summary
from mala_context.tracking.text_counts import all_text
from mala_context.tracking.windows import DEFAULT_WINDOW

LEFT_OVER: Final = 6_000
"""Tokens that a compaction leaves besides what a session begins with, where the recording does not say."""
SAME: Final = 0.02
"""A simulated context that is smaller by less than this share is compacted where the recorded one was."""
CHECKPOINT: Final = 2_000
"""Tokens of a checkpoint with which a restarted session begins."""


class Standing(NamedTuple):
    """What a policy reads of the simulated context."""

    session_id: str | None
    tokens: int | None
    projected: int | None
    window: int
    ratio: float | None
    estimator: str = "occupancy"
    auto_compact_threshold: int | None = None
    window_source: str = "config"
    """A simulated policy takes its window as given."""


@dataclass(slots=True)
class Outcome:
    """What one policy would have done with one recording; rows are counted from 1."""

    policy: str
    path: str
    session_id: str | None = None
    responses: int = 0
    warnings: list[int] = field(default_factory=list)
    compactions_asked: list[int] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    final_turns: list[int] = field(default_factory=list)
    capped: dict[str, list[int]] = field(default_factory=dict)
    """By tool: how many results, and how many tokens less."""
    recorded_compactions: int = 0
    simulated_compactions: int = 0
    """The CLI's own, without those that the policy asked for."""
    recorded_first: int | None = None
    """Turns until the first compaction as recorded; `None` where there was none."""
    simulated_first: int | None = None
    """Turns until the first compaction, whoever asked for it."""
    recorded_tokens: int = 0
    """Prompt tokens of all responses as recorded."""
    simulated_tokens: int = 0
    by_reference: list[KeptByReference] = field(default_factory=list)
    """What `compaction: reference` would have kept at each recorded compaction."""

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
            "by_reference": [each._asdict() for each in self.by_reference],
        }


class Course:
    """The simulated context under one policy."""

    def __init__(self, name: str, config: ContextConfig, path: str) -> None:
        self.outcome = Outcome(name, path)
        self._config = config
        self._policy = Policy(thresholds_from(config))
        self._size: int | None = None
        self._recorded: int | None = None
        self._pending = 0
        """Tokens that the policy took from what the next request holds."""
        self._limit: int | None = None
        self._fresh: int | None = None
        self._left: tuple[int, int] | None = None
        """Messages' tokens that a recorded compaction left, and the simulated one in its place."""
        self._recorded_window = DEFAULT_WINDOW
        self.conversation = RecordedConversation(config.reference.budget) if config.compaction == "reference" else None

    def appended(self, tokens: int, tool: str | None) -> None:
        """Take something that the next request holds; a tool's result may be capped."""
        if tool is not None:
            left = None if self._size is None else self._window(0) - self._config.guard.buffer_tokens - self._size
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

    def response(self, tokens: int, growth: int | None, window: int, at: tuple[int, int, float]) -> None:
        """Take a response: its recorded size, and how much it grew over the one before (`None` for a first one)."""
        outcome = self.outcome
        saved, self._pending = self._pending, 0
        if self._left is not None and growth is None:  # what is recorded after a compaction shows what is always there
            recorded, left = self._left
            self._fresh = max(0, min(self._fresh or tokens, tokens - recorded))
            self._size, self._left = max(0, tokens - recorded) + left, None
        elif self._size is None or growth is None:
            self._size = tokens if self._size is None else self._size
            self._fresh = tokens if self._fresh is None else self._fresh
        else:
            self._size = max(self._fresh or 0, self._size + growth - saved)
        self._recorded = tokens
        outcome.responses += 1
        outcome.recorded_tokens += tokens
        if self._limit is not None and self._size >= self._limit:
            self._drop(outcome.by_reference[-1].tokens if outcome.by_reference else LEFT_OVER, at)
            outcome.simulated_compactions += 1
        outcome.simulated_tokens += self._size
        self._decide(self._window(window), at, safe=False)

    def prompt(self, window: int, at: tuple[int, int, float]) -> None:
        """Take a new prompt: before it, the policy may compact or restart."""
        if self._size is not None:
            self._decide(self._window(window), at, safe=True)

    def compacted(
        self,
        before: int | None,
        left: int | None,
        at: tuple[int, int, float],
        per_token: float,
        *,
        automatic: bool = True,
    ) -> None:
        """Take a recorded compaction: of how many tokens, and how many messages' tokens it left.

        `per_token` are characters a token. An automatic one shows where the CLI compacts; a manual one does not.
        """
        outcome, recorded_left = self.outcome, left or LEFT_OVER
        if self.conversation is not None:
            size = before if before is not None else self._recorded
            kept = self.conversation.compact(at[0], size, self._window(0), per_token)
            if kept is not None:
                outcome.by_reference.append(kept)
                left = kept.tokens
        outcome.recorded_compactions += 1
        if outcome.recorded_first is None:
            outcome.recorded_first = at[1]
        if self._size is None:
            return
        recorded = self._recorded if self._recorded is not None else self._size
        size = recorded if before is None else before
        self._limit = size if automatic else self._limit
        smaller, self._pending = recorded - self._size + self._pending, 0
        if smaller <= SAME * size:
            outcome.simulated_compactions += 1
            self._drop(left or LEFT_OVER, at)
            self._left = recorded_left, left or LEFT_OVER

    def reset(self) -> None:
        """Take a `/clear`."""
        self._size = self._left = None
        self._pending = 0
        self._policy.reset()
        if self.conversation is not None:
            self.conversation.reset()

    def _drop(self, left: int, at: tuple[int, int, float]) -> None:
        before, self._size = self._size, (self._fresh or 0) + left
        if self.outcome.simulated_first is None:
            self.outcome.simulated_first = at[1]
        self._policy.compacted(before, self._size, at[2])

    def _decide(self, window: int, at: tuple[int, int, float], *, safe: bool) -> None:
        size, outcome = self._size or 0, self.outcome
        standing = Standing(outcome.session_id, size, size, window, size / window)
        for decision in self._policy.decide(standing, at[2], safe=safe, new_prompt=safe):
            if isinstance(decision, Warn):
                outcome.warnings.append(at[0])
            elif isinstance(decision, Finish):
                outcome.final_turns.append(at[0])
            elif isinstance(decision, Compact):
                outcome.compactions_asked.append(at[0])
                self._drop(LEFT_OVER, at)
            elif isinstance(decision, Restart):
                outcome.restarts.append(at[0])
                self._size = (self._fresh or 0) + CHECKPOINT
                self._policy.restarted(at[2])


class Simulator(RecordingReader):
    """Follows a recording and moves a course for each policy."""

    def __init__(self, recording: Recording, policies: Mapping[str, ContextConfig]) -> None:
        super().__init__(recording)
        self.courses = [Course(name, config, recording.path) for name, config in policies.items()]
        self._turns = 0
        self._last: Any = None
        self._size: int | None = None
        self._tools: dict[str, str] = {}

    def _row(self, row: Mapping[str, Any]) -> None:
        super()._row(row)
        for course in self.courses:
            if course.conversation is not None:
                course.conversation.row(row)

    def after(self, event: Event, state: AgentState | None) -> None:
        """Tell the courses what the main agent's event means."""
        if getattr(event, "agent", None) is not None:
            return
        main = self.tracker.main
        at = (self.number, self._turns, float(self.number))
        if isinstance(event, Response):
            self._names(event.content)
            if state is main and state.left is not self._last:
                self._last = state.left
                if state.left is not None and state.left[2] is state.context:
                    self._answered(main, at)
        elif isinstance(event, Appended) and event.kind == "user":
            self._user(event.content, main, at)
        elif isinstance(event, Compaction | Summary) and state is main:
            before = event.pre_tokens if isinstance(event, Compaction) else None
            left = event.post_tokens if isinstance(event, Compaction) else None
            self._size = None
            per_token, automatic = main.ratios.chars_per_token(main.model), getattr(event, "trigger", None) != "manual"
            for course in self.courses:
                course.compacted(before, left, at, per_token, automatic=automatic)
        elif isinstance(event, Reset) and state is main:
            self._size = None
            for course in self.courses:
                course.reset()

    def _answered(self, main: AgentState, at: tuple[int, int, float]) -> None:
        tokens = main.context.tokens
        if not tokens:
            return
        growth = None if self._size is None else tokens - self._size
        self._size = tokens
        window = self.tracker.window_of(main.model).tokens
        for course in self.courses:
            course.outcome.session_id = self.tracker.session_id
            course.response(tokens, growth, window, at)

    def _names(self, content: Any) -> None:
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._tools[str(block.get("id"))] = str(block.get("name"))

    def _user(self, content: Any, main: AgentState, at: tuple[int, int, float]) -> None:
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
            for course in self.courses:
                course.prompt(window, at)


def simulate_one(recording: Recording, policies: Mapping[str, ContextConfig]) -> list[Outcome]:
    """Say what each policy would have done with one recording; never raises."""
    simulator = Simulator(recording, policies)
    simulator.run()
    return [course.outcome for course in simulator.courses if course.outcome.responses]


def simulate(
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
