"""What an archive did, as one record."""

import time

from mala_context.agent.telemetry.archived import tell_archived
from mala_context.archive.records import ArchiveResult


def kept(path, size=100):
    return ArchiveResult(session_id="s1", path=path, reason="archived", bytes=size)


def test_pieces_of_one_time_are_one_record():
    told = []
    nothing = ArchiveResult(session_id="s1", path=None, reason="nothing new")
    tell_archived(told.append, "session_end", time.monotonic() - 2, [nothing, kept("/a"), None, kept("/b", 23)])
    (record,) = told
    assert (record.session_id, record.trigger, record.pieces, record.bytes) == ("s1", "session_end", 2, 123)
    assert record.path == "/a"
    assert 2 <= record.seconds < 60


def test_nothing_new_is_no_news():
    told = []
    tell_archived(told.append, "auto", 0.0, [None, ArchiveResult(session_id="s1", path=None, reason="nothing new")])
    assert told == []
