"""What each event does to the agents of one client's sessions.

One table says which method takes which event; a method changes the state of one agent (see `agents`) and returns it,
or `None` where no number moved. The rules are the same live and from a transcript. Three things need memory beyond an
agent's own state, and each is a table of bounded size:

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

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.text import version_numbers
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import NO_THOUGHT, SHARED
from mala_context.tracking.events import (
    Appended,
    Compaction,
    ContextEdited,
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
from mala_context.tracking.readers.parts import model_set
from mala_context.tracking.registry import AgentRegistry
from mala_context.tracking.text_counts import is_kept, is_result, is_summary, kind_of
from mala_context.tracking.token_costs import CHARS_PER_TOKEN, family
from mala_context.tracking.truth_alarm import LEAST, Lookout
from mala_context.tracking.usage import Usage
from mala_context.tracking.windows import FAR_BELOW, Windows, plain_name

if TYPE_CHECKING:
    from mala_context.tracking.snapshot import ContextSnapshot

_LEAVES_OUT: Final = (2, 1, 41)
"""The first CLI, as far as is known, that leaves out an answer that is nothing but a thought; 2.1.29 sent it."""
_OWN_ALONE: Final = (2, 1, 167)
"""The first one, as far as is known, that sends a model its own thinking alone; 2.1.150 sent it all."""
_KEEPS_CONTEXT: Final = frozenset({"resume", "fork"})


class EventReducer:
    """The sessions of one client, as far as events have told of them.

    Args:
        windows: what is known of models' windows.
        snapshot_of: makes the snapshot of an agent, to hold a compaction against what was there before it.
        model: the model before the first message names it.
        counts_text: whether all text is counted from the start.
        remembers: how many rows and responses are remembered at most.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW`; may be set at any time.
        lookout: where agents note alarms; `None` where no alarms and no parts are wanted.

    Attributes:
        clock: says when a live message came, in seconds since the epoch (rows say it themselves); set it at any time.
        registry: the agents of the present session; another object after the session changed.
        session_id: the session; `None` before the first event that names it.
        cli: the version of the CLI; `None` before the first event that names it.
        sessions_seen: how many there were.
        counts_text: whether all text is counted, in sessions to come too; see `count_text`.
    """

    def __init__(
        self,
        windows: Windows,
        snapshot_of: Callable[[AgentState], ContextSnapshot],
        *,
        model: str | None,
        counts_text: bool,
        remembers: int,
        auto_compact_window: int | None,
        lookout: Lookout | None = None,
    ) -> None:
        self.lookout = lookout
        self.windows = windows
        self.auto_compact_window = auto_compact_window
        self.clock: Callable[[], float] | None = None
        self.session_id: str | None = None
        self.cli: str | None = None
        self.sessions_seen = 0
        self.counts_text = counts_text
        self._snapshot_of = snapshot_of
        self._remembers = remembers
        self.start_over(model)

    def start_over(self, model: str | None) -> None:
        """Forget the conversation and its agents; what is known of windows stays."""
        self.registry = AgentRegistry(
            model, counts_text=self.counts_text, remembers=self._remembers, lookout=self.lookout
        )
        self._turn_began = 0
        self.written_by(self.cli)

    def written_by(self, cli: str | None) -> None:
        """Take note of the CLI's version, by which it leaves thinking out of requests (see `ContextState.thought`)."""
        self.cli = cli
        version = _OWN_ALONE if cli is None else version_numbers(cli)
        self.registry.no_thought = None if version < _LEAVES_OUT else SHARED if version < _OWN_ALONE else NO_THOUGHT

    @property
    def responses_in_turn(self) -> int:
        """Responses of the main agent since the last turn's end."""
        return self.registry.main.responses - self._turn_began

    def leave(self) -> None:
        """Start over, and know no session, as before a fresh one."""
        self.session_id = None
        self.start_over(self.registry.main.model)

    def count_text(self) -> None:
        """Have all text counted from now on, also where no projection is asked for."""
        if not self.counts_text:
            self.counts_text = True
            self.registry.count_text()

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _session(self, event: SessionStart) -> AgentState | None:
        main = self.registry.main
        changed = self._enter(event.session_id, keep=event.source in _KEEPS_CONTEXT)
        if event.source in _KEEPS_CONTEXT and not self.registry.main.responses:
            self.registry.main.rooted = False  # the first response's request is the whole old context
        self.windows.asked(event.betas)
        self.written_by(event.cli or self.cli)
        model = event.model
        if model:
            self.windows.named(model)
            self.registry.main.asks(model)
            if not self.registry.main.responses and self.registry.main.model != model:
                self.registry.main.model, changed = model, True
        return self.registry.main if changed or self.registry.main is not main else None

    def _enter(self, session_id: str | None, *, keep: bool) -> bool:
        """Take note of the session; another one than before means an unknown context, unless it is kept."""
        if session_id == self.session_id or not isinstance(session_id, str):
            return False
        if self.session_id is not None and not keep:
            self.start_over(self.registry.main.model)
        self.session_id = session_id
        self.sessions_seen += 1
        return True

    def _reset(self, event: Reset) -> AgentState | None:
        registry, main = self.registry, self.registry.main
        if event.uuid is None:
            if event.session_id is not None and self.session_id not in (None, event.session_id):
                return None
            self.start_over(main.model)
            self.registry.main.resets = main.resets + 1
            self.registry.main.map.fixed = main.map.fixed
            return self.registry.main
        if registry.knows(event.uuid):
            return None
        if registry.rows:
            main.begin_again()
        registry.place(event.uuid, main)
        return main

    def _link(self, event: Link) -> AgentState | None:
        registry = self.registry
        key, _, uuid, parent, time = event
        if uuid is not None and not registry.knows(uuid):
            agent = registry.main if key is None else registry.owner(event)
            if agent.is_late(time):
                registry.place(uuid, agent)
            else:
                registry.link(agent, uuid, parent)
        return None

    # -- responses ---------------------------------------------------------------------------------------------------

    def _response(self, event: Response) -> AgentState | None:
        key, session_id, message_id, model, usage, content, stop_reason, uuid, parent, source, _, time, hour = event
        if session_id != self.session_id and session_id is not None and not self._same_session(event):
            return None
        registry = self.registry
        agent = registry.main if key is None else registry.owner(event)
        again = registry.knows(uuid)
        # A response comes as several messages with one id, one for each content block, and counts once (case core-09).
        # A server that sends no ids is told by equal counts; without either each row stands for itself.
        identity = message_id or usage or uuid
        if identity != agent.current and not self._begin(event, agent, identity, again):
            return None
        if model != agent.model and model and is_other(model, agent.model):
            agent.named(model)
            self.windows.of(model)
        changed = usage is not None and agent.count(usage, source, hour, time or self._now())
        if changed:
            self.check_window(agent)
        # Rows that a compaction kept are written again after its boundary, without counts (cases core-03 and core-30).
        # Their text is in the boundary's own figure, so it must not be appended once more.
        if content and not again and (usage is not None or not agent.kept(uuid)):
            agent.add("response", content)
            registry.sign(uuid, content, agent)
        if stop_reason is not None:
            agent.stop(stop_reason)
        registry.note(uuid, parent, agent)
        return agent if changed else None

    def _begin(self, event: Response, agent: AgentState, identity: object, again: bool) -> bool:
        """Begin a response, unless it was counted before; return whether it was begun."""
        _, _, message_id, _, _, _, _, uuid, parent, _, request_id, time, _ = event
        registry = self.registry
        counted = message_id is not None and registry.was_counted(message_id, request_id)
        if parent is not None and not again:
            registry.follow(agent, parent, begins=True)
        if counted:
            if not again:
                registry.note(uuid, parent, agent)
            return False
        agent.begin(identity)
        agent.since = time
        return True

    def _now(self) -> float | None:
        return None if self.clock is None else self.clock()

    def _same_session(self, event: Response) -> bool:
        """Enter a response's session; a late subagent's of an old session does not count."""
        if self.session_id is not None and event.agent is not None:
            return False
        self._enter(event.session_id, keep=bool(event.parent) and self.registry.knows(event.parent))
        return True

    def _count(self, agent: AgentState, usage: Usage, source: str) -> bool:
        changed = agent.count(usage, source, time=self._now())
        if changed:
            self.check_window(agent)
        return changed

    def check_window(self, agent: AgentState) -> None:
        """See whether the request that was just counted is one that the known window does not allow."""
        tokens = agent.context.tokens or 0
        if tokens > self.windows.smallest and tokens > self.windows.of(agent.model).tokens:
            self.windows.accepted(agent.model, tokens)

    def _delta(self, event: UsageDelta) -> AgentState | None:
        agent = self.registry.agent(event.agent)
        if agent.current is None:
            return None
        usage = event.usage
        changed = False
        if usage is not None and agent.replaces(usage, last_call=event.last_call):
            changed = self._count(agent, usage, "delta")
        elif usage is not None:
            changed = agent.output(usage.output_tokens)
        if event.stop_reason is not None:
            agent.stop(event.stop_reason)
            _told(agent, usage)
        return agent if changed else None

    def _appended(self, event: Appended) -> AgentState | None:
        key, _, kind, content, uuid, parent, time = event
        registry = self.registry
        if registry.knows(uuid):
            return None
        agent = registry.main if key is None else registry.owner(event)
        moved = False
        if parent is not None:
            begins = kind == "user" and not is_result(content)
            stays = registry.rows.context(parent) is agent.context  # as nearly every row does
            moved = (
                (begins or not stays)
                and not agent.is_late(time)
                and (registry.take_back(agent, parent) if stays else registry.follow(agent, parent, begins=begins))
            )
        elif agent.wait_summary and is_summary(content):
            agent.wait_summary = False  # the stream does not mark it, and `post_tokens` has it
            return None
        if kind == "attachment" and kind_of(content) == "prompt_snapshot":
            if agent.lookout is not None:
                agent.map.snapshot(content, CHARS_PER_TOKEN[family(agent.model)])
            registry.note(uuid, parent, agent)
            return agent if moved else None
        if not agent.responses:
            agent.opening.add(kind, content)
        agent.asks(model_set(kind, content), switched=True)
        context = agent.context
        # after a boundary the CLI's count, or ours, has the attachments and what a compaction by reference keeps
        if context.source != "boundary":
            agent.add(kind, content)
        elif is_kept(content):
            moved = agent.keep(content) or moved
        elif kind != "attachment":
            agent.add(kind, content)
        registry.note(uuid, parent, agent)
        return agent if moved else None

    # -- what makes the context smaller, or refuses it ---------------------------------------------------------------

    def _compaction(self, event: Compaction) -> AgentState | None:
        if self.registry.knows(event.uuid):
            return None
        agent = self.registry.owner(event)
        if event.parent:
            self.registry.follow(agent, event.parent, begins=True)
        agent.context.interval.counted_by(event.version)
        self._compact(agent, event.pre_tokens, event.post_tokens, turn=event.trigger == "auto")
        agent.preserved, agent.wait_summary = event.preserved, True
        kept = (self.registry.signed[uuid] for uuid in event.preserved if uuid in self.registry.signed)
        agent.context.keeps(kept, self.registry.no_thought)
        if event.trigger == "auto" and event.pre_tokens:
            self.windows.compacted(agent.model, event.pre_tokens, self.auto_compact_window)
        self.registry.place(event.uuid, agent)
        return agent

    def _compact(
        self, agent: AgentState, pre_tokens: int | None, post_tokens: int | None, *, turn: bool = False
    ) -> None:
        before = self._snapshot_of(agent) if agent.context.tokens is not None else None
        agent.compacted(pre_tokens, post_tokens, before, turn=turn)

    def _summary(self, event: Summary) -> AgentState | None:
        if self.registry.knows(event.uuid):
            return None
        agent = self.registry.owner(event)
        alone = not agent.wait_summary
        if alone:
            self._compact(agent, None, None)
        agent.wait_summary = False
        self.registry.place(event.uuid, agent)
        return agent if alone else None

    def _refusal(self, event: Refusal) -> AgentState | None:
        agent = self.registry.agent(event.agent)
        agent.overflows += 1
        if event.maximum:
            self.windows.learn(agent.model, event.maximum, "api_error")
        else:
            self._doubt_if_not_full(agent)
        return agent

    # -- turns and reports -------------------------------------------------------------------------------------------

    def _turn_end(self, event: TurnEnd) -> AgentState | None:
        self._enter(event.session_id, keep=False)
        self.windows.reported(event.windows)
        main = self.registry.main
        responses, self._turn_began = self.responses_in_turn, main.responses
        if responses and main.current is not None:
            single = responses == 1 and (event.num_turns is None or event.num_turns <= 1)
            usage = event.last_call or (event.usage if single else None)
            if usage is not None:
                self._last_of_turn(main, usage, last_call=event.last_call is not None)
                if event.subtype == "success":  # an interrupted answer's output is a placeholder here too
                    _told(main, usage)
            if not main.context.cut:
                main.stop("end_turn")
        # The turn's sums have the real output of each response in them, so they come after what it corrects.
        main.turn(event.usage)
        if event.terminal_reason == "prompt_too_long":
            main.overflows += 1
            self._doubt_if_not_full(main)
        return main

    def _last_of_turn(self, main: AgentState, usage: Usage, *, last_call: bool) -> None:
        """Take the counts of a turn's last response as its result has them."""
        if main.replaces(usage, last_call=last_call):
            self._count(main, usage, "result")
        elif usage.context_tokens == main.context.tokens:
            main.output(usage.output_tokens)

    def _doubt_if_not_full(self, agent: AgentState) -> None:
        """Doubt the window where a request was too long although the context takes far less of it."""
        tokens = agent.context.tokens
        if tokens is not None and tokens < FAR_BELOW * self.windows.of(agent.model).tokens:
            self.windows.doubt(agent.model)

    def _report(self, event: WindowReport) -> AgentState | None:
        main = self.registry.main
        main.asks(event.model)
        if main.model is None and event.model:
            main.named(event.model)
        model = event.model or main.model
        if event.parts and self.session_id in (None, event.session_id):
            self._changed_groups(main, main.map.reported(event.parts))
        if event.window and self.windows.learn(model, event.window, "context_usage"):
            return self.registry.main
        return None

    def _changed_groups(self, main: AgentState, changes: Mapping[str, float]) -> None:
        """Note which fixed parts the CLI says have grown: they may be the cause of an alarm."""
        for cause, groups in (("memory", ("memory",)), ("tools", ("tools", "mcp", "skills", "agents"))):
            if sum(changes.get(group, 0.0) for group in groups) >= LEAST:
                main.noted.add(cause)

    def _edited(self, event: ContextEdited) -> AgentState | None:
        agent = self.registry.find(event.agent)
        if agent is not None:
            agent.noted.add(event.cause)
        return None

    def _total(self, event: TotalTokens) -> AgentState | None:
        main = self.registry.main
        if event.model:
            main.model = event.model
        main.responses += event.answer_id is None or event.answer_id != main.current  # a stream is one response
        main.current = event.answer_id
        for estimator in main.estimators.values():
            estimator.total(event)
        return main

    def _subagent(self, event: SubagentStart) -> AgentState | None:
        return None if event.tool_use_id is None else self.registry.join(event.agent_id, event.tool_use_id)


def _told(agent: AgentState, usage: Usage | None) -> None:
    """Note that the present answer's output is the real one, once its end has said it."""
    context = agent.context
    if usage is not None and 0 < usage.output_tokens <= (context.output or 0) and context.message_id == agent.current:
        context.told = True


def is_other(model: str, known: str | None) -> bool:
    """Tell whether a response's model is another than the one that was asked for by a longer or shorter name.

    What is no text is another one, so that a reader looks at it.
    """
    return known is None or model.__class__ is not str or plain_name(model) != plain_name(known) or "[" not in known


HANDLERS: Final[Mapping[type, Callable[[EventReducer, Any], AgentState | None]]] = {
    SessionStart: EventReducer._session,
    Response: EventReducer._response,
    UsageDelta: EventReducer._delta,
    Appended: EventReducer._appended,
    Link: EventReducer._link,
    Compaction: EventReducer._compaction,
    Summary: EventReducer._summary,
    Reset: EventReducer._reset,
    TurnEnd: EventReducer._turn_end,
    Refusal: EventReducer._refusal,
    SubagentStart: EventReducer._subagent,
    WindowReport: EventReducer._report,
    ContextEdited: EventReducer._edited,
    TotalTokens: EventReducer._total,
}
