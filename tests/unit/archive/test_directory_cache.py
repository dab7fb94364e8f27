"""Work on all sessions of an archive lists its directory once, and its writers miss nothing."""

import os
import time

import pytest

from mala_context.archive import directory_cache as names_module
from mala_context.archive import layout, writer
from mala_context.archive.atomic_write import temporary_prefix
from mala_context.archive.directory_cache import SETTLED
from mala_context.archive.local_store import ListedStore
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive

SESSIONS = 30


def rows(count, start=0):
    return b"".join(b'{"type":"user","uuid":"u%d"}\n' % number for number in range(start, start + count))


@pytest.fixture
def archive(tmp_path):
    """Thirty sessions of two pieces, of long ago, whose transcripts are still there."""
    archive = TranscriptArchive(tmp_path / "archives", projects_dirs=[str(tmp_path / "projects")])
    for number in range(SESSIONS):
        path = tmp_path / "projects" / "-p" / f"s{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        for count in (2, 4):
            path.write_bytes(rows(count))
            archive.archive(str(path), f"s{number}", trigger="auto")
    grow_old(archive)
    return archive


def grow_old(archive):
    old = time.time_ns() - 100 * SETTLED
    for name in os.listdir(archive.location):
        os.utime(os.path.join(archive.location, name), ns=(old, old))
    os.utime(archive.location, ns=(old, old))


@pytest.fixture
def listings(monkeypatch):
    """Every listing of a directory, by whomever."""
    made = []

    real = writer.each_name

    def counted(fd):
        made.append(fd)
        return real(fd)

    for module in (writer, names_module):
        monkeypatch.setattr(module, "each_name", counted)
    monkeypatch.setattr(names_module, "SHARE", 1_000_000)  # what is asked for in between does not matter here
    return made


def work(archive, tmp_path):
    return {
        "verify": lambda: verify_archive(archive),
        "catch_up": archive.catch_up,
        "prune": lambda: archive.prune(sessions=2, dry_run=False),
        "pack": archive.pack,
    }


@pytest.mark.parametrize("what", ["verify", "catch_up", "prune", "pack"])
def test_the_directory_is_not_listed_for_each_session(archive, tmp_path, listings, what):
    work(archive, tmp_path)[what]()
    assert 0 < len(listings) <= 4, what


def test_the_same_comes_out_as_from_each_session_for_itself(archive, tmp_path):
    listed = archive.listed()
    assert listed.sessions() == archive.sessions()
    assert listed.sessions("s1") == archive.sessions("s1") != []
    for each in archive.sessions():
        assert listed.pieces(each.session_id) == archive.pieces(each.session_id)
    told = []
    listed.sessions(progress=told.append)
    assert sum(told) == archive.usage_bytes()
    assert verify_archive(archive).ok
    archive.pack()
    assert verify_archive(archive).ok
    assert all(piece.packed for each in archive.sessions() for piece in archive.pieces(each.session_id))
    assert len(archive.prune(sessions=2, dry_run=False).removed) == 28
    assert len({name.partition("_")[0].partition(".")[0] for name in os.listdir(archive.location)}) == 2


def test_a_writer_sees_what_another_added_since_the_listing(archive, tmp_path, listings):
    """Else it would archive the same bytes again."""
    listed, path = archive.listed(), str(tmp_path / "projects" / "-p" / "s3.jsonl")
    listed.sessions()
    with open(path, "ab") as file:
        file.write(rows(1, 9))
    assert archive.archive(path, "s3").archived
    assert len(listed.pieces("s3")) == 2  # a reader may be late
    result = listed.archive(path, "s3")
    assert (result.reason, result.chain) == ("nothing new", 1)
    with open(path, "ab") as file:
        file.write(rows(1, 10))
    assert listed.archive(path, "s3").archived
    assert len(listed.pieces("s3")) == 4  # what it writes itself it knows
    count = len(listings)
    listed.archive(path, "s3")
    assert len(listings) == count


def test_what_a_killed_writer_left_is_dropped(archive):
    listed = archive.listed()
    left = os.path.join(archive.location, temporary_prefix("s4") + "0123456789abcdef")
    empty = os.path.join(archive.location, layout.piece_name("s5", None, 1, layout.stamp(10**15), ".jsonl"))
    for path in (left, empty):
        open(path, "wb").close()
    for session_id in ("s4", "s5"):
        listed.store(create=False).lock(session_id, 1.0).close()
    assert not os.path.exists(left)
    assert not os.path.exists(empty)


def test_names_that_are_gone_are_none(archive):
    listed = archive.listed()
    (first, _) = listed.pieces("s6")
    os.unlink(os.path.join(archive.location, first.name))
    assert len(listed.pieces("s6")) == 1


def test_a_check_looks_again_at_what_changed_under_it(archive, listings):
    """A manifest that names a piece which came after the listing is no damage."""
    store = archive.listed().store(create=False)
    store.summaries()
    assert store.listed() is store
    open(os.path.join(archive.location, "s99.manifest.jsonl"), "wb").close()
    assert store.listed() is not store


def test_a_directory_that_is_not_there(tmp_path):
    store = ListedStore(str(tmp_path / "none"))
    assert store.summaries() == []
    assert store.listed() is store
    with store.view("s1") as files:
        assert files.list() == []
    with store.lock("s1", 1.0) as files:  # a first writer makes it
        files.publish(layout.piece_name("s1", None, 1, layout.stamp(10**15), ".jsonl"), lambda write: write(b"{}\n"))
        files.append(b"{}\n")
        files.replace_manifest(b"{}\n{}\n")
        files.touch([])
        assert len(files.list()) == 2
    assert [each.session_id for each in store.summaries()] == ["s1"]
