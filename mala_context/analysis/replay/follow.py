"""What the tracker has to see of a transcript that `scan` reads: rows that were held back, and those that say more.

Contexts are numbered, and a row belongs to its parent's. Where a row goes back to one that was let go, the rows from
that context's response up to it are read again by a tracker of their own, and the place that it finds is handed on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.lanes import Lane, RecordingLines
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.rows import decode
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.events import Compaction, Event, Response, Summary
from mala_context.tracking.readers import read_row
from mala_context.tracking.readers.parts import mapping, text
from mala_context.tracking.text_counts import Length
from mala_context.tracking.token_costs import is_measured
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage

PLACES: Final = 8_192
"""Rows whose context is remembered, at least: more than the tracker remembers."""
_KEPT: Final = 1_000
"""Lines before a compaction among which the rows that it keeps are looked for."""


class NeedsRatio(Exception):  # noqa: N818  (not an error either)
    """A recording whose last number is an estimate, which depends on what its text has cost so far."""


class Follower(RecordingReader):
    """Knows each agent's lane, the place of each row, and how to let the tracker have either."""

    def __init__(self, recording: Recording, *, learns: bool = False) -> None:
        super().__init__(recording)
        self._learns = learns
        self._guesses = not learns
        """Whether an estimate may be needed that was not learned for."""
        self._source = RecordingLines(recording.path)
        self._places: dict[str | None, int] = {}
        self._older: dict[str | None, int] = {}
        self._seen: dict[str, str | None] = {}
        """Responses, each with its request's id."""
        self._count = 0
        """Contexts so far."""
        self._entered: str | None = None
        """The session of the responses, which the tracker may not know yet."""
        self._forget()
        self._begun[self._main_lane.context] = 0, [], [], []

    def _forget(self) -> None:
        """Know no row, no response, and no agent but the main one."""
        self._places.clear()
        self._older.clear()
        self._seen.clear()
        self._lanes: dict[AgentState, Lane] = {}
        self._named: dict[str, Lane] = {}
        self._owners: dict[int, Lane] = {}
        """The lane of each context."""
        self._begun: dict[int, tuple[int, list[str], list[int], list[int]]] = {}
        """Of contexts whose rows may have been let go: a stretch's first line and ids, and where responses begin: their
        places among these, and their lines."""
        self._main_lane = self._lane = self._lane_of(self.tracker.main)
        self._who: str | bool | None = None
        """Author of the rows before, whose lane `_lane` is."""

    def _lane_of(self, state: AgentState) -> Lane:
        lane = self._lanes.get(state)
        if lane is None:
            lane = self._lanes[state] = Lane(state, self._tally(state))
            lane.context = self._number(lane)
        return lane

    def _number(self, lane: Lane) -> int:
        """Give another context of a lane a number."""
        self._count += 1
        self._owners[self._count] = lane
        return self._count

    def _turn(self) -> None:
        """Begin another generation of places where there are enough; of the one before the last nothing is kept."""
        if len(self._places) > PLACES:
            self._older, self._places = self._places, {}
            oldest = min(self._older.values())
            self._begun = {each: line for each, line in self._begun.items() if each >= oldest}
            self._owners = {each: lane for each, lane in self._owners.items() if each >= oldest or each == lane.context}

    def _special(self, rows: list[dict[str, Any]], number: int) -> None:
        """Let the tracker have what was held back, and then a line's rows."""
        waiting = [lane for lane in self._lanes.values() if lane.held]
        for lane in waiting:
            self._sync(lane)
        for row in rows:
            for name in ("parentUuid", "logicalParentUuid", "uuid"):
                self._ensure(row.get(name), number)
            self._remember(row, number)
            identity = text(mapping(row.get("message")).get("id"))
            if identity in self._seen:
                self.tracker.reducer.registry.was_counted(identity, self._seen[identity])
        self.number = number + 1
        for row in rows:
            self._row(row)
        if self.tracker.main is not self._main_lane.state:
            self._forget()
        self._entered = self.tracker.session_id
        for lane in {*waiting, self._main_lane}:
            if lane.state in self._lanes:
                self._look(lane)
        self._place(rows)

    def _remember(self, row: Mapping[str, Any], number: int) -> None:
        """Have the tracker know the thinking of the rows that a compaction keeps; they may have been let go."""
        kept = mapping(mapping(row.get("compactMetadata")).get("preservedMessages")).get("uuids")
        if not kept or not isinstance(kept, list):
            return
        for each in (
            each for line in self._source.get(range(max(0, number - _KEPT), number)) for each in decode(line)[0]
        ):
            message = mapping(each.get("message"))
            if each.get("uuid") in kept and each.get("type") == "assistant":
                registry = self.tracker.reducer.registry
                registry.remember(text(each.get("uuid")), message.get("content"), text(message.get("model")))

    def _first_of(self, number: int) -> None:
        """Let the tracker have an agent's first row, which changes nothing for the others."""
        rows = [row for line in self._source.get((number,)) for row in decode(line)[0]]
        self.number = number + 1
        for row in rows:
            self._row(row)
        self._place(rows)
        for row in rows:
            place = self._places.get(row.get("uuid"))
            if place is not None:  # so the rows up to the first response need not be the tracker's
                self._begun.setdefault(place, (number, [], [], []))

    def _sync(self, lane: Lane) -> None:
        """Let the tracker have what a lane holds back."""
        held, lane.held, lane.bare = lane.held, [], 0
        for number, line in zip(held, self._source.get(held), strict=True):
            self.number = number + 1
            for row in decode(line)[0]:
                if number == held[0] and not row.get("agentId"):
                    self._own(row.get("parentUuid"), lane.state)
                self._row(row)
        if lane.dropped and lane.state.left is not None:  # its own text is the tracker's previous one, and long over
            lane.state.left[0].let_go()
            lane.state.left = None
        lane.fed, lane.dropped, lane.known = True, False, lane.state.context

    def _own(self, uuid: Any, state: AgentState) -> None:
        """Have the tracker know whose row this is: a sidechain without a name is known by the row before."""
        if isinstance(uuid, str) and state is not self.tracker.main and not self.tracker.holds_row(uuid):
            self.tracker.reducer.registry.rows.put(uuid, state.context, len(state.context.parts))

    def _look(self, lane: Lane) -> None:
        """See where the tracker has a lane's agent."""
        state = lane.state
        if state.context is not lane.known:
            lane.before, lane.context, lane.known = lane.context, self._number(lane), state.context
        lane.current = state.current if isinstance(state.current, str) else None
        lane.based = state.context.message_id
        if state.model is not None:
            lane.model, lane.limit = state.model, self.tracker.window_of(state.model).tokens

    def _place(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """See where the tracker has rows that it took, and whose they are."""
        registry = self.tracker.reducer.registry
        for row in rows:
            uuid, agent = text(row.get("uuid")), text(row.get("agentId"))
            found = registry.rows.place(uuid) if uuid is not None else None
            if found is not None:
                lane = self._lane_of(found[0].owner)
                self._look(lane)
                self._places[uuid] = lane.context if found[0] is lane.known else self._number(lane)
            state = None if agent is None else registry.find(agent)
            if agent is not None and state is not None:
                self._named[agent] = self._lane_of(state)
        self._lane, self._who = self._main_lane, None

    def _ensure(self, uuid: Any, number: int) -> None:
        """Have the tracker know the place of a row before this line, if the row was let go."""
        place = self._places.get(uuid, self._older.get(uuid)) if isinstance(uuid, str) else None
        rows = self.tracker.reducer.registry.rows
        lane = None if place is None else self._owners.get(place)
        if place is None or lane is None or rows.place(cast("str", uuid)) is not None:
            return
        if place not in self._begun:
            return
        tracker = ContextTracker(parts=False)
        tracker.reducer.written_by(self.tracker.reducer.cli)
        first, uuids, at, lines = self._begun[place]
        answers = bisect_right(at, uuids.index(uuid)) if uuid in uuids else len(at)
        begun = first + (lines[answers - 1] if answers else 0)
        found, lines_after = None, self._source.get(range(begun, number))
        for event in (event for line in lines_after for row in decode(line)[0] for event in read_row(row)):
            known = getattr(event, "uuid", None)
            if self._places.get(known, self._older.get(known, place)) < place:
                continue  # a row that comes again, and whose place is before this one
            if found is not None and isinstance(event, Response) and event.message_id != found[0].message_id:
                break  # only here the output of the place's response is known
            tracker.advance(event)
            found = found or tracker.reducer.registry.rows.place(uuid)
        if found is not None:
            context, parts = found
            context.owner, context.pinned = lane.state, True
            if place != lane.before:
                if not is_measured(context.model):  # of whose text the tracker learns, and so measures it
                    context.interval.measure()
                context.let_go()
            rows.put(uuid, context, parts)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Tell the tracker of each agent's last response; its text is not asked for any more."""
        for lane in self._lanes.values():
            if lane.fed and lane.held and lane.state.context.source == "boundary":
                self._sync(lane)  # what a compaction by reference kept tells of its size
            self._tell(lane)

    def _tell(self, lane: Lane) -> None:
        """Tell the tracker of the response that a lane holds back, if it does, and nothing of its text."""
        if not lane.fed:
            usage, identity = Usage(cache_read_tokens=lane.tokens), cast("str", lane.based)
            agent, session = self.tracker.reducer.registry.key(lane.state), self._entered
            told = Response(agent, session, identity, lane.model, usage, uuid=lane.row, source="row")
            self._event(told._replace(request_id=self._seen.get(identity)), {})
        if lane.bare:
            lane.state.responses += lane.bare
            lane.state.current, lane.state.begun = lane.current, len(lane.state.context.parts)
        lane.held, lane.bare, lane.fed, lane.dropped, lane.known = [], 0, True, False, lane.state.context

    def _response(self, event: Response, row: Mapping[str, Any]) -> None:
        super()._response(event, row)
        if event.message_id is not None and self.tracker.state_of(event).current == event.message_id:
            self._seen.setdefault(event.message_id, event.request_id)

    def before(self, event: Event) -> None:
        """See that no compaction is held against what is not known: an estimate, or the length of text let go."""
        main, context = self.tracker.main, self.tracker.main.context
        if not self._guesses or not (
            isinstance(event, Compaction) or (isinstance(event, Summary) and not main.wait_summary)
        ):
            return
        rows = self.tracker.reducer.registry.rows
        goes_back = bool(event.parent) and rows.context(event.parent or "") not in (None, context)
        went_back = any(content.__class__ is Length for _, content in context.parts)
        if goes_back or went_back or context.source == "boundary":
            raise NeedsRatio

    def _close(self, session_id: str | None) -> None:
        if self._guesses and any(state.context.source == "boundary" for state in self._tallies):
            raise NeedsRatio
        super()._close(session_id)
