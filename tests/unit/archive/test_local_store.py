"""Local files as a store of pieces, and the same for work on all sessions."""

import math
import os
import time

import pytest

from mala_context.archive import layout, local_store
from mala_context.archive.local_store import ListedStore, LocalStore
from mala_context.errors import ArchiveUnavailableError
from mala_context.testing.battery import STORE_CHECKS


def piece(session_id, number=0):
    return layout.piece_name(session_id, None, 1, layout.stamp(10**15 + number), ".jsonl")


@pytest.fixture(params=[LocalStore, ListedStore])
def kind(request):
    return request.param


@pytest.fixture
def store(kind, tmp_path):
    """Three sessions, archived in this order, of 1, 2 and 3 pieces of 3 bytes and a manifest of as many."""
    store = kind(str(tmp_path / "archives"))
    for number, session_id in enumerate(("s1", "s12", "t1"), 1):
        with store.lock(session_id, 1.0) as files:
            for each in range(number):
                files.publish(piece(session_id, each), lambda write: write(b"{}\n"), mtime_ns=10**18 + number)
            files.append(b"{}\n")
        os.utime(tmp_path / "archives" / layout.manifest_name(session_id), ns=(10**18, 10**18))
    return store


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_both_pass_the_battery(check, kind, tmp_path):
    numbers = iter(range(1_000))
    check(lambda: kind(str(tmp_path / f"runs{next(numbers)}" / "archives")))


def test_sessions_are_listed_with_the_one_archived_last_first(store):
    told = []
    assert [(each.session_id, each.pieces, each.stored) for each in store.summaries()] == [
        ("t1", 3, 12),
        ("s12", 2, 9),
        ("s1", 1, 6),
    ]
    store.summaries(progress=told.append)
    assert sum(told) == 27


def test_of_very_many_names_it_is_told_before_the_first_session(store, monkeypatch):
    names = [f"s{number}.manifest.jsonl" for number in range(9_999)]
    monkeypatch.setattr("mala_context.archive.directory_cache.each_name", lambda _: names)
    told = []

    class Progress:
        passed = told.append

        def __call__(self, size):
            assert 8_000 < sum(told) <= len(names)

    store.listed().summaries(progress=Progress())
    assert told


@pytest.mark.parametrize(("prefix", "found"), [("s", ["s12", "s1"]), ("s12", ["s12"]), ("x", []), ("s1_", [])])
def test_sessions_are_found_by_how_their_ids_begin(store, prefix, found):
    assert [each.session_id for each in store.summaries(prefix)] == found
    assert [each.session_id for each in store.listed().summaries(prefix)] == found


def test_what_is_none_of_ours_is_not_listed(store):
    before = store.list()
    assert len(before) == 9
    for name in ("notes.txt", "s1.txt", ".tmp-s1.0123456789abcdef"):
        with open(os.path.join(store.location, name), "wb") as file:
            file.write(b"x")
    assert store.list() == before
    assert len(store.summaries()) == len(store.listed().summaries()) == 3


def test_a_session_that_a_killed_writer_left_something_in_is_unfinished(store):
    for name in (".tmp-s1.0123456789abcdef", ".tmp-t1.0123456789abcdef", ".tmp-..0123456789abcdef", ".tmp-x"):
        open(os.path.join(store.location, name), "wb").close()
    assert store.unfinished() == ["s1", "t1"]
    store.lock("s1", 1.0).close()
    assert store.unfinished() == ["t1"]


def test_a_directory_that_is_not_there_holds_nothing_and_is_not_made(kind, tmp_path):
    store = kind(str(tmp_path / "none"))
    assert (store.list(), store.summaries(), store.summaries("s"), store.unfinished()) == ([], [], [], [])
    assert store.listed().summaries() == []
    assert list(store.recent(time.monotonic() + 60)) == []
    with store.view("s1") as files:
        assert (files.list(), files.manifest()) == ([], b"")
    assert os.listdir(tmp_path) == []


def test_a_link_is_no_directory_of_ours(kind, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "archives")
    store = kind(str(tmp_path / "archives"))
    for ask in (store.list, lambda: store.view("s1"), lambda: store.lock("s1", 1.0), lambda: store.summaries("s")):
        with pytest.raises(ArchiveUnavailableError):
            ask()
    assert os.listdir(tmp_path / "elsewhere") == []


class TestListed:
    """A store that listed its directory once may be late, but knows when it is."""

    def test_is_the_same_one_while_no_name_comes_or_goes(self, store):
        os.utime(store.location, ns=(10**18, 10**18))  # a directory that changed just now may be changing still
        listed = store.listed()
        listed.summaries()
        assert isinstance(listed, ListedStore)
        assert listed.listed() is listed
        with LocalStore(store.location).lock("s2", 1.0) as files:
            files.append(b"{}\n")
        assert listed.listed() is not listed
        assert len(listed.listed().summaries()) == 4

    def test_is_itself_where_there_is_no_directory_yet(self, tmp_path):
        listed = ListedStore(str(tmp_path / "none"))
        assert listed.listed() is listed

    def test_sees_in_a_session_what_a_view_of_it_sees(self, store):
        listed = store.listed()
        for each in store.summaries():
            with store.view(each.session_id) as files, listed.view(each.session_id) as same:
                assert list(same.list()) == list(files.list())
                assert same.manifest() == files.manifest()


class TestRecent:
    """The sessions by their manifests' times alone: for work that may take no longer than so much."""

    def test_the_one_that_was_written_to_last_is_first(self, store, tmp_path):
        os.utime(tmp_path / "archives" / layout.manifest_name("s12"), ns=(10**18 + 5, 10**18 + 5))
        os.utime(tmp_path / "archives" / layout.manifest_name("s1"), ns=(10**18 + 9, 10**18 + 9))
        (tmp_path / "archives" / "..manifest.jsonl").write_text("{}")
        assert store.recent(math.inf) == ["s1", "s12", "t1"]

    def test_none_where_time_runs_out(self, store, monkeypatch):
        monkeypatch.setattr(local_store, "_BETWEEN_LOOKS", 1)
        assert store.recent(-1.0) == []
        assert sorted(store.recent(math.inf)) == ["s1", "s12", "t1"]

    def test_nothing_is_there(self, kind, tmp_path):
        assert kind(str(tmp_path / "none")).recent(math.inf) == []


def test_work_on_some_sessions_knows_no_others(store):
    some = store.listed({"s1", "t1"})
    assert [each.session_id for each in some.summaries()] == ["t1", "s1"]
    assert [each.session_id for each in some.listed().summaries()] == ["t1", "s1"]
    with some.view("t1") as files:
        assert len(files.list()) == 4
