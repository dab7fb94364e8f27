"""Which sessions may go."""

import os
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive import retention
from mala_context.archive.layout import SessionSummary
from mala_context.archive.reading import chunks
from mala_context.archive.retention import DAY, Limits, choose, limits, past_limits
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from tests.helpers.archive_tools import cat, names, rows, set_age

NOW = 10**9 * 1_800_000_000


def session(name, days, stored=100):
    return SessionSummary(session_id=name, pieces=1, stored=stored, newest_ns=NOW - int(days * DAY))


@pytest.mark.parametrize(
    ("value", "count"), [(None, None), (5, 5), (0, 0), ("0", 0), ("5GB", 5 * 10**9), ("5GiB", 5 * 2**30)]
)
def test_a_limit_in_bytes_is_a_number_or_a_text(value, count):
    assert limits({"bytes": value}).bytes == count


@pytest.mark.parametrize("value", ["", "GB", "-1", "5XB", -1, True, 1.5, "5 GB more", "nan", "infGB", 2**63])
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ValueError, match="is no size"):
        limits({"bytes": value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 2**64])
def test_a_limit_that_is_no_number_of_days_or_sessions_is_refused(value):
    for name in ("days", "sessions"):
        with pytest.raises(ValueError, match="must be a number from 0"):
            limits({name: value})


def test_keep_is_read_with_its_words():
    assert limits({"days": 30, "bytes": "5GB", "sessions": 3}) == Limits(days=30, bytes=5 * 10**9, sessions=3)
    assert limits({"days": None, "bytes": None}) == limits(None) == Limits()
    with pytest.raises(ValueError, match="keep has no weeks"):
        limits({"weeks": 1})
    with pytest.raises(ValueError, match=r"keep\.days is -1"):
        limits({"days": -1})
    with pytest.raises(ValueError, match=r"keep\.sessions is 'x'"):
        limits({"sessions": "x"})


@given(
    st.lists(st.tuples(st.integers(-5, 90), st.integers(0, 1000)), max_size=12),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 3000),
    st.none() | st.integers(0, 8),
)
def test_what_stays_is_within_the_limits_and_what_goes_was_past_one(ages, days, most, count):
    sessions = [session(str(number), age, stored) for number, (age, stored) in enumerate(ages)]
    gone = past_limits(sessions, Limits(days=days, bytes=most, sessions=count), NOW)
    stay = [each for each in sessions if each not in gone]
    assert count is None or len(stay) <= count
    assert most is None or sum(each.stored for each in stay) <= most or not stay
    assert days is None or all(NOW - each.newest_ns <= days * DAY for each in stay)
    if gone and stay:
        assert max(each.newest_ns for each in gone) <= min(each.newest_ns for each in stay)
    if days is None and most is None and count is None:
        assert gone == []


def test_the_only_copy_stays_unless_it_is_named():
    sessions = [session("old", 40), session("only", 50), session("new", 1)]
    plan = choose(sessions, Limits(days=30), NOW, only_copies={"only"})
    assert (plan.removed, plan.only_copies, plan.freed) == (("old",), ("only",), 100)
    named = choose(sessions, Limits(), NOW, only_copies={"only"}, named={"only"})
    assert (named.removed, named.only_copies) == (("only",), ())


def test_a_clock_that_jumped_removes_nothing_by_age_when_nobody_looks_on():
    """Seen from a year ahead, every session is old but the one that was just archived under that clock."""
    sessions = [session("a", 366), session("b", 370), session("now", 0)]
    plan = choose(sessions, Limits(days=30), NOW, trust_clock=False)
    assert (plan.removed, plan.clock_in_doubt) == ((), True)
    assert choose(sessions, Limits(days=30), NOW).removed == ("b", "a")
    lived_through = [*sessions, session("lately", 20)]
    assert choose(lived_through, Limits(days=30), NOW, trust_clock=False).removed == ("b", "a")


def test_a_session_from_the_future_is_young():
    assert past_limits([session("ahead", -365)], Limits(days=30), NOW) == []


def test_a_session_at_work_is_not_removed_for_its_size():
    sessions = [session("huge", 0, 1000), session("small", 2, 10)]
    plan = choose(sessions, Limits(bytes=500), NOW, trust_clock=False)
    assert plan.removed == ("small",)
    assert choose(sessions, Limits(sessions=1), NOW, trust_clock=False).removed == ("small",)
    assert choose(sessions, Limits(bytes=2000), NOW, trust_clock=False).removed == ()


@pytest.fixture
def archive(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives", projects_dirs=[])
    for session_id in ("old", "new"):
        for step in (1, 2, 3):
            (tmp_path / f"{session_id}.jsonl").write_bytes(rows(0, step))
            archive.archive(tmp_path / f"{session_id}.jsonl", session_id, trigger="auto")
    set_age(archive, 45, time.time_ns(), "old")
    return archive


def test_a_dry_run_is_the_default_and_removes_nothing(archive):
    before = names(archive, "")
    plan = archive.prune(days=30)
    assert (plan.removed, plan.dry_run) == (("old",), True)
    assert names(archive, "") == before


def test_a_session_goes_whole(archive):
    stored = next(each.stored for each in archive.sessions() if each.session_id == "old")
    result = archive.prune(days=30, dry_run=False)
    assert (result.removed, result.freed, result.dry_run) == (("old",), stored, False)
    assert {name.split("_")[0].split(".")[0] for name in names(archive, "")} == {"new"}
    assert archive.prune(session_ids=["new", "nobody"], dry_run=False).removed == ("new",)
    assert names(archive, "") == []


def test_the_transcript_decides_whether_it_is_the_only_copy(archive, tmp_path):
    os.unlink(tmp_path / "old.jsonl")
    result = archive.prune(days=30, dry_run=False)
    assert (result.removed, result.only_copies) == ((), ("old",))
    assert cat(archive, "old") == rows(0, 3)
    (tmp_path / "projects" / "-w").mkdir(parents=True)
    (tmp_path / "projects" / "-w" / "old.jsonl").write_bytes(rows(0, 3))
    looking = TranscriptArchive(archive.location, projects_dirs=[str(tmp_path / "projects")])
    assert looking.prune(days=30).removed == ("old",)
    assert archive.prune(session_ids=["old"], dry_run=False).removed == ("old",)


def test_a_session_that_somebody_writes_to_stays(archive):
    with archive.store(create=True).lock("old", 1):
        assert archive.prune(days=30, dry_run=False).busy == ("old",)
    assert cat(archive, "old") == rows(0, 3)


def test_a_chain_with_one_young_piece_is_kept_whole(archive, tmp_path):
    """Pieces of 45, 40 and 2 days are one session of 2 days."""
    now = time.time_ns()
    for name, days in zip([name for name in names(archive) if name.startswith("old")], (45, 40, 2), strict=True):
        when = now - days * DAY
        os.utime(os.path.join(archive.location, name), ns=(when, when))
    assert archive.prune(days=30).removed == ()


def test_keep_is_held_by_catching_up(tmp_path, archive):
    kept = TranscriptArchive(tmp_path / "archives", keep={"days": 30, "bytes": None}, projects_dirs=[])
    kept.catch_up()
    assert {each.session_id for each in kept.sessions()} == {"old", "new"}
    set_age(kept, 2, time.time_ns(), "new")
    set_age(kept, 45, time.time_ns(), "old")
    for name in ("old", "new"):
        os.utime(tmp_path / f"{name}.jsonl", (1, 1))
    kept.catch_up()
    assert {each.session_id for each in kept.sessions()} == {"new"}
    assert retention.WITNESS < DAY


def test_an_interrupted_removal_leaves_a_beginning(archive, monkeypatch):
    from mala_context.archive.writer import LocalFiles

    real, calls = LocalFiles.remove, []

    def killed(self, name):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, name)

    monkeypatch.setattr(LocalFiles, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        archive.prune(days=30, dry_run=False)
    monkeypatch.undo()
    assert cat(archive, "old") == rows(0, 1)
    assert verify_archive(archive).ok, "what was removed on purpose is missed"


def test_a_removal_that_was_broken_off_does_not_spoil_what_is_archived_again(archive, tmp_path, monkeypatch):
    from mala_context.archive.writer import LocalFiles

    real = LocalFiles.remove

    def killed(self, name):
        real(self, name)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalFiles, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        archive.prune(session_ids=["old"], dry_run=False)
    monkeypatch.undo()
    archive.archive(tmp_path / "old.jsonl", "old")
    assert verify_archive(archive).ok
    assert b"".join(reading_of(archive, "old")) == (tmp_path / "old.jsonl").read_bytes()


def reading_of(archive, session):
    with archive.view(session) as files:
        yield from chunks(files, archive.pieces(session))


def test_a_full_disk_can_be_pruned(archive, monkeypatch):
    from mala_context.archive.writer import LocalFiles

    def full(self, rows):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalFiles, "append", full)
    assert archive.prune(session_ids=["old"], dry_run=False).removed == ("old",)
    assert not [name for name in os.listdir(archive.location) if name.startswith("old")]


def test_a_clock_that_was_set_back_makes_no_session_old(archive, tmp_path, monkeypatch):
    with open(tmp_path / "new.jsonl", "ab") as file:
        file.write(rows(50, 60))
    with monkeypatch.context() as clock:
        clock.setattr(time, "time_ns", lambda: 10**9)  # 1970
        archive.archive(tmp_path / "new.jsonl", "new")
    newest = [name for name in names(archive) if name.startswith("new")][-1]
    assert time.time() - os.stat(os.path.join(archive.location, newest)).st_mtime < 40 * 86_400
    plan = archive.prune(days=30)
    assert "new" not in plan.removed


def test_find_removes_idle_sessions_whole_and_leaves_those_at_work(archive, tmp_path):
    """The first piece of a session at work is as old as that of an idle one; archiving made it young."""
    set_age(archive, 8, time.time_ns())
    (tmp_path / "new.jsonl").write_bytes(rows(0, 4))
    archive.archive(tmp_path / "new.jsonl", "new", trigger="auto")
    subprocess.run(["find", archive.location, "-mtime", "+7", "-delete"], check=True)
    assert {each.session_id for each in archive.sessions()} == {"new"}
    assert cat(archive, "new") == rows(0, 4)


def test_very_many_sessions_are_chosen_from_in_proportion():
    """Each is looked at a few times, not once for each other one."""
    compared = []

    class Counted(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    count = 2_000
    many = [
        SessionSummary(session_id=Counted(f"s{number}"), pieces=1, stored=1, newest_ns=number)
        for number in range(count)
    ]
    names = [each.session_id for each in many]
    found = choose(many, Limits(days=1), 10 * DAY, named=names[:100], only_copies=names[50:], trust_clock=False)
    assert len(found.removed) + len(found.only_copies) >= 100
    assert len(compared) < 20 * count
