"""What is done about a context that fills: asks the policy, and carries out what comes back.

The policy decides, this module acts. It listens to the processor's events and asks the policy once a response, and in
those hooks after which the next request goes out: a prompt or a tool's result may have added a lot since.
What it can do alone it does at once: a log line, a note that the next hook hands to the agent, a final turn's gate. A
compaction and a restart need somebody who can send prompts: a session asks for its `next_step` at a safe point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import checkpoint

from mala_context._util.log import get_logger
from mala_context._util.text import percent
from mala_context.agent.guarded import Guarded, Step, Subagents
from mala_context.agent.hook_io import stop, text_in
from mala_context.agent.log_lines import size_before
from mala_context.agent.telemetry import Hub
from mala_context.agent.telemetry.records import FinalTurn, GuardAction, Observer, SilentChange
from mala_context.guard.overflow import ContextOverflow
from mala_context.guard.policy import LEAST_FREED, NOT_QUIET, Policy
from mala_context.guard.thresholds import Decisions, Thresholds
from mala_context.tracking.events import (
    Compaction,
    CompactionStatus,
    Refusal,
    Reset,
    Response,
    SessionStart,
    TurnEnd,
    UsageDelta,
    WindowReport,
)
from mala_context.tracking.fast_path import Quiet

if TYPE_CHECKING:
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.tracking.events import Event
    from mala_context.tracking.tracker import ContextSnapshot
    from mala_context.tracking.truth_alarm import Surprise

NEVER: Final = Thresholds(warn_at=None)
STOP_FOR_RESTART: Final = "The context is full; the work goes on in a fresh session."
"""`stopReason` of a turn that is cut for a restart."""

log = get_logger(__name__)


class Actions:
    """Acts on the main agent of one runtime.

    Args:
        policy: what decides.
        processor: whose events it listens to.
        finishing_tools: what a final turn may use.
        clock: seconds from any clock that never goes back.
        hub: tells observers; a new one by default.
        subagents: when to act in a subagent, as ratios of its own window; never by default.

    Attributes:
        final_turn: how the last final turn ended; `None` before one has.
        transcript: path of the main agent's transcript, where a hook has named it.
    """

    def __init__(
        self,
        policy: Policy,
        processor: MessageStreamProcessor,
        *,
        finishing_tools: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        hub: Hub | None = None,
        subagents: Thresholds = NEVER,
    ) -> None:
        self.policy = policy
        self.clock = clock
        self._hub = Hub() if hub is None else hub
        self.final_turn: FinalTurn | None = None
        self._cut_turn: Callable[[], bool] | None = None
        self._said_alone = self._steps_asked = False
        self.transcript: str | None = None
        self._processor = processor
        tracker, name = processor.tracker, processor.agent_name

        def guarded(policy: Policy, agent: str | None = None) -> Guarded:
            return Guarded(policy, self._hub, finishing_tools, name=agent or name, agent=agent)

        self._main = guarded(policy)
        self._subagents = Subagents(subagents, tracker, guarded)
        self._asked_about: object = None
        self._quiet = Quiet(NOT_QUIET)
        """Sizes of responses about which the policy need not be asked."""
        self._compacted_from: int | None = None
        self._believed = False
        """Whether the last compaction seems to have helped."""
        processor.observe(self.on_event, *_EVENTS, wants=self._quiet)
        processor.overflow_observers.append(self.on_overflow)
        processor.alarm_observers.append(self.on_alarm)

    # -- events ------------------------------------------------------------------------------------------------------

    def on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Take in one event of the processor."""
        self._quiet.sizes = NOT_QUIET  # it may be about another window, session or size
        handler = _EVENTS.get(event.__class__)
        if handler is not None:
            handler(self, event, snapshot)

    def on_overflow(self, overflow: ContextOverflow) -> None:
        """Take note that the context ran over; the processor has said so already."""
        self._quiet.sizes = NOT_QUIET
        self.policy.overflowed(overflow)
        self.happened(overflow)

    def on_alarm(self, surprise: Surprise) -> None:
        """Tell that a request was not what was projected; the processor has said so already."""
        agent, model, projected, tokens, cause, _, _ = surprise
        session_id = self._processor.tracker.session_id
        self.happened(SilentChange(session_id, agent, model, projected, tokens, cause))  # type: ignore[arg-type]  # one of them

    def happened(self, record: object) -> None:
        """Give a record to every observer."""
        self._hub.tell(record)

    @property
    def observers(self) -> list[Observer]:
        """Those who are told every record of `telemetry.records`; add to it at any time."""
        return self._hub.observers

    def acted(self, action: GuardAction, tool: str | None = None) -> None:
        """Tell the observers what was done."""
        self._main.acted(self._processor.tracker.session_id, action, tool)

    def _on_response(self, event: Response | UsageDelta, snapshot: ContextSnapshot | None) -> None:
        """Ask the policy once about each response of the main agent, as soon as its counts are known."""
        tracker = self._processor.tracker
        if event.agent is not None or snapshot is None or tracker.main.current == self._asked_about:
            return
        self._asked_about = tracker.main.current
        if self._compacted_from is not None:
            self._check_compaction(snapshot)
        self._ask(snapshot, new_prompt=tracker.responses_in_turn == 1)
        baseline = tracker.main.baseline
        if snapshot.responses == 1 and baseline is not None:
            self._carry_out(self.policy.born(baseline, snapshot.window))
            self._listen(snapshot)

    def _listen(self, snapshot: ContextSnapshot) -> None:
        """Take note of the sizes of responses about which the policy need not be asked."""
        every = self._compacted_from is not None or self._main.debug is not None
        self._quiet.sizes = NOT_QUIET if every else self.policy.quiet(snapshot)

    def _on_compaction(self, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        if event.agent is not None:
            return
        before, after = size_before(event, snapshot), None if snapshot is None else snapshot.tokens
        self._carry_out(self.policy.compacted(before, after, self.clock()))
        self._compacted_from, self._believed = before, False
        if before is not None and after is not None:
            self._believed = self._helped(before, after)
        if snapshot is not None:
            self._ask(snapshot)

    def _check_compaction(self, snapshot: ContextSnapshot) -> None:
        """Take back that the last compaction helped, where the first response after it says otherwise."""
        before, self._compacted_from, tokens = self._compacted_from, None, snapshot.tokens
        if before is None or tokens is None:
            return
        if tokens >= before:
            did = "changed nothing" if tokens == before else "grew the context"
            sizes = f"{before:,} tokens before it, {tokens:,} in the next request"
            log.warning("Compaction: it %s: %s", did, sizes)
        if self._believed and not self._helped(before, tokens):
            self._carry_out(self.policy.compacted(before, tokens, self.clock()))

    def _helped(self, before: int, after: int) -> bool:
        """Tell whether a compaction freed enough, and say so where it did not."""
        helped = after <= before * (1 - LEAST_FREED)
        if not helped and self.policy.thresholds.compact_at is not None:
            freed = percent(max(0, before - after) / before) if before else "nothing"
            log.info("Context: the compaction freed %s; none is asked for until the context has grown", freed)
        return helped

    def _on_status(self, event: CompactionStatus, snapshot: ContextSnapshot | None) -> None:
        if event.result == "failed":
            self.policy.action_failed()
            log.warning("Context: the compaction failed: %s", event.error or "no reason was given")

    def _on_news(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Ask the policy about the next response, whatever its size: a session or a window may be another one."""

    def _on_reset(self, event: Reset, snapshot: ContextSnapshot | None) -> None:
        self.policy.reset()
        self._main.forget()

    def _on_turn_end(self, event: TurnEnd, snapshot: ContextSnapshot | None) -> None:
        if self._main.final is not None:
            self.final_turn = self._main.ended() or self.final_turn
        if self.policy.looks_ahead:  # the answer may be longer than its first block
            self._ask(self._processor.tracker.snapshot())

    # -- the policy --------------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """Return what a session should do now that it is at a safe point, once; then say how it went.

        After a compaction the boundary says it, or `failed`; after a restart `restarted` or `failed` does.
        """
        self._steps_asked = True
        return self._ask(self._processor.tracker.snapshot(), safe=True)

    def restart_with(self, cut_turn: Callable[[], bool] | None) -> None:
        """Leave restarts to a session that does them by itself, until `None` ends that.

        `cut_turn` cuts its turn for a restart where that is safe, and returns whether it did.
        """
        self._cut_turn = cut_turn
        self.policy.attend(by_session=cut_turn is not None)

    @property
    def can_restart(self) -> bool:
        """Whether one more restart is allowed."""
        return self.policy.can_restart

    def failed(self) -> None:
        """Take note that nothing came of the last step."""
        self._quiet.sizes = NOT_QUIET
        self.policy.action_failed()

    def restarted(self) -> None:
        """Take note that the run goes on in a fresh session."""
        self._main.forget()
        self._quiet.sizes = NOT_QUIET
        self._carry_out(self.policy.restarted(self.clock()))

    def _ask(self, snapshot: ContextSnapshot, *, safe: bool = False, new_prompt: bool = False) -> Step | None:
        step = self._main.ask(snapshot, self.clock(), safe=safe, new_prompt=new_prompt)
        self._listen(snapshot)
        return step

    def _carry_out(self, decisions: Decisions) -> None:
        self._main.carry_out(decisions, self._processor.tracker.snapshot())

    # -- hooks -------------------------------------------------------------------------------------------------------

    async def tell(self, hook_input: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Hand the notes to the agent with its prompt (UserPromptSubmit)."""
        guarded = await self._look(hook_input)
        if guarded is None:
            return None
        if guarded.final is not None:
            guarded.final.new_prompt()
        if guarded is self._main and self.policy.compact_reached and not (self._steps_asked or self._said_alone):
            self._said_alone = True  # a hook cannot send a prompt, and no session has asked for a step
            log.warning("Context: compact_at is reached; only runtime.session() can send /compact, not your own client")
        return guarded.note("UserPromptSubmit", self._processor.tracker.session_id)

    async def after_tools(self, hook_input: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Cut the turn for a restart where that is due, else hand the notes to the agent (PostToolBatch)."""
        guarded = await self._look(hook_input)
        if guarded is None:
            return None
        if guarded.final is not None:
            guarded.final.batches += 1
        if guarded is self._main and self._cut_turn is not None and self.policy.restart_due and self._cut_turn():
            self.acted("turn_cut")
            return stop(STOP_FOR_RESTART)
        return guarded.note("PostToolBatch", self._processor.tracker.session_id)

    async def before_tool(self, hook_input: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer a tool call in a final turn (PreToolUse); everything is let through before one."""
        guarded = await self._look(hook_input)
        if guarded is None:
            return None
        tracker = self._processor.tracker
        agent = tracker.reducer.registry.find(text_in(hook_input, "agent_id"))
        return guarded.answer(hook_input, tracker.session_id, None if agent is None else agent.current)

    async def agent_stopped(self, hook_input: Mapping[str, Any]) -> None:
        """Tell how a subagent's final turn ended (SubagentStop)."""
        self._subagents.stopped(text_in(hook_input, "agent_id") or "")

    async def _look(self, hook_input: Mapping[str, Any]) -> Guarded | None:
        """Ask the policy about what came since the last response; return what guards the agent, `None` for nothing."""
        agent = text_in(hook_input, "agent_id")
        await checkpoint()  # so that the messages before this hook have been taken in
        guarded: Guarded | None = self._main
        if agent is None:
            self.transcript = text_in(hook_input, "transcript_path") or self.transcript
            self._ask(self._processor.tracker.snapshot())
        else:
            guarded = self._subagents.look(agent, self.clock())
        if guarded is not None and guarded.final is not None:
            guarded.final.heard = True  # by a note, or by what its tools are answered
        return guarded


_EVENTS: Final[dict[type, Callable[..., None]]] = {
    Response: Actions._on_response,
    UsageDelta: Actions._on_response,
    Compaction: Actions._on_compaction,
    CompactionStatus: Actions._on_status,
    Reset: Actions._on_reset,
    TurnEnd: Actions._on_turn_end,
    SessionStart: Actions._on_news,
    Refusal: Actions._on_news,
    WindowReport: Actions._on_news,
}
