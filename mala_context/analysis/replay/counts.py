"""Only the API's counts: the shortest way through a transcript, for the sums of `replay --totals`.

A sum needs neither windows nor conversations, so the tracker is not even loaded. The id and the counts of each response
come from the columns, for the main agent and for each other agent, because `sessions.join` has to recognise copied
responses. For some recordings this is not enough, and `scan` reads them: a recording of several sessions, one with the
field names of stream-json, one in which two responses have one id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mala_context.analysis.replay import columns
from mala_context.analysis.replay.files import Recording, blocks, is_plain, lent_buffer
from mala_context.analysis.replay.record import AgentRecord, Best, Counts, Stretch
from mala_context.analysis.replay.row_runs import BARE, Answers, NeedsFullReader, RowRun

_RESPONSE: Final = b"assistant"
"""Text in every line that may be a response's."""
_ESCAPED: Final = b"\\u00"
"""Text in a line that may spell even `_RESPONSE` in another way."""


def read_counts(recording: Recording) -> list[Stretch]:
    """Read the API's counts from one recording; sizes, windows and compactions stay unknown. Never raises."""
    if is_plain(recording):
        try:
            with lent_buffer() as buffer:
                return [CountReader(recording).run(buffer)]
        except (NeedsFullReader, OSError):
            recording = recording._replace(watch=None)  # the progress has been told all of its bytes already
    from mala_context.analysis.replay.scan import read

    return read(recording)


class _Agent:
    """The responses of one agent, or of all sidechains without a name."""

    __slots__ = ("counts", "requests")

    def __init__(self) -> None:
        self.requests: dict[str, str | None] = {}
        """Id of the request of each response, by the response's id."""
        self.counts = Best()
        """Counts of the responses that have any."""

    def take_all(self, answers: Answers) -> None:
        """Take responses with counts."""
        ids, requests, counts = answers[:3]
        if self.requests.keys().isdisjoint(ids) and len(set(ids)) == len(ids):
            self.requests.update(zip(ids, requests, strict=True))
            self.counts.update(zip(ids, counts, strict=True))
            return
        for identity, request, each in zip(ids, requests, counts, strict=True):
            self.take(identity, request, each)

    def take(self, identity: str, request: str | None, counts: Counts | None) -> None:
        """Take a row of a response; raises `NeedsFullReader` for an id that another request's response has."""
        known = self.requests.setdefault(identity, request)
        if known != request and None not in (known, request):
            raise NeedsFullReader("an id of two responses")
        if counts is not None:
            self.counts.take(identity, counts)


class CountReader:
    """Counts the responses of one plain transcript; `run` once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._session_id: str | None = None
        self._started: Any = None
        self._ended: Any = None
        self._is_fork = False
        self._agents: dict[str | bool | None, _Agent] = {None: _Agent()}

    def run(self, buffer: bytearray | None = None) -> Stretch:
        """Read the recording; raises `NeedsFullReader` where columns do not tell enough."""
        for block in blocks(self._recording, self._unreadable, buffer):
            for item in columns.skim(block)[0]:
                if len(item) == 3:
                    self._odd(bytes(block[item[1] : item[2]]))
                else:
                    self._rows(item)
        return self._stretch()

    def _unreadable(self, words: str) -> None:
        raise NeedsFullReader(words)

    def _rows(self, rows: RowRun) -> None:
        _, _, kind, author, session, _, _, answers, _, started, ended, forked = rows
        self._row(session, started, ended, forked)
        if answers is None:
            return
        if kind != BARE:
            self._agent(author).take_all(answers)
        else:
            self._agent(author).take(answers[0][0], answers[1][0], None)

    def _row(self, session: str | None, started: Any, ended: Any, forked: bool) -> None:
        """Take the session, the times and the fork mark of some rows."""
        if session and session != self._session_id:
            if self._session_id is not None:
                raise NeedsFullReader("several sessions")
            self._session_id = session
        if started is not None:
            if self._started is None or started < self._started:
                self._started = started
            if self._ended is None or ended > self._ended:
                self._ended = ended
        if forked:
            self._is_fork = True

    def _agent(self, author: str | bool | None) -> _Agent:
        agent = self._agents.get(author)
        if agent is None:
            agent = self._agents[author] = _Agent()
        return agent

    def _odd(self, line: bytes) -> None:
        """Take a line that is not plain."""
        from mala_context.analysis.replay.rows import decode

        for row in decode(line)[0]:
            if "session_id" in row:
                raise NeedsFullReader("rows of stream-json")
            moment, session = row.get("timestamp"), row.get("sessionId")
            moment = moment if isinstance(moment, str) and moment else None
            self._row(session if isinstance(session, str) else None, moment, moment, row.get("forkedFrom") is not None)
            if _RESPONSE in line or _ESCAPED in line:
                self._response(row)

    def _response(self, row: Mapping[str, Any]) -> None:
        """Take a row that may be a response's."""
        from mala_context.tracking.events import SIDECHAIN, Response
        from mala_context.tracking.readers.rows import read_row
        from mala_context.tracking.usage import Usage

        for event in read_row(row):
            if isinstance(event, Response):
                if event.message_id is None:
                    raise NeedsFullReader("a response without an id")
                usage = None if event.usage is None else Usage.parse(row["message"].get("usage"))
                agent = self._agent(True if event.agent == SIDECHAIN else event.agent)
                agent.take(event.message_id, event.request_id, usage and usage[:4])

    def _stretch(self) -> Stretch:
        if len(self._agents) > 1:
            responses = [identity for agent in self._agents.values() for identity in agent.requests]
            if len(set(responses)) < len(responses):
                raise NeedsFullReader("a response of two agents")
        agents = []
        for author, agent in self._agents.items():
            ids, counts, sums = agent.counts.arrays()
            name = None if author is None else str(author)
            agents.append(AgentRecord(name, responses=len(agent.requests), ids=ids, counts=counts, sums=sums))
        main, *others = agents
        return Stretch(
            self._recording.path,
            self._session_id,
            main,
            others,
            [],
            is_fork=self._is_fork,
            started_at=self._started,
            ended_at=self._ended,
        )
