"""Act on a context that fills: ask the policy, and carry out its decisions.

The policy decides, this module acts. It listens to the processor's events. It asks the policy once for each response,
and in each hook after which the next request is sent, because a prompt or a tool's result may have added a lot. Some
actions are done at once: a log line, a note that the next hook gives to the agent, the gate of a final turn. A
compaction and a restart need a session that can send prompts: it asks for its `next_step` at a safe point.
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
    """Acts on the agents of one runtime.

    Args:
        policy: decides.
        processor: the processor whose events are heard.
        finishing_tools: the tools that a final turn may use.
        clock: seconds from any clock that never goes back.
        hub: passes records to observers; a new one by default.
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
        """Sizes of responses at which the policy would decide nothing, so that they need not come here."""
        self._compacted_from: int | None = None
        self._believed = False
        """Whether the estimate after the last compaction says that it helped."""
        processor.observe(self.on_event, *_EVENTS, wants=self._quiet)
        processor.overflow_observers.append(self.on_overflow)
        processor.alarm_observers.append(self.on_alarm)

    # -- events ------------------------------------------------------------------------------------------------------

    def on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Handle one event of the processor."""
        self._quiet.sizes = NOT_QUIET  # the window, the session or the size may have changed
        handler = _EVENTS.get(event.__class__)
        if handler is not None:
            handler(self, event, snapshot)

    def on_overflow(self, overflow: ContextOverflow) -> None:
        """Handle an overflow; the processor has logged it already."""
        self._quiet.sizes = NOT_QUIET
        self.policy.overflowed(overflow)
        self.happened(overflow)

    def on_alarm(self, surprise: Surprise) -> None:
        """Report a request that was not what was projected; the processor has logged it already."""
        agent, model, projected, tokens, cause, _, _ = surprise
        session_id = self._processor.tracker.session_id
        self.happened(SilentChange(session_id, agent, model, projected, tokens, cause))  # type: ignore[arg-type]  # one of them

    def happened(self, record: object) -> None:
        """Pass a record to every observer."""
        self._hub.tell(record)

    @property
    def observers(self) -> list[Observer]:
        """The callables that get every record of `telemetry.records`; add to the list at any time."""
        return self._hub.observers

    def acted(self, action: GuardAction, tool: str | None = None) -> None:
        """Report an action to the observers."""
        self._main.acted(self._processor.tracker.session_id, action, tool)

    def _on_response(self, event: Response | UsageDelta, snapshot: ContextSnapshot | None) -> None:
        """Ask the policy once about each response of the main agent, as soon as its counts are known."""
        tracker = self._processor.tracker
        if event.agent is not None or snapshot is None or tracker.main.current == self._asked_about:
            return
        # A response comes in several messages, and its counts may come late: the policy is asked once for each
        # response.
        self._asked_about = tracker.main.current
        if self._compacted_from is not None:
            self._check_compaction(snapshot)
        self._ask(snapshot, new_prompt=tracker.responses_in_turn == 1)
        baseline = tracker.main.baseline
        if snapshot.responses == 1 and baseline is not None:
            self._carry_out(self.policy.born(baseline, snapshot.window))
            self._listen(snapshot)

    def _listen(self, snapshot: ContextSnapshot) -> None:
        """Update the sizes of responses about which the policy need not be asked."""
        every = self._compacted_from is not None or self._main.debug is not None
        self._quiet.sizes = NOT_QUIET if every else self.policy.quiet(snapshot)

    def _on_compaction(self, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        if event.agent is not None:
            return
        # The size after is an estimate here. The policy gets it now, so that it does not ask for another `/compact`;
        # `_check_compaction` corrects it with the first response.
        before, after = size_before(event, snapshot), None if snapshot is None else snapshot.tokens
        self._carry_out(self.policy.compacted(before, after, self.clock()))
        self._compacted_from, self._believed = before, False
        if before is not None and after is not None:
            self._believed = self._helped(before, after)
        if snapshot is not None:
            self._ask(snapshot)

    def _check_compaction(self, snapshot: ContextSnapshot) -> None:
        """Compare the first response after a compaction: the estimate may have said that it helped when it did not."""
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
        """Tell whether a compaction freed enough, and log it if it did not."""
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
        """Do nothing more than `on_event`: the next response reaches the policy, whatever its size."""

    def _on_reset(self, event: Reset, snapshot: ContextSnapshot | None) -> None:
        self.policy.reset()
        self._main.forget()

    def _on_turn_end(self, event: TurnEnd, snapshot: ContextSnapshot | None) -> None:
        if self._main.final is not None:
            self.final_turn = self._main.ended() or self.final_turn
        if self.policy.looks_ahead:  # asked at the first block of the answer, which may have grown since
            self._ask(self._processor.tracker.snapshot())

    # -- the policy --------------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """Return, once, what a session should do at this safe point. The caller then reports how it ended.

        After a compaction the boundary reports it, or `failed`; after a restart `restarted` or `failed` does.
        """
        self._steps_asked = True
        return self._ask(self._processor.tracker.snapshot(), safe=True)

    def restart_with(self, cut_turn: Callable[[], bool] | None) -> None:
        """Leave restarts to a session that does them by itself; `None` ends that.

        `cut_turn` cuts the session's turn for a restart if that is safe, and returns whether it did.
        """
        self._cut_turn = cut_turn
        self.policy.attend(by_session=cut_turn is not None)

    @property
    def can_restart(self) -> bool:
        """Whether one more restart is allowed."""
        return self.policy.can_restart

    def failed(self) -> None:
        """Report that the last step failed."""
        self._quiet.sizes = NOT_QUIET
        self.policy.action_failed()

    def restarted(self) -> None:
        """Report that the run continues in a fresh session."""
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
        """Give the notes to the agent with its prompt (UserPromptSubmit)."""
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
        """Cut the turn if a restart is due, else give the notes to the agent (PostToolBatch)."""
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
        """Report how a subagent's final turn ended (SubagentStop)."""
        self._subagents.stopped(text_in(hook_input, "agent_id") or "")

    async def _look(self, hook_input: Mapping[str, Any]) -> Guarded | None:
        """Ask the policy about what came since the last response; return the agent's `Guarded`, if it has one."""
        agent = text_in(hook_input, "agent_id")
        await checkpoint()  # let the reading task process the messages before this hook
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
