"""The fast way through a transcript: the tracker gets only the rows that it needs.

Most rows change nothing in the result of a replay. A response says how large its request was, so the response before it
and the text between them no longer count. Rows therefore come as columns (see `columns`), without their text. The rows
of each agent since its last response are held back undecoded, and the agent's next response drops them.

Some rows may depend on the rows that are held back: a compaction, a prompt that goes back or begins a new conversation,
a `/clear`, a refusal, an agent's first row. Such a row is called special. The tracker then gets the rows that are held
back and the special row, all of them decoded. Only the tracker knows what the row does (see `follow`), so each rule
stands in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from mala_context.analysis.replay import columns, record
from mala_context.analysis.replay.decoded_columns import stretch_of
from mala_context.analysis.replay.files import Recording, blocks, is_plain, lent_buffer
from mala_context.analysis.replay.follow import Follower, NeedsRatio
from mala_context.analysis.replay.lanes import Lane
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.row_runs import (
    ASSISTANT,
    ATTACHMENT,
    BARE,
    FILLER,
    LINK,
    USER,
    Answers,
    NeedsFullReader,
    Odd,
    RowRun,
    divided,
)
from mala_context.analysis.replay.rows import decode
from mala_context.tracking.readers.parts import mapping
from mala_context.tracking.text_counts import is_result


def read(recording: Recording) -> list[record.Stretch]:
    """Read one recording, the fast way if possible; never raises."""
    # Step 1: without learning prices, which is enough for most recordings. Step 2: with it, if the last number is an
    # estimate. Step 3: the careful way.
    if is_plain(recording):
        for learns in (False, True):
            try:
                with lent_buffer() as buffer:
                    return Scanner(recording, learns=learns).run(buffer)
            except NeedsRatio:
                recording = recording._replace(watch=None)  # the progress has been told all of its bytes already
            except (NeedsFullReader, OSError):
                break
    return RecordingReader(recording).run()


class Scanner(Follower):
    """Scans one plain transcript; call `run` once.

    A scanner that `learns` gives the tracker all rows from which it learns the price of text (see `AgentState.due`).
    The estimate after a compaction depends on these prices.
    """

    def run(self, buffer: bytearray | None = None) -> list[record.Stretch]:
        """Read the recording; raises `NeedsFullReader` if columns do not tell enough, or if its end cannot be read."""
        for block in blocks(self.recording, self._unreadable, buffer):
            found, ends = columns.skim(block)
            self._source.begin(block, ends)
            self._turn()
            self._columns(found, 0, 0)
        self.number = self._source.first + len(self._source.ends)
        self._end()
        return self.finish()

    def _unreadable(self, words: str) -> None:
        raise NeedsFullReader(words)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _columns(self, found: Iterable[RowRun | Odd], line: int, begin: int) -> None:
        """Take rows whose line numbers and bytes count from the line `line` of the present block, at byte `begin`."""
        for item in found:
            if len(item) == 3:
                number, start, stop = item
                self._odd(line + number, begin + start, begin + stop)
            else:
                self._stretch(item if line == 0 else RowRun(line + item[0], *item[1:]))

    def _odd(self, line: int, begin: int, end: int) -> None:
        rows, problem = decode(bytes(self._source.block[begin:end]))
        if problem is not None:
            self.problem(self._source.first + line + 1, problem)
        self._decoded(rows, line)

    def _decoded(self, rows: list[dict[str, Any]], line: int) -> None:
        """Take a line's rows."""
        stretch = stretch_of(rows[0], line) if len(rows) == 1 else None
        if stretch is not None:
            self._stretch(stretch)
        elif rows:
            self._special(rows, self._source.first + line)

    def _stretch(self, stretch: RowRun) -> None:
        """Take rows."""
        left: RowRun | None = stretch
        while left is not None:
            left = self._take(left)

    def _take(self, stretch: RowRun) -> RowRun | None:  # noqa: C901  (a call costs more than most stretches may)
        """Hold rows back, or give them to the tracker; return the rows that are left, which have to be taken next."""
        line, lines, kind, author, session, parent, uuids, answers, model, started, ended, forked = stretch
        if kind != FILLER:
            # Step 1: find the agent. Nearly every stretch goes on with the agent of the stretch before.
            places, older = self._places, self._older
            place = places.get(parent)
            if place is None and older:
                place = older.get(parent)
            lane = self._lane
            if author != self._who or (author is True and place != lane.context):
                found = self._of(author, place)
                if found is None:
                    begins = LINK < kind < ASSISTANT and session == self._session_id
                    known = uuids[0] in places or uuids[0] in older
                    return self._apart(stretch, begins=begins and not known)
                self._lane, self._who, lane = found, author, found
            # Step 2: set rows apart that were there before; they must not count twice.
            if (lines > 1 and len(set(uuids)) != len(uuids)) or not places.keys().isdisjoint(uuids):
                self._again(stretch, lane)
                return None
            if older and not older.keys().isdisjoint(uuids):
                self._again(stretch, lane)
                return None
            # Step 3: give a special first row to the tracker, then take the rest.
            if kind == ASSISTANT:
                special = lines == 1 and self._is_special(stretch, place, lane)
            elif kind == BARE:
                special = place != lane.context or not self._may_hold(stretch, lane)
            else:
                special = place != lane.context and self._elsewhere(stretch, place, lane)
            if special:
                return self._apart(stretch)
            # Step 4: hold rows back, and let responses drop those that were held.
            if answers is None or kind == BARE:
                self._hold(lane, uuids, line, lines)
            elif lines == 1 or self._may_answer(stretch, place, lane):
                most = self._at_once(lane, answers)
                if len(answers[0]) > most:
                    begun, rest = divided(stretch, answers[4][most], answers[5][most])
                    self._stretch(begun)
                    return rest
                self._entered = self._entered or session
                self._answer(lane, uuids, line, lines, answers, model)
            else:
                self._singly(line, lines)
                return None
        # Step 5: what each row says of its session, also a row without an id.
        if started is not None:
            if self._started is None or started < self._started:
                self._started = started
            if self._ended is None or ended > self._ended:
                self._ended = ended
        if forked:
            self._is_fork = True
        if self._session_id is None:
            self._session_id = session
        return None

    def _at_once(self, lane: Lane, answers: Answers) -> int:
        """Return how many of the responses may be taken together: before some of them the tracker learns from text."""
        if not self._learns:
            return len(answers[0])
        state = lane.state
        return max(1, state.due - 1 - state.responses - lane.bare - (not lane.fed)) + (answers[0][0] == lane.current)

    def _hold(self, lane: Lane, uuids: Iterable[str], line: int, lines: int) -> None:
        """Hold back rows that go on from a lane's context."""
        places, context, first = self._places, lane.context, self._source.first + line
        places.update(dict.fromkeys(uuids, context))
        lane.held.extend(range(first, first + lines))

    def _of(self, author: str | bool | None, place: int | None) -> Lane | None:
        """Return the lane of a row by its author or, in an old sidechain without a name, by the row before it.

        Raises `NeedsFullReader` if a row with a name goes on from a sidechain without a name: the owner of the next
        rows then depends on rows that were dropped, and the fast way found only 4 responses of 5. No CLI is known to
        write such a file.
        """
        if author is None:
            return self._main_lane
        lane = self._owners.get(place) if place is not None else None
        if isinstance(author, str):
            found = self._named.get(author)
            if found is None and lane not in (None, self._main_lane, *self._named.values()):
                raise NeedsFullReader("a name in a sidechain without one")
            return found
        return None if lane is self._main_lane else lane

    def _apart(self, stretch: RowRun, *, begins: bool = False) -> RowRun | None:
        """Give the tracker the first of some rows; return the other rows, which may go on from it.

        `begins` tells that the row only begins an agent's conversation, so that no other agent's rows have to be read.
        """
        line, lines, _, _, _, _, _, answers, *_ = stretch
        if begins:
            self._first_of(self._source.first + line)
        else:
            self._special(decode(self._source.at(line))[0], self._source.first + line)
        if lines == 1:
            return None
        if answers is None or answers[4][0]:
            return divided(stretch, 1, 1)[1]
        # A stretch does not say which rows belong to the same response. Skimming the rest again does.
        begin, end = self._source.ends[line] + 1, self._source.ends[line + lines - 1]
        self._columns(columns.skim(self._source.block[begin:end])[0], line + 1, begin)
        return None

    def _singly(self, first: int, lines: int) -> None:
        """Take lines of the present block one by one."""
        for index in range(first, first + lines):
            line = self._source.at(index)
            for item in columns.skim(memoryview(line))[0]:
                if len(item) == 3:
                    self._decoded(decode(line)[0], index)
                else:
                    self._stretch(RowRun(index, *item[1:]))

    def _again(self, stretch: RowRun, lane: Lane) -> None:
        """Take rows of which some were there before.

        Such a row changes nothing, but a response's row may have more output now. A row of another session is special,
        and so is a response that was not there before.
        """
        line, lines, kind, _, session, _, _, answers, *_ = stretch
        if lines > 1:
            self._singly(line, lines)
            return
        special = session not in (None, self._entered if answers else self._session_id)
        for identity, request, counts in zip(*answers[:3], strict=True) if answers else ():
            special = special or identity not in self._seen
            special = special or bool(request and self._seen[identity] not in (None, request))
            special = special or identity == lane.current
            if not special and kind != BARE:
                lane.tally.counts.take(identity, counts)
        if special:
            self._apart(stretch)
        else:
            self._stretch(RowRun(line, lines, FILLER, *stretch[3:]))  # only its time counts

    def _elsewhere(self, stretch: RowRun, place: int | None, lane: Lane) -> bool:
        """Tell whether the first of some rows, which do not go on from their lane's context, is special."""
        line, _, kind, _, session, parent, *_ = stretch
        if kind == USER and parent is None and session and self._session_id and session != self._session_id:
            return True  # perhaps another session's transcript
        if kind == ATTACHMENT:
            return False
        if kind == LINK:
            return place is not None or (parent is None and bool(self._places))
        if place is None and (parent is not None or lane is not self._main_lane or not lane.answered):
            return False
        # Columns do not tell a prompt from a tool's result. Results of tools that ran side by side name the call as
        # their parent, and only prompts go back.
        (row,) = decode(self._source.at(line))[0]
        return not is_result(mapping(row.get("message")).get("content"))

    def _may_hold(self, stretch: RowRun, lane: Lane) -> bool:
        """Tell whether a response's row without counts can be held back; if it can, note the response."""
        (identity,), (request,), *_ = cast("Answers", stretch[7])
        if stretch[4] not in (None, self._entered) or stretch[8] not in (None, lane.model) or not lane.answered:
            return False
        if identity != lane.current:
            if identity in self._seen:
                return False
            self._seen[identity] = request
            lane.current, lane.bare = identity, lane.bare + 1
        return True

    def _is_special(self, stretch: RowRun, place: int | None, lane: Lane) -> bool:
        """Tell whether a response's row is special."""
        _, _, _, _, session, parent, _, answers, model, _, _, _ = stretch
        ids, _, _, (tokens, *_), _, _ = cast("Answers", answers)
        identity = ids[0]
        if session is not None and session != self._entered is not None:
            return True
        # A later row of the present response: its counts may be the first ones, or correct those that the tracker has.
        if identity == lane.current:
            return lane.based != identity or tokens > lane.limit or (lane.fed and tokens != lane.known.tokens)
        if identity in self._seen:
            return True
        # A response that goes back, or a root that begins a new conversation.
        if place != lane.context and (
            place is not None or (parent is None and lane.answered and lane is self._main_lane)
        ):
            return True
        # A request above the window corrects the window; another model changes the prices and the window.
        if model == lane.model or model is None:
            return tokens > lane.limit
        return lane.model is not None or "[" in model or tokens > self.tracker.window_of(model).tokens

    def _may_answer(self, stretch: RowRun, place: int | None, lane: Lane) -> bool:
        """Tell whether no response of a stretch is special, so that all of them can be taken at once."""
        ids, _, _, tokens, _, _ = cast("Answers", stretch[7])
        place = place if stretch[2] == ASSISTANT else lane.context
        if self._is_special(stretch, place, lane):
            return False
        limit = lane.limit if lane.model is not None else self.tracker.window_of(stretch[8]).tokens
        new = set(ids)
        again = ids[0] == lane.current
        if again:
            new.discard(ids[0])
        return len(new) + again == len(ids) and max(tokens) <= limit and self._seen.keys().isdisjoint(new)

    def _answer(self, lane: Lane, uuids: list[str], line: int, lines: int, answers: Answers, model: str | None) -> None:
        """Take rows with responses; each response drops the rows that were held back before it."""
        # Step 1: the peak of all requests, and the rows that still belong to the present response.
        tally, first = lane.tally, self._source.first + line
        ids, requests, counts, tokens, at, after = answers
        if model is not None and lane.model is None:
            lane.model, lane.limit = model, self.tracker.window_of(model).tokens
        if tally.peak is None or max(tokens) > tally.peak:
            tally.peak = max(tokens)
        if ids[0] == lane.current:
            lane.tokens = tokens[0]
            tally.counts.take(ids[0], counts[0])
            ids, requests, counts, at, after = ids[1:], requests[1:], counts[1:], at[1:], after[1:]
            if not ids:
                self._hold(lane, uuids, line, lines)
                return
        # Step 2: hold back the rows before the first new response, which are a part of its request.
        self._hold(lane, uuids[: at[0]], line, after[0])
        # Step 3: give the held rows to the tracker if it learns from them, or if only it knows their context; otherwise
        # drop them. The tracker never hears of the dropped responses, so they are counted here.
        state = lane.state
        passed = len(ids) - 1
        learned = self._learns and state.responses + lane.bare + (not lane.fed) + 1 >= state.due
        if learned or (lane.fed and lane.context not in self._begun):
            self._sync(lane)
        else:
            passed += lane.bare + (not lane.fed)
        state.responses += passed
        lane.dropped = lane.dropped or passed > 0
        # Step 4: the last response is the lane's present one; the rows after it are held back.
        self._number_all(lane, uuids, first, at, after)
        self._seen.update(zip(ids, requests, strict=True))
        tally.counts.update(zip(ids, counts, strict=True))
        lane.fed, lane.bare, lane.row, lane.tokens, lane.held = False, 0, uuids[at[-1]], tokens[-1], []
        lane.current = lane.based = ids[-1]
        self._hold(lane, uuids[at[-1] :], line + after[-1], lines - after[-1])

    def _number_all(self, lane: Lane, uuids: list[str], first: int, at: list[int], after: list[int]) -> None:
        """Give numbers to the contexts of responses: each of the last two has its own, all earlier ones share one.

        A row that goes back needs a context of its own only for the previous and the present response: that is all the
        tracker keeps of text (`AgentState.left`). For an earlier one, `_begun` says where each response begins.
        """
        places, last = self._places, len(at) - 1
        for start, end in ((0, last - 1), (max(0, last - 1), last)):
            if start < end:
                context = self._number(lane)
                self._begun[context] = first, uuids, at[start:end], after[start:end]
                places.update(dict.fromkeys(uuids[at[start] : at[end]], context))
                lane.context = context
        lane.before, lane.context = lane.context, self._number(lane)
        self._begun[lane.context] = first, uuids, at[last:], after[last:]
