"""What the prompt cache did in recorded sessions: every response counts once, in the agent that made it.

A fork's file, and a resumed one's, repeat rows of the session that they came from. Their requests go through the
tracker like all others, or the first new one would have nothing to be compared with; but they count where they were
made, in the order of `replay.sessions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from mala_context.analysis.prices import dollars
from mala_context.analysis.replay.engine import Engine, Progress, read_all
from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.cache import CacheUse, CauseSum, Rewrite
from mala_context.tracking.events import Event, Response


class Written(NamedTuple):
    """A request that wrote something again, or a first one."""

    row: int
    """The response's first row, counted from 1."""
    time: str | None
    """When that was written."""
    rewrite: Rewrite
    """What it wrote, and why."""


@dataclass(slots=True)
class AgentCache:
    """What the cache did for one agent of a recording."""

    path: str
    """The recording."""
    session_id: str | None = None
    """Its session."""
    agent_id: str | None = None
    """A subagent's id; `None` for the main agent."""
    model: str | None = None
    """The model of the last response."""
    responses: dict[str, tuple[CacheUse, Written | None]] = field(default_factory=dict)
    """By the ids of messages."""
    age: tuple[Any, ...] = ()
    """Sorts agents so that a response counts where it was made."""

    @property
    def use(self) -> CacheUse:
        """What the cache did in all."""
        return reduce(CacheUse.plus, (use for use, _ in self.responses.values()), CacheUse())

    @property
    def written(self) -> list[Written]:
        """Each request that wrote something again, in order."""
        return [written for _, written in self.responses.values() if written is not None]

    @property
    def dollars(self) -> float | None:
        """What it cost to write again and not to read, in US dollars: an estimate; see `prices` for errors."""
        return dollars(self.model, self.use.cost)

    def as_dict(self, *, money: bool = False) -> dict[str, Any]:
        """Return the figures for JSON, an estimate in US dollars among them where it is asked for."""
        rewrites = [{"row": row, "time": time, **rewrite._asdict()} for row, time, rewrite in self.written]
        row = {name: getattr(self, name) for name in ("session_id", "agent_id", "path", "model")}
        row |= {"responses": len(self.responses), **self.use.as_dict(), "rewrites": rewrites}
        return row | ({"usd_estimate": self.dollars} if money else {})


class CacheReader(RecordingReader):
    """Follows a recording and notes what the cache did for each response."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.agents: dict[AgentState, AgentCache] = {}
        self._known: dict[AgentState, CacheUse] = {}

    def after(self, event: Event, state: AgentState | None) -> None:
        """Take what a response changed."""
        if state is None or not isinstance(event, Response):
            return
        agent = self.agents.get(state)
        if agent is None:
            agent = self.agents[state] = AgentCache(self.recording.path, self.tracker.session_id)
        now, known = state.cache.use, self._known.get(state, CacheUse())
        agent.agent_id, agent.model, self._known[state] = state.agent_id or state.tool_use_id, state.model, now
        identity = event.message_id or event.uuid or str(self.number)
        use, written = agent.responses.get(identity, (CacheUse(), None))
        rewrite = state.cache.last
        if not any(use[:4]) and rewrite is not None:
            written = Written(self.number, event.time, rewrite)
        causes = () if written is None else ((written.rewrite.cause, CauseSum().plus(1, *written.rewrite[1:3])),)
        uncached, short, hour, read = (
            mine + new - old for mine, new, old in zip(use[:4], now[:4], known[:4], strict=True)
        )
        agent.responses[identity] = (CacheUse(uncached, short, hour, read, causes), written)


def read_one(recording: Recording) -> list[AgentCache]:
    """Say what the cache did for each agent of one recording; never raises."""
    reader = CacheReader(recording)
    stretches = reader.run()
    found = list(reader.agents.values())
    for agent in found:
        agent.age = (agent.agent_id is not None, stretches[0].is_fork, stretches[0].started_at or "~", agent.path)
    return found


def read_cache(
    paths: Iterable[str], *, jobs: int | None = None, progress: Progress | None = None, engine: Engine | None = None
) -> list[AgentCache]:
    """Say what the cache did for every agent in the paths, main agents before subagents, in order of their start.

    Raises `RecordingNotFoundError` for a path that is not there.
    """
    found: list[AgentCache] = read_all(find(paths, progress), read_one, jobs=jobs, progress=progress, engine=engine)
    found.sort(key=lambda each: each.age)
    seen: set[str] = set()
    for agent in found:
        agent.responses = {identity: each for identity, each in agent.responses.items() if identity not in seen}
        seen.update(agent.responses)
    return [each for each in found if each.responses]


def total(agents: Sequence[AgentCache]) -> CacheUse:
    """Return what the cache did for all of them."""
    return reduce(CacheUse.plus, (each.use for each in agents), CacheUse())
