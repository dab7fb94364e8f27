"""What each event does to the agents of one client's sessions.

The table `HANDLERS` says which method takes which event. A method changes the state of one agent (see `agent_state`)
and returns that state, or `None` where no number moved. The rules are the same for live messages and for transcripts.
Three rules need more memory than an agent's own state, and each has a table of bounded size in `registry`:

* The ids of messages that were counted. One response comes as several messages, and old rows come again: a compaction
  writes them again, a fork copies them.
* The place of each row: its context, and how many parts that context had. A row goes on from the place of its parent.
  If that place is not in the present context, the conversation went back to it (a rewind, an abandoned branch), and the
  parts that were appended elsewhere do not count. A row without a parent begins a new conversation.
* The subagents, and the Task call that started each of them.

Where the parent is unknown, the conversation goes on from its end: live messages name no parent, and the table forgets
old rows.
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
"""The oldest known CLI that leaves out an answer that is nothing but a thought; 2.1.29 sent such an answer."""
_OWN_ALONE: Final = (2, 1, 167)
"""The oldest known CLI that sends a model only its own thinking; 2.1.150 sent each model the thinking of all."""
_KEEPS_CONTEXT: Final = frozenset({"resume", "fork"})


class EventReducer:
    """The sessions of one client, as far as events have told of them.

    Args:
        windows: the windows of the models.
        snapshot_of: makes the snapshot of an agent. It is kept at a compaction, which is then compared with it.
        model: the model until a message names one.
        counts_text: whether all text is counted from the start.
        remembers: the most rows and responses that are remembered.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW`; may be set at any time.
        lookout: where agents note alarms; `None` if neither alarms nor parts are wanted.

    Attributes:
        clock: gives the time of a live message, in seconds since the epoch (rows have their own); set it at any time.
        registry: the agents of the present session; a change of session puts another object here.
        session_id: the session; `None` before the first event that names it.
        cli: the version of the CLI; `None` before the first event that names it.
        sessions_seen: how many sessions there were.
        counts_text: whether all text is counted, also in later sessions; see `count_text`.
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
        """Forget the conversation and its agents, but not the windows of the models."""
        self.registry = AgentRegistry(
            model, counts_text=self.counts_text, remembers=self._remembers, lookout=self.lookout
        )
        self._turn_began = 0
        self.written_by(self.cli)

    def written_by(self, cli: str | None) -> None:
        """Note the CLI's version, which decides what thinking a request leaves out (see `ContextState.thought`)."""
        self.cli = cli
        # An unknown version is taken for a current one. Old recordings name theirs: one of 2.1.92 had a false alarm,
        # 78,775 tokens in the request where 72,753 were projected, while the rule of 2.1.167 was applied to it.
        version = _OWN_ALONE if cli is None else version_numbers(cli)
        self.registry.no_thought = None if version < _LEAVES_OUT else SHARED if version < _OWN_ALONE else NO_THOUGHT

    @property
    def responses_in_turn(self) -> int:
        """How many responses the main agent has given since the end of the last turn."""
        return self.registry.main.responses - self._turn_began

    def leave(self) -> None:
        """Forget the session too, so that the next one counts as the first."""
        self.session_id = None
        self.start_over(self.registry.main.model)

    def count_text(self) -> None:
        """Count all text from now on, even if no projection is asked for."""
        if not self.counts_text:
            self.counts_text = True
            self.registry.count_text()

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _session(self, event: SessionStart) -> AgentState | None:
        main = self.registry.main
        changed = self._enter(event.session_id, keep=event.source in _KEEPS_CONTEXT)
        if event.source in _KEEPS_CONTEXT and not self.registry.main.responses:
            # The first request of a resumed session or a fork is the whole old context. It must not become the
            # baseline that every estimate after a compaction adds.
            self.registry.main.rooted = False
        self.windows.asked(event.betas)
        self.written_by(event.cli or self.cli)
        model = event.model
        if model:
            self.windows.named(model)
            self.registry.main.asks(model)
            # Every turn begins with an `init` that names the model as it was asked for. Once a response has named its
            # own, only the request goes by the asked name.
            if not self.registry.main.responses and self.registry.main.model != model:
                self.registry.main.model, changed = model, True
        return self.registry.main if changed or self.registry.main is not main else None

    def _enter(self, session_id: str | None, *, keep: bool) -> bool:
        """Note the session, and return whether it is another one; its context is unknown unless `keep` is set."""
        # A message whose session_id was NaN, equal to nothing, began a session each time.
        if session_id == self.session_id or not isinstance(session_id, str):
            return False
        if self.session_id is not None and not keep:
            self.start_over(self.registry.main.model)
        self.session_id = session_id
        self.sessions_seen += 1
        return True

    def _reset(self, event: Reset) -> AgentState | None:
        registry, main = self.registry, self.registry.main
        # The stream's `/clear` ends the session: its message names the old one, which may be over already.
        if event.uuid is None:
            if event.session_id is not None and self.session_id not in (None, event.session_id):
                return None
            self.start_over(main.model)
            self.registry.main.resets = main.resets + 1
            # A `/clear` leaves the tools and memory files as they are, so what the CLI said of them still holds.
            self.registry.main.map.fixed = main.map.fixed
            return self.registry.main
        # A transcript's `/clear` is a row, the root of a new conversation in the same file.
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
        key, session_id, _, model, usage, content, stop_reason, uuid, parent, source, _, time, hour, said = event
        # Step 1: find the session, the agent, and the response that this message is a part of.
        if session_id != self.session_id and session_id is not None and not self._same_session(event):
            return None
        registry = self.registry
        agent = registry.main if key is None else registry.owner(event)
        again = registry.knows(uuid)
        # A response comes as several messages with one id, one for each content block, and counts once (case core-09).
        # Without id and counts each row stands for itself.
        identity = event.identity
        if identity != agent.current and not self._begin(event, agent, identity, again):
            return None
        # Step 2: the model before the counts, because the cache's prices and the window are the model's.
        if model != agent.model and model and is_other(model, agent.model):
            agent.named(model)
            self.windows.of(model)  # from now on `windows.smallest` knows this model too, see `check_window`
        changed = usage is not None and agent.count(usage, source, hour, time or self._now())
        if changed:
            self.check_window(agent)
        # Step 3: the text, after the counts, because it belongs to the context that the counts began.
        # Rows that a compaction kept are written again after its boundary, without counts (cases core-03 and core-30).
        # Their text is in the boundary's own figure, so it must not be appended once more.
        if content and not again and (usage is not None or not agent.kept(uuid)):
            agent.add("response", content)
            registry.sign(uuid, content, agent, said)
        if stop_reason is not None:
            agent.stop(stop_reason)
        registry.note(uuid, parent, agent)
        return agent if changed else None

    def _begin(self, event: Response, agent: AgentState, identity: object, again: bool) -> bool:
        """Begin a response, unless it was counted before; return whether it was begun."""
        _, _, message_id, _, _, _, _, uuid, parent, _, request_id, time, _, _ = event
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
        """Enter a response's session; return whether the response counts."""
        # A subagent in the background may answer after the main agent's session has changed. Its response must not
        # bring the old session back.
        if self.session_id is not None and event.agent is not None:
            return False
        # A file may hold several session ids. A response that goes on from a known row keeps its context.
        self._enter(event.session_id, keep=bool(event.parent) and self.registry.knows(event.parent))
        return True

    def _count(self, agent: AgentState, usage: Usage, source: str) -> bool:
        changed = agent.count(usage, source, time=self._now())
        if changed:
            self.check_window(agent)
        return changed

    def check_window(self, agent: AgentState) -> None:
        """Correct the window if the request that was just counted is larger: the API took it."""
        tokens = agent.context.tokens or 0
        # `smallest` is an attribute, `of` a call: nearly every request is below every window.
        if tokens > self.windows.smallest and tokens > self.windows.of(agent.model).tokens:
            self.windows.accepted(agent.model, tokens)

    def _delta(self, event: UsageDelta) -> AgentState | None:
        agent = self.registry.agent(event.agent)
        if agent.current is None:
            return None
        usage = event.usage
        changed = False
        # Some bridges put zeros into `message_start`: then only the delta has the size (case core-17). From all others
        # it brings the real output, where the messages had a placeholder.
        if usage is not None and agent.replaces(usage, last_call=event.last_call):
            changed = self._count(agent, usage, "delta")
        elif usage is not None:
            changed = agent.output(usage.output_tokens)
        if event.thought and agent.context.signed:
            self.registry.states(agent, event.thought)
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
        # Step 1: go to the place that the row goes on from. Only a prompt may begin or take back something: results of
        # tools that ran side by side name the call as their parent, not the row before them.
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
        # Step 2: a `prompt_snapshot` repeats the system prompt and the tools, which the API's counts have already.
        if kind == "attachment" and kind_of(content) == "prompt_snapshot":
            if agent.lookout is not None:
                agent.map.snapshot(content, CHARS_PER_TOKEN[family(agent.model)])
            registry.note(uuid, parent, agent)
            return agent if moved else None
        # Step 3: hold the text for the projection of the next request.
        if not agent.responses:
            agent.opening.add(kind, content)
        agent.asks(model_set(kind, content), switched=True)
        context = agent.context
        # After a boundary the size is the CLI's figure or our own. Both have the attachments in them, and the rows that
        # a compaction by reference keeps, so these rows must not count twice.
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
        # Before `_compact`: the snapshot of the time before is compared with the CLI's own `pre_tokens`, and CLIs count
        # differently (2.1.1 to 2.1.39 leave an answer's later rows out).
        agent.context.interval.counted_by(event.version)
        self._compact(agent, event.pre_tokens, event.post_tokens, turn=event.trigger == "auto")
        agent.preserved, agent.wait_summary = event.preserved, True
        # Thinking of kept messages has no characters, so `post_tokens` lacks it: 19,056 were said for 26,202 (core-30).
        agent.context.keeps(self.registry.kept_thinking(event.preserved), self.registry.no_thought)
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
        # Old CLIs (1.0.89) write no boundary: then the summary is the compaction. After a boundary it is a part of one.
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
            # The usage sums up the turn's requests. It is a size only where the turn had one request, by our count and
            # by the CLI's: a message that we missed would make a sum look like a size.
            single = responses == 1 and (event.num_turns is None or event.num_turns <= 1)
            usage = event.last_call or (event.usage if single else None)
            if usage is not None:
                self._last_of_turn(main, usage, last_call=event.last_call is not None)
                # An interrupted answer's output is a placeholder here too: taken for the real one, it made `projected`
                # miss 17 % with partial messages.
                if event.subtype == "success":
                    _told(main, usage)
            if not main.context.cut:
                main.stop("end_turn")
        # The turn's sums have the real output of each response in them, so they come after what it corrects.
        # The other way round the last response's output was twice in the cumulative sum (case core-32).
        main.turn(event.usage)
        # An overflow looks like success: the subtype is `success`, and only the reason tells (paperclip#10760).
        if event.terminal_reason == "prompt_too_long":
            main.overflows += 1
            self._doubt_if_not_full(main)
        return main

    def _last_of_turn(self, main: AgentState, usage: Usage, *, last_call: bool) -> None:
        """Take the counts of the turn's last response from the turn's result."""
        if main.replaces(usage, last_call=last_call):
            self._count(main, usage, "result")
        elif usage.context_tokens == main.context.tokens:
            main.output(usage.output_tokens)

    def _doubt_if_not_full(self, agent: AgentState) -> None:
        """Mark the window as doubtful if a request was too long although the context fills far less of it."""
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
        """Note which fixed parts have grown, as the CLI says: they may be the cause of an alarm."""
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
    """Note that the present answer's output is the real one, after the answer's end has confirmed it."""
    context = agent.context
    if usage is not None and 0 < usage.output_tokens <= (context.output or 0) and context.message_id == agent.current:
        context.told = True


def is_other(model: str, known: str | None) -> bool:
    """Tell whether the name of the model in a response replaces the `known` name.

    A known name with a suffix such as `[1m]` stays if both mean one model: the window depends on the suffix, and
    responses do not repeat it. A `model` that is no text replaces it too, so that the careful path checks it.
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
