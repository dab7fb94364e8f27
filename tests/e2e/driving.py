"""What the end-to-end tests share: a session of the real CLI, each figure of which is held against the server's log.

A `Watch` hangs on a runtime's processor and notes, event by event, what the tracker says. `Watch.check` then compares
each response with the request that it answered, and each compaction's estimate with the request that came next.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field

from mala_context.tracking.events import Compaction, Response, UsageDelta

WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima "


def prose(characters):
    """Return so many characters of plain words."""
    return (WORDS * (characters // len(WORDS) + 1))[:characters]


@dataclass
class Watch:
    """What the tracker said of the main agent, in order."""

    runtime: object
    api: object
    seen: list = field(default_factory=list)
    """(message id, tokens) after each part of a response."""
    compactions: list = field(default_factory=list)
    """(snapshot, number of requests of the main thread that the server had then)."""

    def __post_init__(self):
        self._last = None
        self.runtime.processor.event_observers.append(self._on_event)

    def _on_event(self, event, snapshot):
        tracker = self.runtime.tracker
        if isinstance(event, Response) and event.source == "row":
            return  # from the transcript: an older session's, or one that the stream had before
        if isinstance(event, Response) and event.agent is None:
            self._last = event.message_id
        if isinstance(event, Response | UsageDelta) and event.agent is None:
            self.seen.append((self._last, tracker.snapshot().tokens))
        elif isinstance(event, Compaction) and event.agent is None:
            self.compactions.append((tracker.snapshot(), len(self.answered)))

    @property
    def answered(self):
        """The requests of the main thread that got a message."""
        return [request for request in self.api.main_requests if request.message_id is not None]

    def check(self, responses=None, *, since=0):
        """Assert that each response's tokens are the server's count, and that no response is missing."""
        assert self.seen, "no response was seen"
        for message_id, tokens in self.seen:
            assert tokens == self.api.by_message(message_id).tokens, message_id
        ids = list(dict.fromkeys(message_id for message_id, _ in self.seen))
        assert ids == [request.message_id for request in self.answered[since:]]
        if responses is not None:
            assert len(ids) == responses

    def check_estimate(self, number=0, *, appended=0, within=0.05):
        """Assert that a compaction's estimate is near what the next request held, less what was appended since."""
        snapshot, before = self.compactions[number]
        truth = self.answered[before].tokens - appended
        assert snapshot.accuracy == "estimate"
        assert not snapshot.exact
        assert abs(snapshot.tokens - truth) <= within * truth, (snapshot.tokens, truth)


async def turn(session, prompt):
    """Send one prompt; return all messages up to its result."""
    return [message async for message in session.send(prompt)]


def results(messages):
    """Return the results among messages."""
    return [message for message in messages if type(message).__name__ == "ResultMessage"]


def texts(messages):
    """Return the texts of the assistant's messages."""
    return [
        block.text
        for message in messages
        if type(message).__name__ == "AssistantMessage"
        for block in message.content
        if type(block).__name__ == "TextBlock"
    ]


def named(messages, subtype):
    """Return the system messages of a subtype."""
    return [message for message in messages if getattr(message, "subtype", None) == subtype]


def check_private(runs):
    """Assert that nobody else can read what is below `runs`: directories 0700, files 0600."""
    assert stat.S_IMODE(os.stat(runs).st_mode) == 0o700
    for place, folders, files in os.walk(runs):
        for name in folders:
            assert stat.S_IMODE(os.stat(os.path.join(place, name)).st_mode) == 0o700, name
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(place, name)).st_mode) == 0o600, name


def rows_of(archive, session_id, kind):
    """Return the rows of a kind in a session's manifest."""
    return [row for row in archive.manifest(session_id).rows if row.get("row") == kind]


def outcomes(archive, session_id):
    """Return (trigger, outcome, piece's place among the main transcript's pieces) of each outcome row."""
    names = [row["name"] for row in rows_of(archive, session_id, "piece") if row.get("subagent") is None]
    return [
        (row.get("trigger"), row["outcome"], names.index(row["piece"]) if row.get("piece") in names else None)
        for row in rows_of(archive, session_id, "outcome")
    ]


def triggers(archive, session_id):
    """Return why each of the main transcript's pieces was written, in order."""
    return [row["trigger"] for row in rows_of(archive, session_id, "piece") if row.get("subagent") is None]


def transcript(home, session_id):
    """Return the path of a session's transcript below the CLI's home."""
    found = list((home / ".claude" / "projects").glob(f"*/{session_id}.jsonl"))
    assert len(found) == 1, found
    return found[0]


def check_whole(archive, home, session_id):
    """Assert that the archive holds the transcript byte for byte."""
    kept = transcript(home, session_id).read_bytes()
    pieces = [piece for piece in archive.pieces(session_id) if piece.subagent is None]
    directory = archive.location
    contents = []
    for piece in pieces:
        with open(os.path.join(directory, piece.name), "rb") as file:
            contents.append(file.read())
    if archive.mode == "full":
        assert contents[-1] == kept
        assert all(kept.startswith(content) for content in contents)
    else:
        whole = b"".join(contents)
        assert whole == kept, kept[len(whole) :] if kept.startswith(whole) else "another text"


def row_types(path):
    """Return the type, and the subtype if there is one, of each row of a transcript."""
    with open(path, encoding="utf-8") as file:
        return [(row.get("type"), row.get("subtype")) for row in map(json.loads, file)]
