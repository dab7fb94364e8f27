"""Events in, snapshots out: how full each agent's context is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mala_context.events import (
    Appended,
    Compaction,
    Event,
    Refusal,
    Reset,
    Response,
    SessionStart,
    SubagentStart,
    Summary,
    TurnEnd,
    UsageDelta,
    WindowReport,
)
from mala_context.projection import Pending
from mala_context.snapshot import ContextSnapshot
from mala_context.windows import AUTO_COMPACT_BUFFER, Window, from_name

__all__ = ["ContextSnapshot", "ContextTracker"]

_PLACEHOLDER = 32


class _Agent:
    """What is known of one agent's context."""

    __slots__ = (
        "accuracy",
        "agent_id",
        "compactions",
        "first_input",
        "helped",
        "message_id",
        "model",
        "output",
        "overflows",
        "pending",
        "pre",
        "responses",
        "source",
        "tokens",
        "tool_use_id",
    )

    def __init__(self, agent_id: str | None = None, tool_use_id: str | None = None, model: str | None = None) -> None:
        self.agent_id = agent_id
        self.tool_use_id = tool_use_id
        self.model = model
        self.responses = self.compactions = self.overflows = 0
        self.first_input: int | None = None
        self.forget()

    def forget(self) -> None:
        """Know nothing until the next response."""
        self.tokens: int | None = None
        self.output: int | None = None
        self.accuracy = "unknown"
        self.source: str | None = None
        self.message_id: str | None = None
        self.pending = Pending()
        self.pre: int | None = None
        self.helped: bool | None = None


class ContextTracker:
    """Follows one client's sessions: feed it every event, in order, and ask at any time.

    Args:
        estimator: the formula behind `ratio`.
        window: the window from the configuration, in tokens; it wins over every other source.
        model: the model before the first message names it, with its `[1m]` suffix.
        betas: beta features that the options ask for.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW`; without it the CLI is not proactive.

    It never raises on an event, and keeps no more than a bounded number of agents and ids.
    """

    def __init__(
        self,
        *,
        estimator: str = "occupancy",
        window: int | None = None,
        model: str | None = None,
        betas: Sequence[str] = (),
        auto_compact_window: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.session_id: str | None = None
        self._configured = window
        self._betas = tuple(betas)
        self._auto_compact_window = auto_compact_window
        self._windows: dict[str | None, Window] = {}
        self._main = _Agent(model=model)
        self._subagents: dict[str, _Agent] = {}
        self._turn_responses = 0

    def apply(self, event: Event) -> ContextSnapshot | None:
        """Take one event; return the snapshot of the agent that it changed, or `None` where nothing did."""
        handler = _HANDLERS.get(event.__class__)
        agent = handler(self, event) if handler else None
        return None if agent is None else self._snapshot(agent, event.__class__.__name__)

    def snapshot(self, agent_id: str | None = None) -> ContextSnapshot:
        """Return what is known now, of the main agent or of a subagent (by either of its ids).

        An unknown id gives a snapshot in which everything is unknown.
        """
        return self._snapshot(self._find(agent_id), "snapshot")

    def agents(self) -> Mapping[str, ContextSnapshot]:
        """Return a snapshot of every subagent, by the id of its Task call where known, else by its own id."""
        return MappingProxyType({key: self._snapshot(agent, "snapshot") for key, agent in self._subagents.items()})

    def _find(self, key: str | None) -> _Agent:
        if key is None:
            return self._main
        found = self._subagents.get(key)
        if found is None:
            found = next((a for a in self._subagents.values() if a.agent_id == key), None)
        return found or _Agent(agent_id=key)

    def _agent(self, key: str | None) -> _Agent:
        if key is None:
            return self._main
        agent = self._subagents.get(key)
        if agent is None:
            agent = self._subagents[key] = _Agent(tool_use_id=key)
        return agent

    def _snapshot(self, agent: _Agent, event: str) -> ContextSnapshot:
        window = self._window(agent.model)
        auto = self._auto_compact_window
        return ContextSnapshot(
            self.session_id,
            agent.agent_id,
            agent.tool_use_id,
            agent.model,
            agent.tokens,
            agent.output,
            window.tokens,
            window.source,
            window.doubtful,
            None if auto is None else min(auto, window.tokens) - AUTO_COMPACT_BUFFER,
            agent.accuracy == "exact",
            agent.accuracy,
            agent.source,
            agent.responses,
            agent.compactions,
            agent.overflows,
            agent.helped,
            self.estimator,
            agent.tokens,
            event,
            agent.pending,
            len(agent.pending.parts),
        )

    def _window(self, model: str | None) -> Window:
        if self._configured:
            return Window(self._configured, "config")
        return self._windows.get(model) or from_name(model, self._betas)

    def _session(self, event: SessionStart) -> _Agent | None:
        if event.session_id != self.session_id:
            if self.session_id is not None:
                self._start_over()
            self.session_id = event.session_id
        if event.model and self._main.responses == 0:
            self._main.model = event.model
        return self._main

    def _start_over(self) -> None:
        self._main = _Agent(model=self._main.model)
        self._subagents = {}
        self._turn_responses = 0

    def _response(self, event: Response) -> _Agent | None:
        agent = self._agent(event.agent)
        new = event.message_id is None or event.message_id != agent.message_id
        if new:
            agent.message_id = event.message_id
            if event.agent is None:
                self._turn_responses += 1
            if event.usage is not None:
                agent.responses += 1
                agent.pending = Pending()
                agent.output = event.usage.output_tokens
        if event.model:
            agent.model = event.model
        if event.content:
            agent.pending.add("response", event.content)
        return self._measured(agent, event.usage, event.source) if event.usage is not None else None

    def _measured(self, agent: _Agent, usage: Any, source: str) -> _Agent:
        agent.tokens = usage.context_tokens
        agent.output = max(agent.output or 0, usage.output_tokens)
        agent.accuracy, agent.source = "exact", source
        if agent.first_input is None:
            agent.first_input = agent.tokens
        if agent.pre is not None:
            agent.helped = agent.tokens < 0.9 * agent.pre
            agent.pre = None
        return agent

    def _delta(self, event: UsageDelta) -> _Agent | None:
        agent = self._agent(event.agent)
        if event.usage is None:
            return None
        if event.usage.context_tokens:
            return self._measured(agent, event.usage, "delta")
        agent.output = max(agent.output or 0, event.usage.output_tokens)
        return agent

    def _appended(self, event: Appended) -> _Agent | None:
        self._agent(event.agent).pending.add(event.kind, event.content)
        return None

    def _compaction(self, event: Compaction) -> _Agent | None:
        agent = self._agent(event.agent)
        first, post = agent.first_input, event.post_tokens
        agent.forget()
        agent.compactions += 1
        agent.pre = event.pre_tokens
        if first is not None and post is not None:
            agent.tokens, agent.accuracy, agent.source = first + post, "rough", "boundary"
        return agent

    def _summary(self, event: Summary) -> _Agent | None:
        del event
        return None

    def _reset(self, event: Reset) -> _Agent | None:
        del event
        self._start_over()
        return self._main

    def _turn_end(self, event: TurnEnd) -> _Agent | None:
        if event.session_id and event.session_id != self.session_id:
            if self.session_id is not None:
                self._start_over()
            self.session_id = event.session_id
        for model, tokens in event.windows.items():
            self._windows[model] = Window(tokens, "model_usage")
        main, responses, self._turn_responses = self._main, self._turn_responses, 0
        if event.terminal_reason == "prompt_too_long":
            main.overflows += 1
        usage = event.last_call or (event.usage if responses == 1 else None)
        if usage is not None and usage.context_tokens and main.accuracy != "exact" and responses:
            self._measured(main, usage, "result")
        elif usage is not None and usage.output_tokens and responses:
            main.output = max(main.output or 0, usage.output_tokens)
        return main

    def _refusal(self, event: Refusal) -> _Agent | None:
        agent = self._agent(event.agent)
        agent.overflows += 1
        if event.maximum:
            self._windows[agent.model] = Window(event.maximum, "api_error")
        return agent

    def _subagent(self, event: SubagentStart) -> _Agent | None:
        if event.tool_use_id:
            self._agent(event.tool_use_id).agent_id = event.agent_id
        return None

    def _report(self, event: WindowReport) -> _Agent | None:
        if event.window:
            self._windows.setdefault(self._main.model, Window(event.window, "context_usage"))
        return self._main


_HANDLERS: Mapping[type, Callable[[ContextTracker, Any], _Agent | None]] = {
    SessionStart: ContextTracker._session,
    Response: ContextTracker._response,
    UsageDelta: ContextTracker._delta,
    Appended: ContextTracker._appended,
    Compaction: ContextTracker._compaction,
    Summary: ContextTracker._summary,
    Reset: ContextTracker._reset,
    TurnEnd: ContextTracker._turn_end,
    Refusal: ContextTracker._refusal,
    SubagentStart: ContextTracker._subagent,
    WindowReport: ContextTracker._report,
}
