"""Events in, snapshots out: how full each agent's context is.

The reducer applies each event to the agents' states. The tracker makes a snapshot of a state at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.auto_compact import LARGEST_WINDOW, auto_compact_threshold
from mala_context.tracking.context_state import FirstRequest
from mala_context.tracking.estimators import ESTIMATORS, Estimate
from mala_context.tracking.events import Appended, Compaction, Event, Response
from mala_context.tracking.reducer import HANDLERS, EventReducer
from mala_context.tracking.registry import RECORDED
from mala_context.tracking.snapshot import ContextSnapshot
from mala_context.tracking.truth_alarm import ALARM_AT, Lookout, Surprise
from mala_context.tracking.windows import Window, Windows

__all__ = ["ContextSnapshot", "ContextTracker"]


class ContextTracker:
    """Follows one client's sessions: feed it every event, in order, and ask at any time.

    Args:
        estimator: the formula of `ratio`; one of `estimators.ESTIMATORS`.
        window: the window from the configuration, in tokens; it wins over every other source.
        model: the model until a message names one, with its `[1m]` suffix.
        betas: beta features that the options ask for.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW`; without it the CLI does not compact proactively.
        remembers: the most rows and responses that are remembered. The tracker needs them to recognise rows that come
            again, and to find the place where a conversation goes back to. `registry.LIVE` is enough for the messages
            of one client, and keeps a tracker small.
        parts: whether snapshots list what fills the context, and requests are compared with their projections.
        alarm_at: share of the projected request from which a difference is an alarm; `None` for no alarms.

    Raises `ValueError` for an unknown estimator, a model that is no text, and a window that is no number or above
    100,000,000. No event raises anything. Memory stays flat however long it runs. Not safe to share between threads.
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
        parts: bool = True,
        alarm_at: float | None = ALARM_AT,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise ValueError(f"unknown estimator {estimator!r}: one of {', '.join(ESTIMATORS)} would be right")
        if not isinstance(model, str | None):
            raise ValueError(f"model is {model!r}: a model's name, a text, would be right")  # noqa: TRY004
        if window is not None and (isinstance(window, bool) or not isinstance(window, int)):
            raise ValueError(f"window is {window!r}: a number of tokens would be right")
        if window is not None and window > LARGEST_WINDOW:
            raise ValueError(f"window is {window!r:.80}: at most {LARGEST_WINDOW:,} tokens would be right")
        self.estimator = estimator
        self.windows = Windows(window, betas)
        self.lookout = Lookout(alarm_at) if parts else None
        if model:
            self.windows.named(model)
        self.reducer = EventReducer(
            self.windows,
            self.snapshot_of,
            model=model,
            counts_text=estimator == "characters",
            remembers=remembers,
            auto_compact_window=auto_compact_window,
            lookout=self.lookout,
        )
        """The state that the events have made; `fast_path` changes it directly."""

    def apply(self, event: Event) -> ContextSnapshot | None:
        """Take one event; return the snapshot of the agent that it changed, or `None` if no number moved.

        An appended text moves only `projected` and `cli_estimate`: ask `snapshot()` for them.
        """
        agent = self.advance(event)
        return None if agent is None else self.snapshot_of(agent, event.__class__.__name__)

    def advance(self, event: Event) -> AgentState | None:
        """Take one event like `apply`, but return the changed agent's state itself, for readers of many rows.

        The state is the tracker's own: read it before the next event, and change nothing in it.
        """
        handler = HANDLERS.get(event.__class__)
        return handler(self.reducer, event) if handler is not None else None

    @property
    def session_id(self) -> str | None:
        """The present session; `None` before the first event that names one."""
        return self.reducer.session_id

    @property
    def sessions_seen(self) -> int:
        """How many sessions there have been, the present one included."""
        return self.reducer.sessions_seen

    @property
    def responses_in_turn(self) -> int:
        """How many responses the main agent has given since the last turn's end."""
        return self.reducer.responses_in_turn

    @property
    def auto_compact_window(self) -> int | None:
        """`CLAUDE_CODE_AUTO_COMPACT_WINDOW`; it may be set at any time."""
        return self.reducer.auto_compact_window

    @auto_compact_window.setter
    def auto_compact_window(self, tokens: int | None) -> None:
        self.reducer.auto_compact_window = tokens

    @property
    def main(self) -> AgentState:
        """The main agent's own state, as `advance` returns it; another object after the session changed."""
        return self.reducer.registry.main

    @property
    def subagents(self) -> Mapping[str, AgentState]:
        """States of the subagents, by the same keys as `agents`."""
        return self.reducer.registry.subagents

    def state_of(self, event: Response | Appended | Compaction) -> AgentState:
        """Return the state of the agent that an event is about; call it right after the event was taken."""
        return self.reducer.registry.owner(event)

    def estimates_of(self, agent: AgentState) -> Mapping[str, Estimate]:
        """Return what every formula says of an agent, by its state."""
        return {name: agent.estimate(name) for name in ESTIMATORS}

    @contextmanager
    def without_alarms(self) -> Iterator[None]:
        """Compare no request with its projection while the block runs."""
        lookout = self.lookout or Lookout(None)
        at, lookout.at = lookout.at, None
        try:
            yield
        finally:
            lookout.at = at

    def alarms(self) -> list[Surprise]:
        """Return the requests, since the last call, that were not what was projected."""
        if self.lookout is None:
            return []
        found = list(self.lookout.found)
        self.lookout.found.clear()
        return found

    def window_of(self, model: str | None) -> Window:
        """Return the window of a model, by all that is known now."""
        return self.windows.of(model)

    def holds_row(self, uuid: str) -> bool:
        """Tell whether a row of this id was seen among the newest that are remembered."""
        return self.reducer.registry.knows(uuid)

    def snapshot(self, agent_id: str | None = None) -> ContextSnapshot:
        """Return what is known now, of the main agent or of a subagent (by either of its ids).

        An unknown id gives a snapshot in which everything is unknown. By default the SDK's stream lacks a foreground
        subagent's final text (`forward_subagent_text`), so a live subagent's value may be late.
        """
        found = self.main if agent_id is None else self.reducer.registry.find(agent_id)
        return self.snapshot_of(found or AgentState(agent_id))

    def agents(self) -> Mapping[str, ContextSnapshot]:
        """Return a snapshot of every subagent, by the id of its Task call where known, else by its own id."""
        return MappingProxyType(
            {key: self.snapshot_of(agent) for key, agent in self.reducer.registry.subagents.items()}
        )

    def estimates(self, agent_id: str | None = None) -> Mapping[str, Estimate]:
        """Return the estimate of every formula for an agent, by the formula's name.

        `characters` needs all text to be counted, which costs time. So text is counted from the first call on, or from
        the start if `characters` is the chosen estimator. If earlier text was not counted, its value is `None`.
        """
        self.reducer.count_text()
        return self.estimates_of(self.reducer.registry.find(agent_id) or AgentState(agent_id))

    def note_kept(self, agent_id: str | None, characters: int | None) -> None:
        """Note how much the next compaction keeps; its estimate then uses this number, because the CLI's count varies.

        Args:
            agent_id: the agent, by either of its ids; `None` for the main agent.
            characters: the characters of messages that stay; `None` if the CLI makes the compaction after all.
        """
        agent = self.reducer.registry.find(agent_id)
        if agent is not None:
            agent.kept_chars = characters

    def reset(self) -> None:
        """Forget the conversation and its session before a fresh one begins; the windows of models stay."""
        self.reducer.leave()

    def note_opening(self, events: Sequence[Event]) -> None:
        """Note the text of the session's first request, for example from the head of its transcript.

        Live messages do not show this text. Only events before the first response count. No size changes now, but the
        estimate after a compaction becomes better.
        """
        opening = FirstRequest()
        for event in events:
            if isinstance(event, Response):
                break
            if isinstance(event, Appended) and event.agent is None:
                opening.add(event.kind, event.content)
        if opening.known:
            self.main.opening = opening

    def snapshot_of(self, agent: AgentState, event: str = "snapshot") -> ContextSnapshot:
        """Return the present snapshot of an agent's state, as `advance` returns it; `event` names the last change."""
        context, model = agent.context, agent.model
        parts = len(context.parts)
        window, source, doubtful = self.windows.of(model)
        name = self.estimator
        estimate = context.tokens
        if name != "occupancy":
            answer = agent.estimate(name)
            estimate = answer.tokens
            if answer.window is not None and source in ("table", "guess"):
                window, source = answer.window, "guess"
        reducer, automatic = self.reducer, self.reducer.auto_compact_window
        return ContextSnapshot(
            reducer.session_id,
            agent.agent_id,
            agent.tool_use_id,
            model,
            context.tokens,
            context.output,
            window,
            source,
            doubtful,
            None if automatic is None else auto_compact_threshold(window, automatic),
            context.accuracy == "exact",
            context.accuracy,
            context.source,
            agent.responses,
            agent.compactions,
            agent.overflows,
            agent.resets,
            agent.helped,
            agent.by_reference,
            name,
            estimate,
            event,
            agent.before,
            context.interval,
            parts,
            context.cut_at(parts),
            context.told,
            context.switched(parts) if context.follows or agent.forgets else 0,
            agent.map.view(),
            agent.cache.use,
        )
