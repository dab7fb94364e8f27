"""Events in, snapshots out: how full each agent's context is.

One table says which method takes which event; a method changes the state of one agent (see `agents`) and returns
it, and `apply` makes the snapshot. The rules are the same live and from a transcript. Three things need memory
beyond an agent's own state, and each is a table of bounded size:

* message ids already counted, since one response is several messages, and old rows are written again after a
  compaction or copied into a fork;
* places of rows: which context a row belongs to and how much of it was there. A row that names one as its parent
  goes on from that place; where that is not the present context, the conversation went back to it (a rewind, an
  abandoned branch), and what was appended elsewhere does not count. A row without a parent begins a new
  conversation;
* subagents, and which Task call started which.

Where parents are unknown (live messages have none, a table has its end) the conversation simply goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mala_context.agents import AgentState
from mala_context.auto_compact import auto_compact_threshold
from mala_context.contexts import Opening
from mala_context.estimators import ESTIMATORS, Estimate
from mala_context.events import (
    Appended,
    Compaction,
    Event,
    Link,
    Refusal,
    Reset,
    Response,
    SessionStart,
    SubagentStart,
    Summary,
    TotalTokens,
    TurnEnd,
    UsageDelta,
    WindowReport,
)
from mala_context.measure import is_result, is_summary
from mala_context.roster import RECORDED, Roster
from mala_context.snapshot import ContextSnapshot
from mala_context.usage import Usage
from mala_context.windows import FAR_BELOW, Window, Windows, plain_name

__all__ = ["ContextSnapshot", "ContextTracker"]

_KEEPS_CONTEXT: Final = frozenset({"resume", "fork"})


class ContextTracker:
    """Follows one client's sessions: feed it every event, in order, and ask at any time.

    Args:
        estimator: the formula behind `ratio`; one of `estimators.ESTIMATORS`.
        window: the window from the configuration, in tokens; it wins over every other source.
        model: the model before the first message names it, with its `[1m]` suffix.
        betas: beta features that the options ask for.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW`; without it the CLI does not compact proactively.
        remembers: how many rows and responses are remembered at most, to know those that come again, and where a
            conversation goes back to. `roster.LIVE` is enough for one client's messages, and keeps a tracker small.

    Raises `ValueError` for an unknown estimator, and nothing on any event. Memory stays flat however long it runs. Not
    safe to share between threads.
    """

    def __init__(
        self,
        *,
        estimator: str = "occupancy",
        window: int | None = None,
        model: str | None = None,
        betas: Sequence[str] = (),
        auto_compact_window: int | None = None,
        remembers: int = RECORDED,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(f"unknown estimator {estimator!r}: one of {', '.join(ESTIMATORS)} would be right")
        self.estimator = estimator
        self.auto_compact_window = auto_compact_window
        self.session_id: str | None = None
        self.sessions_seen = 0
        self._counts_text = estimator == "characters"
        self._remembers = remembers
        self.windows = Windows(window, betas)
        if model:
            self.windows.named(model)
        self._start_over(model)

    def apply(self, event: Event) -> ContextSnapshot | None:
        """Take one event; return the snapshot of the agent that it changed, or `None` where no number moved.

        What was appended moves only `projected` and `cli_estimate`: ask `snapshot()` for them.
        """
        agent = self.advance(event)
        return None if agent is None else self.snapshot_of(agent, event.__class__.__name__)

    def advance(self, event: Event) -> AgentState | None:
        """Take one event like `apply`, but return the changed agent's state itself, for those who read many rows.

        The state is the tracker's own: read it before the next event, and change nothing in it.
        """
        handler = _HANDLERS.get(event.__class__)
        return handler(self, event) if handler is not None else None

    @property
    def main(self) -> AgentState:
        """The main agent's own state, as `advance` returns it; another object after the session changed."""
        return self.roster.main

    @property
    def subagents(self) -> Mapping[str, AgentState]:
        """States of the subagents, by the same keys as `agents`."""
        return self.roster.subagents

    def state_of(self, event: Response | Appended | Compaction) -> AgentState:
        """Return the state of the agent that an event is about; right after the event was taken."""
        return self.roster.owner(event)

    def estimates_of(self, agent: AgentState) -> Mapping[str, Estimate]:
        """Return what every formula says of an agent, by its state."""
        return {name: self._estimate(agent, name) for name in ESTIMATORS}

    def window_of(self, model: str | None) -> Window:
        """Return the window of a model, by all that is known now."""
        return self.windows.of(model)

    def holds_row(self, uuid: str) -> bool:
        """Tell whether a row of this id was seen among the newest that are remembered."""
        return self.roster.knows(uuid)

    def snapshot(self, agent_id: str | None = None) -> ContextSnapshot:
        """Return what is known now, of the main agent or of a subagent (by either of its ids).

        An unknown id gives a snapshot in which everything is unknown. By default the SDK's stream lacks a foreground
        subagent's final text (`forward_subagent_text`), so a live subagent's value may lag behind.
        """
        return self.snapshot_of(self.roster.find(agent_id) or AgentState(agent_id))

    def agents(self) -> Mapping[str, ContextSnapshot]:
        """Return a snapshot of every subagent, by the id of its Task call where known, else by its own id."""
        return MappingProxyType({key: self.snapshot_of(agent) for key, agent in self.roster.subagents.items()})

    def estimates(self, agent_id: str | None = None) -> Mapping[str, Estimate]:
        """Return what every formula says of an agent, by name.

        `characters` needs all text to be counted, which costs; it is from the first call on, or from the start where
        it is the chosen estimator. Where text went by uncounted before, its value is `None`.
        """
        if not self._counts_text:
            self._counts_text = True
            self.roster.count_text()
        agent = self.roster.find(agent_id) or AgentState(agent_id)
        return {name: self._estimate(agent, name) for name in ESTIMATORS}

    def reset(self) -> None:
        """Forget the conversation and its session, as before a fresh one; what is known of windows stays."""
        self.session_id = None
        self._start_over(self.roster.main.model)

    def note_opening(self, events: Sequence[Event]) -> None:
        """Take note of what the session's first request held, e.g. from the head of its transcript.

        Live messages do not show it. Only the events before the first response count, and no size changes: the
        estimate after a compaction gets better.
        """
        opening, main = Opening(), self.roster.main
        for event in events:
            if isinstance(event, Response):
                break
            if isinstance(event, Appended) and event.agent is None:
                opening.add(event.kind, event.content, main.names)
        if opening.known:
            main.opening = opening

    def _start_over(self, model: str | None) -> None:
        self.roster = Roster(model, counts_text=self._counts_text, remembers=self._remembers)
        self._turn_began = 0

    def _subagent(self, event: SubagentStart) -> AgentState | None:
        return None if event.tool_use_id is None else self.roster.join(event.agent_id, event.tool_use_id)

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _estimate(self, agent: AgentState, name: str) -> Estimate:
        context = agent.context
        interval = context.interval
        return agent.estimators[name].estimate(context.tokens, lambda: interval.chars(len(interval)))

    def snapshot_of(self, agent: AgentState, event: str = "snapshot") -> ContextSnapshot:
        """Return what is known now of an agent whose state `advance` returned; `event` names what changed it."""
        context, model = agent.context, agent.model
        window, source, doubtful = self.windows.of(model)
        name = self.estimator
        estimate = context.tokens
        if name != "occupancy":
            answer = self._estimate(agent, name)
            estimate = answer.tokens
            if answer.window is not None and source in ("table", "guess"):
                window, source = answer.window, "guess"
        return ContextSnapshot(
            self.session_id,
            agent.agent_id,
            agent.tool_use_id,
            model,
            context.tokens,
            context.output,
            window,
            source,
            doubtful,
            auto_compact_threshold(window, self.auto_compact_window),
            context.accuracy == "exact",
            context.accuracy,
            context.source,
            agent.responses,
            agent.compactions,
            agent.overflows,
            agent.resets,
            agent.helped,
            name,
            estimate,
            event,
            agent.before,
            context.interval,
            len(context.parts),
            context.cut,
        )

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _session(self, event: SessionStart) -> AgentState | None:
        main = self.roster.main
        changed = self._enter(event.session_id, keep=event.source in _KEEPS_CONTEXT)
        if event.source in _KEEPS_CONTEXT and not self.roster.main.responses:
            self.roster.main.rooted = False  # the first response's request is the whole old context
        self.windows.asked(event.betas)
        model = event.model
        if model:
            self.windows.named(model)
            if not self.roster.main.responses and self.roster.main.model != model:
                self.roster.main.model, changed = model, True
        return self.roster.main if changed or self.roster.main is not main else None

    def _enter(self, session_id: str | None, *, keep: bool) -> bool:
        """Take note of the session; another one than before means an unknown context, unless it is kept."""
        if session_id is None or session_id == self.session_id:
            return False
        if self.session_id is not None and not keep:
            self._start_over(self.roster.main.model)
        self.session_id = session_id
        self.sessions_seen += 1
        return True

    def _reset(self, event: Reset) -> AgentState | None:
        roster, main = self.roster, self.roster.main
        if event.uuid is None:
            if event.session_id is not None and self.session_id not in (None, event.session_id):
                return None
            self._start_over(main.model)
            self.roster.main.resets = main.resets + 1
            return self.roster.main
        if roster.knows(event.uuid):
            return None
        if roster.rows:
            main.begin_again()
        roster.place(event.uuid, main)
        return main

    def _link(self, event: Link) -> AgentState | None:
        roster = self.roster
        key, _, uuid, parent = event
        if uuid is not None and not roster.knows(uuid):
            roster.link(roster.main if key is None else roster.owner(event), uuid, parent)
        return None

    # -- responses ---------------------------------------------------------------------------------------------------

    def _response(self, event: Response) -> AgentState | None:
        key, session_id, message_id, model, usage, content, stop_reason, uuid, parent, source, _ = event
        if session_id != self.session_id and session_id is not None and not self._same_session(event):
            return None
        roster = self.roster
        agent = roster.main if key is None else roster.owner(event)
        again = roster.knows(uuid)
        identity = message_id or usage or uuid
        if identity != agent.current and not self._begin(event, agent, identity, again):
            return None
        if model != agent.model and model and is_other(model, agent.model):
            agent.model = model
            self.windows.of(model)
        changed = usage is not None and agent.count(usage, source)
        if changed:
            self.check_window(agent)
        if content and not again and (usage is not None or not agent.kept(uuid)):
            agent.add("response", content)
        if stop_reason is not None:
            agent.stop(stop_reason)
        roster.note(uuid, parent, agent)
        return agent if changed else None

    def _begin(self, event: Response, agent: AgentState, identity: object, again: bool) -> bool:
        """Begin a response, unless it was counted before; return whether it was begun."""
        _, _, message_id, _, _, _, _, uuid, parent, _, request_id = event
        roster = self.roster
        counted = message_id is not None and roster.was_counted(message_id, request_id)
        if parent is not None and not again:
            roster.follow(agent, parent, begins=True)
        if counted:
            if not again:
                roster.note(uuid, parent, agent)
            return False
        agent.begin(identity)
        return True

    def _same_session(self, event: Response) -> bool:
        """Enter a response's session; a late subagent's of an old session does not count."""
        if self.session_id is not None and event.agent is not None:
            return False
        self._enter(event.session_id, keep=bool(event.parent) and self.roster.knows(event.parent))
        return True

    def _count(self, agent: AgentState, usage: Usage, source: str) -> bool:
        changed = agent.count(usage, source)
        if changed:
            self.check_window(agent)
        return changed

    def check_window(self, agent: AgentState) -> None:
        """See whether the request that was just counted is one that the known window does not allow."""
        tokens = agent.context.tokens or 0
        if tokens > self.windows.smallest and tokens > self.windows.of(agent.model).tokens:
            self.windows.accepted(agent.model, tokens)

    def _delta(self, event: UsageDelta) -> AgentState | None:
        agent = self.roster.agent(event.agent)
        if agent.current is None:
            return None
        usage = event.usage
        changed = False
        if usage is not None and usage.context_tokens and agent.context.message_id != agent.current:
            changed = self._count(agent, usage, "delta")
        elif usage is not None:
            changed = agent.output(usage.output_tokens)
        if event.stop_reason is not None:
            agent.stop(event.stop_reason)
        return agent if changed else None

    def _appended(self, event: Appended) -> AgentState | None:
        key, _, kind, content, uuid, parent = event
        roster = self.roster
        if roster.knows(uuid):
            return None
        agent = roster.main if key is None else roster.owner(event)
        moved = False
        if parent is not None:
            stays = roster.rows.context(parent) is agent.context  # as nearly every row does
            moved = not stays and roster.follow(agent, parent, begins=kind == "user" and not is_result(content))
        elif agent.wait_summary and is_summary(content):
            agent.wait_summary = False  # the stream does not mark it, and `post_tokens` has it
            return None
        if not agent.responses:
            agent.opening.add(kind, content, agent.names)
        context = agent.context
        if kind != "attachment" or context.source != "boundary":
            agent.add(kind, content)
        roster.note(uuid, parent, agent)
        return agent if moved else None

    # -- what makes the context smaller, or refuses it ---------------------------------------------------------------

    def _compaction(self, event: Compaction) -> AgentState | None:
        if self.roster.knows(event.uuid):
            return None
        agent = self.roster.owner(event)
        if event.parent:
            self.roster.follow(agent, event.parent, begins=True)
        self._compact(agent, event.pre_tokens, event.post_tokens)
        agent.preserved, agent.wait_summary = event.preserved, True
        threshold = auto_compact_threshold(*self._limits(agent))
        if event.trigger == "auto" and event.pre_tokens and threshold and event.pre_tokens < FAR_BELOW * threshold:
            self.windows.doubt(agent.model)
        self.roster.place(event.uuid, agent)
        return agent

    def _limits(self, agent: AgentState) -> tuple[int, int]:
        window = self.windows.of(agent.model).tokens
        return window, window if self.auto_compact_window is None else self.auto_compact_window

    def _compact(self, agent: AgentState, pre_tokens: int | None, post_tokens: int | None) -> None:
        before = self.snapshot_of(agent) if agent.context.tokens is not None else None
        agent.compacted(pre_tokens, post_tokens, before)

    def _summary(self, event: Summary) -> AgentState | None:
        if self.roster.knows(event.uuid):
            return None
        agent = self.roster.owner(event)
        alone = not agent.wait_summary
        if alone:
            self._compact(agent, None, None)
        agent.wait_summary = False
        self.roster.place(event.uuid, agent)
        return agent if alone else None

    def _refusal(self, event: Refusal) -> AgentState | None:
        agent = self.roster.agent(event.agent)
        agent.overflows += 1
        if event.maximum:
            self.windows.learn(agent.model, event.maximum, "api_error")
        return agent

    # -- turns and reports -------------------------------------------------------------------------------------------

    def _turn_end(self, event: TurnEnd) -> AgentState | None:
        self._enter(event.session_id, keep=False)
        self.windows.reported(event.windows)
        main = self.roster.main
        responses, self._turn_began = main.responses - self._turn_began, main.responses
        for estimator in main.estimators.values():
            estimator.turn(event.usage)
        if event.terminal_reason == "prompt_too_long":
            main.overflows += 1
        if not responses or main.current is None:
            return main
        single = responses == 1 and (event.num_turns is None or event.num_turns <= 1)
        usage = event.last_call or (event.usage if single else None)
        if usage is None:
            return main
        if main.context.message_id == main.current:
            if usage.context_tokens == main.context.tokens:
                main.output(usage.output_tokens)
        elif usage.context_tokens:
            self._count(main, usage, "result")
        return main

    def _report(self, event: WindowReport) -> AgentState | None:
        model = event.model or self.roster.main.model
        if event.window and self.windows.learn(model, event.window, "context_usage"):
            return self.roster.main
        return None

    def _total(self, event: TotalTokens) -> AgentState | None:
        main = self.roster.main
        if event.model:
            main.model = event.model
        main.responses += event.answer_id is None or event.answer_id != main.current  # a stream is one response
        main.current = event.answer_id
        for estimator in main.estimators.values():
            estimator.total(event)
        return main


def is_other(model: str, known: str | None) -> bool:
    """Tell whether a response's model is another than the one that was asked for by a longer or shorter name."""
    return known is None or plain_name(model) != plain_name(known) or "[" not in known


_HANDLERS: Final[Mapping[type, Callable[[ContextTracker, Any], AgentState | None]]] = {
    SessionStart: ContextTracker._session,
    Response: ContextTracker._response,
    UsageDelta: ContextTracker._delta,
    Appended: ContextTracker._appended,
    Link: ContextTracker._link,
    Compaction: ContextTracker._compaction,
    Summary: ContextTracker._summary,
    Reset: ContextTracker._reset,
    TurnEnd: ContextTracker._turn_end,
    Refusal: ContextTracker._refusal,
    SubagentStart: ContextTracker._subagent,
    WindowReport: ContextTracker._report,
    TotalTokens: ContextTracker._total,
}
