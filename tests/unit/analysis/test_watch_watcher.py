"""Files and archives together: sessions that begin, grow, shrink, move and go."""

import os
import time

import pytest

from mala_context.analysis.watch import tail as tail_module
from mala_context.analysis.watch import watcher as watcher_module
from mala_context.analysis.watch.archived import LatestArchives
from mala_context.analysis.watch.watcher import Watcher, check_readable
from mala_context.archive.compactions import compactions
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import TranscriptError
from mala_context.transcripts.rows import rows as rows_of
from tests.helpers.recordings import SID, Rows, dump, plain
from tests.helpers.watch_sessions import append, session, session_id, subagent


@pytest.fixture
def projects(tmp_path):
    return tmp_path / "projects"


@pytest.fixture
def start(projects, tmp_path, monkeypatch):
    monkeypatch.setattr("mala_context.analysis.watch.archived.PAUSE", 0.0)
    monkeypatch.setattr("mala_context.analysis.watch.places.PAUSE", 0.0)
    monkeypatch.setattr("mala_context.analysis.watch.places.FULL", 0.0)

    def start(*only, **options):
        return Watcher([str(projects)], only, archives=LatestArchives(str(tmp_path / "runs")), **options)

    return start


def settled(watcher):
    watcher.tick()
    while watcher.busy:
        watcher.tick()
    return {row.session_id: row for row in watcher.rows()}


def test_sessions_and_their_growth(projects, start):
    rows, path = session(projects, 1)
    session(projects, 2)
    watcher = start()
    assert watcher.tick()
    assert len(watcher.rows()) == 2
    assert not watcher.tick()
    append(path, rows.response("new", 55_000))
    assert watcher.tick()
    assert settled(watcher)[session_id(1)].tokens == 55_000


def test_a_session_that_begins(projects, start):
    watcher = start()
    assert not watcher.tick()
    assert watcher.rows() == []
    session(projects)
    assert watcher.tick()
    assert len(watcher.rows()) == 1


def test_sessions_that_were_active_lately(projects, start):
    _, path = session(projects, 1)
    session(projects, 2)
    past = time.time() - 7_200
    os.utime(path, (past, past))
    assert set(settled(start(since=3_600))) == {session_id(2)}
    assert set(settled(start(since=10_000))) == {session_id(1), session_id(2)}
    assert set(settled(start(str(path), since=3_600))) == {session_id(1)}


def test_one_that_grows_old_leaves_and_comes_back(projects, start, monkeypatch):
    rows, path = session(projects)
    watcher = start(since=3_600)
    assert settled(watcher)
    clock = time.time
    monkeypatch.setattr(watcher_module.time, "time", lambda: clock() + 5_000)
    assert watcher.rows() == []
    append(path, rows.prompt())
    os.utime(path, (clock() + 5_000,) * 2)
    assert settled(watcher)


def test_subagents_below_their_session_in_either_layout(projects, start):
    _, path = session(projects)
    subagent(path, "a1", 9_000)
    old = Rows(path.stem, agent="a2")
    old.prompt()
    old.response("o", 8_000)
    old.write(path.parent / "agent-a2.jsonl")
    (row,) = settled(start()).values()
    assert {each.agent_id: each.tokens for each in row.subagents} == {"a1": 9_000, "a2": 8_000}
    assert row.tokens == 22_000


def test_subagents_of_long_ago_are_not_read(projects, start):
    _, path = session(projects)
    agent = subagent(path)
    past = time.time() - watcher_module.SUBAGENTS - 60
    os.utime(agent, (past, past))
    (row,) = settled(start()).values()
    assert row.subagents == ()


def test_a_rewritten_a_replaced_and_an_emptied_transcript(projects, start):
    rows, path = session(projects)
    watcher = start()
    settled(watcher)
    other = Rows(session_id(1), start=500)
    other.prompt()
    other.response("other", 5_000)
    other.write(path)
    assert settled(watcher)[session_id(1)].tokens == 5_000
    rows.write(path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)
    assert settled(watcher)[session_id(1)].tokens == 22_000
    path.write_bytes(b"")
    assert settled(watcher)[session_id(1)].tokens is None


def test_one_that_is_removed_and_one_that_moves(projects, start):
    rows, path = session(projects)
    watcher = start()
    settled(watcher)
    rows.prompt()
    rows.response("moved", 60_000)
    rows.write(projects / "-elsewhere" / path.name)
    assert settled(watcher)[session_id(1)].tokens == 60_000
    path.unlink()
    assert watcher.tick()
    assert len(watcher.rows()) == 1
    (projects / "-elsewhere" / path.name).unlink()
    assert watcher.tick()
    assert watcher.rows() == []


def test_what_cannot_be_read_is_told_and_left_out(projects, start, monkeypatch):
    session(projects, 1)
    _, path = session(projects, 2)
    real = tail_module.open_regular

    def refuse(name):
        if name == str(path):
            raise PermissionError(13, "Permission denied", name)
        return real(name)

    monkeypatch.setattr(tail_module, "open_regular", refuse)
    watcher = start()
    assert set(settled(watcher)) == {session_id(1)}
    assert [error.filename for error in watcher.problems()] == [str(path)]
    monkeypatch.setattr(tail_module, "open_regular", real)
    os.utime(path)
    assert set(settled(watcher)) == {session_id(1), session_id(2)}
    assert watcher.problems() == []


@pytest.fixture
def huge(projects, monkeypatch):
    """A transcript of which only the end is read, with two compactions before it and one in it."""
    monkeypatch.setattr(tail_module, "WHOLE", 20_000)
    monkeypatch.setattr(tail_module, "FIRST", 5_000)
    rows = Rows()
    for number in range(100):
        rows.prompt("x" * 400)
        rows.response(f"m{number}", 20_000 + 100 * number)
        if number in (20, 40, 99):
            rows.boundary(167_100, 900)
    rows.prompt()
    rows.response("last", 77_777)
    return rows, rows.write(projects / "-p" / f"{SID}.jsonl")


def test_a_huge_transcript_is_shown_before_it_is_counted(huge, start, monkeypatch):
    monkeypatch.setattr(watcher_module, "PATIENCE", 0.0)
    watcher = start()
    watcher.tick()
    (row,) = watcher.rows()
    assert (row.tokens, row.compactions, row.compactions_at_least) == (77_777, 1, True)
    assert watcher.busy
    (row,) = settled(watcher).values()
    assert (row.compactions, row.compactions_at_least) == (3, False)
    assert not watcher.busy


def test_a_huge_transcript_that_cannot_be_read_again_stays_uncounted(huge, start, monkeypatch):
    def gone(*_):
        raise FileNotFoundError(2, "gone")
        yield

    monkeypatch.setattr(watcher_module, "file_chunks", gone)
    (row,) = settled(start()).values()
    assert (row.compactions, row.compactions_at_least) == (1, True)


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_compactions_are_counted_as_the_archive_counts_them(tmp_path, monkeypatch, size):
    """Whatever bytes are read at once, and of summaries without a boundary (old CLIs) too."""
    rows = Rows()
    rows.prompt("a word of compact_boundary and isCompactSummary is none")
    for number in range(3):
        rows.response(f"m{number}", 20_000)
        rows.boundary(167_100, 900)
        rows.prompt("summary", isCompactSummary=True)
    rows.response("n", 20_000)
    rows.prompt("summary of an old CLI", isCompactSummary=True)
    data = dump(rows.rows)
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    monkeypatch.setattr(watcher_module, "file_chunks", lambda *_: iter(chunks))
    expected = sum(1 for _ in compactions(rows_of(iter([data]))))
    assert watcher_module._compactions_up_to("", len(data), {}) == expected == 4


@pytest.mark.parametrize("boundary", [True, False])
def test_a_compaction_counts_once_wherever_the_end_that_is_read_begins(projects, start, monkeypatch, boundary):
    rows = Rows()
    for number in range(20):
        rows.response(f"m{number}", 20_000)
    if boundary:
        rows.boundary(167_100, 900)
    rows.prompt("summary", isCompactSummary=True)
    rows.response("n", 20_000)
    data = [dump([row]) for row in rows.rows]
    path = rows.write(projects / "-p" / f"{SID}.jsonl")
    monkeypatch.setattr(tail_module, "WHOLE", 0)
    for place in range(len(data) - 4, len(data)):
        monkeypatch.setattr(tail_module, "FIRST", len(b"".join(data[place:])) + 1)
        (row,) = settled(start(path)).values()
        assert (row.compactions, row.compactions_at_least) == (1, False)


def test_many_sessions_begin_to_show_at_once(projects, start, monkeypatch):
    monkeypatch.setattr(watcher_module, "PATIENCE", 0.0)
    for number in range(4):
        _, path = session(projects, number)
        os.utime(path, (time.time() - number,) * 2)
    watcher = start()
    seen = []
    while not seen or watcher.busy:
        watcher.tick()
        seen.append(len(watcher.rows()))
    assert seen == [1, 2, 3, 4]


def test_the_last_archive(projects, tmp_path, start, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    path = plain().write(projects / "-p" / f"{SID}.jsonl")
    watcher = start()
    assert settled(watcher)[SID].archived is None
    TranscriptArchive(repo_path=tmp_path).archive(path, SID, trigger="auto")
    assert watcher.tick()
    assert settled(watcher)[SID].archived.trigger == "auto"


def test_which_transcripts_can_be_named(tmp_path):
    path = tmp_path / "t.jsonl"
    with pytest.raises(TranscriptError, match="missing"):
        check_readable(str(path))
    with pytest.raises(TranscriptError, match="not a regular file"):
        check_readable(str(tmp_path))
    path.write_text("")
    assert check_readable(str(path)) == str(path)


def test_a_transcript_without_permission(tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    path.write_text("")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(TranscriptError, match="permission denied"):
        check_readable(str(path))


@pytest.fixture
def opened(monkeypatch):
    """Every transcript that is opened."""
    paths = []
    real = watcher_module.LiveTail.gain

    def gain(self, path, enough):
        paths.append(path)
        return real(self, path, enough)

    monkeypatch.setattr(watcher_module.LiveTail, "gain", gain)
    return paths


def test_of_very_many_sessions_only_the_newest_are_opened(projects, start, opened):
    made = [session(projects, number) for number in range(9)]
    now = time.time()
    for number, (_, path) in enumerate(made):
        os.utime(path, (now - number, now - number))
    watcher = start(most=3)
    assert set(settled(watcher)) == {session_id(number) for number in range(3)}
    assert watcher.older == 6
    assert sorted(set(opened)) == sorted(str(path) for _, path in made[:3])
    rows, path = made[7]  # one of the others is taken up again, and the oldest of those that were followed makes room
    append(path, rows.prompt())
    os.utime(path, (now + 5, now + 5))
    assert set(settled(watcher)) == {session_id(number) for number in (0, 1, 7)}
    assert watcher.older == 6
    for _, path in made[3:7]:
        path.unlink()
    settled(watcher)
    assert watcher.older == 2


def test_subagents_do_not_crowd_out_sessions(projects, start):
    _, path = session(projects, 1)
    session(projects, 2)
    for number in range(6):
        subagent(path, f"a{number}")
    watcher = start(most=2)
    found = settled(watcher)
    assert set(found) == {session_id(1), session_id(2)}
    assert len(found[session_id(1)].subagents) == 2
    assert watcher.older == 0  # it counts sessions


def test_a_session_that_is_named_is_followed_however_many_are(projects, start):
    paths = [str(session(projects, number)[1]) for number in range(3)]
    assert len(settled(start(*paths, most=1))) == 3


def test_nothing_is_read_before_the_newest_are_known(projects, start, opened, monkeypatch):
    from mala_context.analysis.watch import places

    monkeypatch.setattr(places, "PATIENCE", -1.0)
    monkeypatch.setattr(places, "_STRIDE", 1)
    for number in range(5):
        session(projects, number)
    watcher = start(most=2)
    while not opened:
        watcher.tick()
        assert opened or watcher.busy
    assert watcher.known == 5
    assert not watcher._finder.looking
    assert watcher.waiting in {0, 1}
    monkeypatch.setattr(watcher_module, "BEFORE", 0.0)
    opened.clear()
    hasty = start(most=2)
    while not opened:
        hasty.tick()
    assert hasty._finder.looking
