"""Joins stretches into sessions: main and subagents' files under one id, and each response in one session only.

A fork's file repeats the rows of the session that it came from; so does a resumed session's file of older CLIs. Its
context really holds these rows, so sizes and peaks stay. But a response was made once, and counts only in the session
that made it. The recordings alone decide which session this is, not the order in which they were read: main agents come
before subagents, originals before forks, earlier sessions before later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mala_context.analysis.replay.record import AgentRecord, SessionRecord, Stretch, Totals

_LATE = "~"
"""Sorts after every time."""


def join(stretches: Iterable[Stretch]) -> list[SessionRecord]:
    """Return the sessions in the order of their start; a recording without any session id is a session of its own."""
    ordered = sorted(stretches, key=_age)
    totals = _claim(ordered)
    groups: dict[str, list[Stretch]] = {}
    for stretch in ordered:
        groups.setdefault(key_of(stretch), []).append(stretch)
    sessions = [_session(key, group, totals.get(key, Totals())) for key, group in groups.items()]
    return sorted(sessions, key=lambda each: (each.started_at or _LATE, each.session_id or _LATE, each.path))


def key_of(part: Stretch | SessionRecord) -> str:
    """Return the key of a stretch's session: the session's id, or one made of the path if there is no usable id."""
    session_id = part.session_id
    return session_id if session_id and not session_id.startswith("\0") else f"\0{part.path}"


def _age(stretch: Stretch) -> tuple[bool, str, str, str]:
    return stretch.is_fork, stretch.started_at or _LATE, stretch.session_id or _LATE, stretch.path


def _claim(ordered: Sequence[Stretch]) -> dict[str, Totals]:
    """Remove from each agent the responses that an earlier agent has; return the remaining tokens of each session."""
    mains = [(stretch, stretch.main) for stretch in ordered]
    others = [(stretch, agent) for stretch in ordered for agent in stretch.agents]
    seen: set[int] = set()
    totals: dict[str, Totals] = {}
    for stretch, agent in (*mains, *others):
        total = totals.setdefault(key_of(stretch), Totals())
        if seen.isdisjoint(agent.ids):
            seen.update(agent.ids)
            total.add(agent.sums)
            continue
        for place, identity in enumerate(agent.ids):
            if identity in seen:
                agent.responses -= 1
            else:
                seen.add(identity)
                total.add(agent.counts[4 * place : 4 * place + 4])
        agent.responses = max(0, agent.responses)
    return totals


def _session(key: str, group: Sequence[Stretch], totals: Totals) -> SessionRecord:
    mains = [each for each in group if each.main.responses or each.main.ids or not each.agents]
    newest = max(mains or group, key=lambda each: (each.ended_at or "", each.path))
    seen: set[str | int] = set()
    compactions = []
    for stretch in mains:
        for place, compaction in enumerate(stretch.compactions):
            identity = compaction.uuid or id(compaction) + place
            if identity not in seen:
                seen.add(identity)
                compactions.append(compaction)
    main = _merge([each.main for each in mains], newest.main) if mains else AgentRecord()
    main.compactions = len(compactions)
    times = [(each.started_at, each.ended_at) for each in group]
    return SessionRecord(
        None if key.startswith("\0") else key,
        newest.path,
        main,
        _subagents(group),
        compactions,
        sum(each.resets for each in mains),
        sum(each.overflows for each in mains),
        min((start for start, _ in times if start), default=None),
        max((end for _, end in times if end), default=None),
        [problem for each in sorted(group, key=lambda each: each.path) for problem in each.problems],
        totals,
        sum(each.microcompactions for each in mains),
    )


def _subagents(group: Sequence[Stretch]) -> list[AgentRecord]:
    by_id: dict[str, list[tuple[str, AgentRecord]]] = {}
    for stretch in group:
        for agent in stretch.agents:
            by_id.setdefault(agent.agent_id or "", []).append((stretch.ended_at or "", agent))
    found = []
    for _, agents in sorted(by_id.items()):
        newest = max(agents, key=lambda each: each[0])[1]
        found.append(_merge([agent for _, agent in agents], newest))
    return found


def _merge(agents: Sequence[AgentRecord], newest: AgentRecord) -> AgentRecord:
    if len(agents) == 1:
        return newest
    peaks = [agent.peak_tokens for agent in agents if agent.peak_tokens is not None]
    return AgentRecord(
        newest.agent_id,
        newest.model,
        sum(agent.responses for agent in agents),
        newest.tokens,
        max(peaks, default=None),
        max(agent.compactions for agent in agents),
        newest.window,
        newest.window_source,
        newest.window_doubtful,
        newest.accuracy,
    )
