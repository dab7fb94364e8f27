"""Gives the tracker the rows of a transcript that it has to see: special rows, and the rows held back before them.

`scan` decides which rows these are. Contexts have numbers, and a row belongs to its parent's context. If a row goes
back to a context whose rows were dropped, a second tracker reads these rows again, from the context's response up to
the parent. The place that the second tracker finds is then given to the first one.
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
"""Least number of rows whose context is remembered: more than the tracker remembers."""
_KEPT: Final = 1_000
"""Lines before a compaction among which the rows that it keeps are looked for."""


class NeedsRatio(Exception):  # noqa: N818  (not an error either)
    """Raised for a recording whose last size is an estimate, which depends on prices learned from its text."""


class Follower(RecordingReader):
    """Knows each agent's lane and the place of each row, and gives both to the tracker."""

    def __init__(self, recording: Recording, *, learns: bool = False) -> None:
        super().__init__(recording)
        self._learns = learns
        self._guesses = not learns
        """Whether an estimate would lack prices, because this pass does not learn them."""
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
        """Forget all rows, responses and agents; only the main agent stays."""
        self._places.clear()
        self._older.clear()
        self._seen.clear()
        self._lanes: dict[AgentState, Lane] = {}
        self._named: dict[str, Lane] = {}
        self._owners: dict[int, Lane] = {}
        """The lane of each context."""
        self._begun: dict[int, tuple[int, list[str], list[int], list[int]]] = {}
        """For each context whose rows may have been dropped: a stretch's first line and its ids; then for each response
        in it the place of its first row among the ids, and this row's line."""
        self._main_lane = self._lane = self._lane_of(self.tracker.main)
        self._who: str | bool | None = None
        """Author of the last rows; `_lane` is this author's lane."""

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
        """Begin a new generation of places if the present one is full; only the last full one is kept beside it."""
        if len(self._places) > PLACES:
            self._older, self._places = self._places, {}
            oldest = min(self._older.values())
            self._begun = {each: line for each, line in self._begun.items() if each >= oldest}
            self._owners = {each: lane for each, lane in self._owners.items() if each >= oldest or each == lane.context}

    def _special(self, rows: list[dict[str, Any]], number: int) -> None:
        """Give the tracker the rows that are held back, and then the rows of one line."""
        # Step 1: the held rows of all agents, because the special row may end all of their contexts.
        waiting = [lane for lane in self._lanes.values() if lane.held]
        for lane in waiting:
            self._sync(lane)
        # Step 2: what the tracker would know if it had seen the dropped rows too: the places of the rows that this one
        # names, the thinking that a compaction keeps, and whether its response was counted.
        for row in rows:
            for name in ("parentUuid", "logicalParentUuid", "uuid"):
                self._ensure(row.get(name), number)
            self._remember(row, number)
            identity = text(mapping(row.get("message")).get("id"))
            if identity in self._seen:
                self.tracker.reducer.registry.was_counted(identity, self._seen[identity])
        # Step 3: the rows themselves; afterwards look where the tracker has each agent now.
        self.number = number + 1
        for row in rows:
            self._row(row)
        if self.tracker.main is not self._main_lane.state:  # another session began, or a `/clear` without an id
            self._forget()
        self._entered = self.tracker.session_id
        for lane in {*waiting, self._main_lane}:
            if lane.state in self._lanes:
                self._look(lane)
        self._place(rows)

    def _remember(self, row: Mapping[str, Any], number: int) -> None:
        """Tell the tracker the thinking of the rows that a compaction keeps, because these rows may have been dropped.

        With the thinking of the last answer alone, 130 of 4,000 random sessions got another size than the careful way.
        """
        kept = mapping(mapping(row.get("compactMetadata")).get("preservedMessages")).get("uuids")
        if not kept or not isinstance(kept, list):
            return
        lines = self._source.get(range(max(0, number - _KEPT), number))
        events = (event for line in lines for row in decode(line)[0] for event in read_row(row))
        answers = [event for event in events if isinstance(event, Response)]
        # A count of thinking belongs to all rows of its response, of which the compaction may keep only some.
        whole = {each.identity for each in answers if each.uuid in kept}
        for each in answers:
            if each.identity in whole:
                registry = self.tracker.reducer.registry
                registry.remember(each.uuid, each.content, each.model, each.identity, each.thought)

    def _first_of(self, number: int) -> None:
        """Give the tracker an agent's first row, which changes nothing for the other agents."""
        rows = [row for line in self._source.get((number,)) for row in decode(line)[0]]
        self.number = number + 1
        for row in rows:
            self._row(row)
        self._place(rows)
        for row in rows:
            place = self._places.get(row.get("uuid"))
            if place is not None:  # the rows up to the first response can then be read again from here
                self._begun.setdefault(place, (number, [], [], []))

    def _sync(self, lane: Lane) -> None:
        """Give the tracker the rows that a lane holds back."""
        held, lane.held, lane.bare = lane.held, [], 0
        for number, line in zip(held, self._source.get(held), strict=True):
            self.number = number + 1
            for row in decode(line)[0]:
                if number == held[0] and not row.get("agentId"):
                    self._own(row.get("parentUuid"), lane.state)
                self._row(row)
        # After dropped responses the tracker's previous context is one that ended long ago, so its text goes too.
        if lane.dropped and lane.state.left is not None:
            lane.state.left[0].let_go()
            lane.state.left = None
        lane.fed, lane.dropped, lane.known = True, False, lane.state.context

    def _own(self, uuid: Any, state: AgentState) -> None:
        """Tell the tracker the owner of a row: a sidechain without a name is known only by the row before it."""
        if isinstance(uuid, str) and state is not self.tracker.main and not self.tracker.holds_row(uuid):
            self.tracker.reducer.registry.rows.put(uuid, state.context, len(state.context.parts))

    def _look(self, lane: Lane) -> None:
        """Read a lane's values from the tracker's state of its agent."""
        state = lane.state
        if state.context is not lane.known:
            lane.before, lane.context, lane.known = lane.context, self._number(lane), state.context
        lane.current = state.current if isinstance(state.current, str) else None
        lane.based = state.context.message_id
        if state.model is not None:
            lane.model, lane.limit = state.model, self.tracker.window_of(state.model).tokens

    def _place(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read from the tracker the place and the owner of rows that it took."""
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
        """Tell the tracker the place of an earlier row if that row was dropped; `number` is the present line."""
        # Step 1: nothing to do for an unknown row, and for one whose place the tracker has.
        place = self._places.get(uuid, self._older.get(uuid)) if isinstance(uuid, str) else None
        rows = self.tracker.reducer.registry.rows
        lane = None if place is None else self._owners.get(place)
        if place is None or lane is None or rows.place(cast("str", uuid)) is not None:
            return
        if place not in self._begun:
            return
        # Step 2: read the context again, from the last response before the row. The second tracker needs the CLI's
        # version: without it, it treated a thought that stands alone differently from the careful way.
        tracker = ContextTracker(parts=False)
        tracker.reducer.written_by(self.tracker.reducer.cli)
        first, uuids, at, lines = self._begun[place]
        answers = bisect_right(at, uuids.index(uuid)) if uuid in uuids else len(at)
        begun = first + (lines[answers - 1] if answers else 0)
        found, lines_after = None, self._source.get(range(begun, number))
        for event in (event for line in lines_after for row in decode(line)[0] for event in read_row(row)):
            known = getattr(event, "uuid", None)
            # An old row that stands here once more belongs to its earlier place: taken for a new one, it added 38
            # tokens to the estimate before a compaction.
            if self._places.get(known, self._older.get(known, place)) < place:
                continue
            # Read on to the next response, because the last row of a response has its real output.
            if found is not None and isinstance(event, Response) and event.message_id != found[0].message_id:
                break
            tracker.advance(event)
            found = found or tracker.reducer.registry.rows.place(uuid)
        # Step 3: leave the context in the state in which the first tracker would have it. It keeps the text of the
        # previous context alone, and measures text before it drops it only for a model whose prices it learns: measured
        # for all models, sizes differed by 1 token.
        if found is not None:
            context, parts = found
            context.owner, context.pinned = lane.state, True
            if place != lane.before:
                if not is_measured(context.model):
                    context.interval.measure()
                context.let_go()
            rows.put(uuid, context, parts)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Tell the tracker of each agent's last response, without its text, which no result needs."""
        for lane in self._lanes.values():
            # The rows that a compaction by reference kept tell the size after it.
            if lane.fed and lane.held and lane.state.context.source == "boundary":
                self._sync(lane)
            self._tell(lane)

    def _tell(self, lane: Lane) -> None:
        """Tell the tracker of the response that a lane holds back, if there is one, but not of its text."""
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
        """Raise `NeedsRatio` before a compaction whose size before it would depend on prices that were not learned.

        This is so after an estimate, and if only the lengths of the text are left.
        """
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
