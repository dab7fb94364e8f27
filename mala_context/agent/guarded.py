"""Guard one agent: the notes about its thresholds, and the gate of its final turn.

The main agent has a `Guarded`, and so has each subagent if `context.subagents` asks for it: a subagent has a window of
its own, and fails when that is full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mala_context._util.log import get_logger
from mala_context._util.text import percent
from mala_context.agent.hook_io import add_context, deny, stop
from mala_context.agent.log_lines import context_line, log_values
from mala_context.agent.telemetry.records import FinalTurn, GuardActed, GuardAction, Threshold, ThresholdCrossed
from mala_context.guard.debug import debug_printer
from mala_context.guard.events import GuardEvent
from mala_context.guard.final_turn import FinalGate, FinalTurnProgress
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Caution, Compact, Decisions, Finish, Restart, Tell, Thresholds, Warn

if TYPE_CHECKING:
    from mala_context.agent.telemetry import Hub
    from mala_context.tracking.tracker import ContextSnapshot, ContextTracker

Step = Compact | Restart
_MOST_AGENTS = 64
EVALUATED, ENFORCED = (f"context-guard/{name}" for name in ("provider-eval", "enforce"))

log = get_logger(__name__)


class Guarded:
    """One agent under a policy.

    Args:
        policy: decides.
        hub: passes records to observers.
        finishing_tools: the tools that a final turn may use.
        name: the agent's name in log lines.
        agent: a subagent's id; `None` for the main agent.

    Attributes:
        notes: texts for the agent, given with the next hook that can carry them.
        final: the present final turn; `None` if there is none.
    """

    def __init__(
        self, policy: Policy, hub: Hub, finishing_tools: Sequence[str], *, name: str, agent: str | None = None
    ) -> None:
        self.policy = policy
        self.notes: list[str] = []
        self.final: FinalTurnProgress | None = None
        self._hub = hub
        self._tools = tuple(finishing_tools)
        self._name = name
        self._agent = agent
        self.debug = debug_printer()
        """Prints each decision if `CONTEXT_DEBUG=true` is set, else `None`."""

    def forget(self) -> None:
        """Drop the notes and the final turn."""
        self.notes.clear()
        self.final = None

    def acted(self, session_id: str | None, action: GuardAction, tool: str | None = None) -> None:
        """Report an action to the observers."""
        self._hub.tell(GuardActed(session_id, action, tool, self._agent))

    def ask(
        self, snapshot: ContextSnapshot, now: float, *, safe: bool = False, new_prompt: bool = False
    ) -> Step | None:
        """Carry out the policy's decisions about a snapshot; return the step that only a session can do."""
        decisions = self.policy.decide(snapshot, now, safe=safe, new_prompt=new_prompt)
        if self.debug is not None:
            self._print(decisions, snapshot)
        step = self.carry_out(decisions, snapshot)
        if self.final is not None and not self.policy.final:
            self.final = None
        return step

    def _print(self, decisions: Decisions, snapshot: ContextSnapshot) -> None:
        """Print the sizes and the decisions, under the topics of a plain guard."""
        rules, window, projected = self.policy.thresholds, snapshot.window, snapshot.projected
        limit = round(window * (rules.final_at or rules.restart_at or rules.compact_at or 1.0))
        fields = {
            "session": snapshot.session_id,
            "agent": self._agent,
            "current": snapshot.tokens,
            "projected": projected,
            "window": window,
            "limit": limit,
            "remaining": None if projected is None else limit - projected,
            "outcomes": [type(each).__name__.lower() for each in decisions] or ["ok"],
        }
        final = any(isinstance(each, Finish) for each in decisions)
        for topic in (EVALUATED, ENFORCED) if final else (EVALUATED,):
            if self.debug is not None:
                self.debug(GuardEvent(topic, fields))

    def carry_out(self, decisions: Decisions, snapshot: ContextSnapshot) -> Step | None:
        """Log and report each decision, and keep its note; return the step that only a session can do."""
        step: Step | None = None
        finishing = any(isinstance(decision, Finish) for decision in decisions)
        for decision in decisions:
            if isinstance(decision, Compact | Restart):
                step = decision
                self._step(decision, snapshot)
            elif isinstance(decision, Tell):
                self.notes.append(f"{decision.text} {self._finishing_words}" if finishing else decision.text)
            elif isinstance(decision, Caution):
                log.warning("%s", decision.message if self._agent is None else f"{decision.message}, in a subagent")
                if decision.kind != "overflow":  # an overflow has a record of its own
                    self.acted(snapshot.session_id, decision.kind)
            else:
                self._announce(decision, snapshot)
        return step

    def _step(self, step: Step, snapshot: ContextSnapshot) -> None:
        """Report a compaction or a restart that is due; log it if only a guessed window says so."""
        threshold: Threshold = "compact_at" if isinstance(step, Compact) else "restart_at"
        at: float | None = getattr(self.policy.thresholds, threshold)
        if snapshot.window_source == "guess" and step.cause == "threshold" and at is not None:
            line = context_line(snapshot, self._name)
            log.warning("%s; %s %s is reached", line, threshold, percent(at), **log_values(snapshot))
        self._crossed(threshold, step, snapshot)

    def _announce(self, decision: Warn | Finish, snapshot: ContextSnapshot) -> None:
        rules, values = self.policy.thresholds, log_values(snapshot)
        line = context_line(snapshot, self._name)
        if isinstance(decision, Warn):
            log.warning("%s; warn_at %s is reached", line, percent(rules.warn_at or 0.0), **values)
            self._crossed("warn_at", decision, snapshot)
            return
        gate, state = FinalGate(self._tools), snapshot.window_state
        self.final = FinalTurnProgress(gate, snapshot.session_id, decision.ratio, window_state=state)
        line = f"{line}, the next request {percent(decision.ratio)}"
        at = percent(rules.final_at or 0.0)
        log.warning("%s; final_at %s is reached. %s", line, at, self._finishing_words, **values)
        self._crossed("final_at", decision, snapshot)

    def _crossed(
        self, threshold: Threshold, decision: Warn | Finish | Compact | Restart, snapshot: ContextSnapshot
    ) -> None:
        """Report a threshold to the observers, unless the step has another cause."""
        at: float | None = getattr(self.policy.thresholds, threshold)
        if at is None or decision.ratio is None or getattr(decision, "cause", "threshold") != "threshold":
            return
        sizes, state = (snapshot.tokens, snapshot.window, snapshot.model), snapshot.window_state
        self._hub.tell(ThresholdCrossed(snapshot.session_id, threshold, at, decision.ratio, *sizes, self._agent, state))

    @property
    def _finishing_words(self) -> str:
        return f"Finishing tools: {', '.join(self._tools) or 'none'}."

    def note(self, event: str, session_id: str | None) -> Mapping[str, Any] | None:
        """Return the notes as a hook's answer, once; `None` if there are none."""
        if not self.notes:
            return None
        text = "\n".join(self.notes)
        self.notes.clear()
        self.acted(session_id, "told")
        return add_context(event, text)

    def answer(
        self, hook_input: Mapping[str, Any], session_id: str | None, response: object
    ) -> Mapping[str, Any] | None:
        """Answer a tool call (PreToolUse); before a final turn every call is allowed."""
        if self.final is None:
            return None
        tool, tool_input = str(hook_input.get("tool_name")), hook_input.get("tool_input")
        verdict = self.final.ask(tool, tool_input if isinstance(tool_input, Mapping) else {}, response)
        if verdict.action == "allow":
            return None
        self.acted(session_id, "stopped" if verdict.action == "stop" else "denied", tool)
        answer = deny(verdict.reason)
        if verdict.action != "stop":
            return answer
        if self._agent is not None:  # a stopped subagent has no SubagentStop hook, so report its end now
            self.ended()
        return {**answer, **stop(verdict.reason)}

    def ended(self) -> FinalTurn | None:
        """Return, once, how the final turn ended; `None` if there was none, or the agent was never told of it."""
        final = self.final
        if final is None or not final.heard or final.told:
            return None
        final.told = True
        how = (final.ratio, final.stopped, final.denied, final.missing)
        record = FinalTurn(final.session_id, "context", *how, self._agent, final.window_state)
        log.warning("%s%s", record.line, ", the window is a guess" if final.window_state == "guess" else "")
        self._hub.tell(record)
        return record


class Subagents:
    """The subagents of one runtime, each under a policy of its own.

    Args:
        thresholds: when to act, as ratios of the subagent's own window.
        tracker: the runtime's tracker, which knows how full a subagent's context is.
        make: makes a `Guarded` from a policy and a subagent's id.
    """

    def __init__(self, thresholds: Thresholds, tracker: ContextTracker, make: Callable[[Policy, str], Guarded]) -> None:
        self._thresholds = thresholds
        self._tracker = tracker
        self._make = make
        self._guarded: dict[str, Guarded] = {}

    def look(self, agent: str, now: float) -> Guarded | None:
        """Return a subagent's `Guarded`, after asking its policy; `None` if no threshold is set."""
        rules = self._thresholds
        if rules.warn_at is None and rules.final_at is None:
            return None
        guarded = self._guarded.get(agent)
        if guarded is None:
            guarded = self._guarded[agent] = self._make(Policy(rules), agent)
            if len(self._guarded) > _MOST_AGENTS:
                del self._guarded[next(iter(self._guarded))]
        guarded.ask(self._tracker.snapshot(agent), now)
        return guarded

    def stopped(self, agent: str) -> None:
        """Report how a subagent's final turn ended."""
        guarded = self._guarded.get(agent)
        if guarded is not None:
            guarded.ended()
