"""The names in an archive's directory, by session."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive import directory_cache as names_module
from mala_context.archive import layout
from mala_context.archive.atomic_write import temporary_prefix
from mala_context.archive.directory_cache import SETTLED, Names, _session_of

WHEN = layout.stamp(10**15)


@pytest.fixture
def fd(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def settle(path):
    """Make a directory as old as one that nobody has changed lately."""
    old = time.time_ns() - 2 * SETTLED
    os.utime(path, ns=(old, old))


plain = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}", fullmatch=True)


@given(plain, st.none() | plain, st.integers(1, 999_999), st.booleans())
def test_every_name_that_we_give_is_its_sessions(session_id, subagent, chain, packed):
    piece = layout.piece_name(session_id, subagent, chain, WHEN, ".jsonl") + (".zst" if packed else "")
    side, manifest = layout.side_file_name(session_id, "0" * 64), layout.manifest_name(session_id)
    for name in (piece, side, manifest, temporary_prefix(session_id) + "0123456789abcdef"):
        assert _session_of(name) == session_id


def test_a_session_named_like_a_piece():
    odd = f"s_{WHEN[:15]}"
    for name in (layout.manifest_name(odd), layout.piece_name(odd, None, 1, WHEN, ".jsonl")):
        assert _session_of(name) == odd


def test_a_directory_is_listed_when_it_changed(fd, tmp_path, monkeypatch):
    listed = []
    monkeypatch.setattr(names_module, "each_name", lambda fd: listed.append(1) or os.listdir(fd))
    for name in ("s1.manifest.jsonl", f"s1_{WHEN}_transcript.jsonl", "s2.manifest.jsonl", ".tmp-s2.00"):
        (tmp_path / name).touch()
    settle(tmp_path)
    names = Names()
    assert sorted(names.of(fd, "s1")) == ["s1.manifest.jsonl", f"s1_{WHEN}_transcript.jsonl"]
    assert sorted(names.sessions(fd)) == ["s1", "s2"]
    assert (names.temporary("s2"), names.temporary("s1")) == ([".tmp-s2.00"], [])
    assert names.of(fd, "s3") == []
    assert names.is_current(fd)
    assert len(listed) == 1
    (tmp_path / "s3.manifest.jsonl").touch()
    assert not names.is_current(fd)
    monkeypatch.setattr(names, "_again", 0.0)
    assert names.of(fd, "s3") == ["s3.manifest.jsonl"]
    assert len(listed) == 2


def test_a_long_listing_says_how_far_it_is(fd, monkeypatch):
    come = []
    monkeypatch.setattr(names_module, "each_name", lambda fd: (come.append(1) or f"s{n}.x" for n in range(10_000)))
    told = []
    assert len(Names().sessions(fd, lambda count: told.append((count, len(come))))) == 10_000
    assert sum(count for count, _ in told) > 8_000
    assert [there for _, there in told] == [sum(count for count, _ in told[: n + 1]) for n in range(len(told))]


def test_while_others_write_it_is_listed_a_twentieth_of_the_time(fd, tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(names_module.time, "monotonic", lambda: clock[0])

    def slowly(fd):
        clock[0] += 1.0
        return os.listdir(fd)

    monkeypatch.setattr(names_module, "each_name", slowly)
    names = Names()
    names.sessions(fd)
    (tmp_path / "s1.manifest.jsonl").touch()
    clock[0] += 19.0
    assert names.sessions(fd) == []
    clock[0] += 2.0
    assert names.sessions(fd) == ["s1"]


def test_names_of_ones_own_are_known_at_once(fd, tmp_path):
    names = Names()
    names.sessions(fd)
    for _ in range(2):
        names.add("s1", "s1.manifest.jsonl")
    assert names.of(fd, "s1") == ["s1.manifest.jsonl"]
    names.replace("s1", ["s1.2_x"])
    assert names.of(fd, "s1") == ["s1.2_x"]


def test_a_manifest_tells_whether_somebody_wrote_since(fd, tmp_path, monkeypatch):
    names = Names()
    now = time.time_ns()
    assert not names.is_right("s1", 0)  # nothing was listed yet
    names.sessions(fd)
    assert names.is_right("s1", now - 2 * SETTLED)
    assert not names.is_right("s1", now)
    names.wrote("s1", now)
    assert names.is_right("s1", now)
    assert not names.is_right("s1", now + 1)
    monkeypatch.setattr(names_module.time, "time_ns", lambda: now - 10**13)  # the clock was set back
    assert not names.is_right("s1", now - 2 * SETTLED)


def test_a_name_of_ones_own_that_is_removed_is_forgotten_at_once(fd, tmp_path):
    settle(tmp_path)
    names = Names()
    names.sessions(fd)
    for name in ("s1.manifest.jsonl", f"s1_{WHEN}_transcript.jsonl"):
        names.add("s1", name)
    assert len(names.of(fd, "s1")) == 2
    for _ in range(2):
        names.discard("s1", f"s1_{WHEN}_transcript.jsonl")
        names.discard("s2", f"s2_{WHEN}_transcript.jsonl")
    assert names.of(fd, "s1") == ["s1.manifest.jsonl"]
    assert names.of(fd, "s2") == []


def test_of_chosen_sessions_no_others_are_held(fd, tmp_path):
    for name in ("s1.manifest.jsonl", "s10.manifest.jsonl", "s2.manifest.jsonl", ".tmp-s2.00", ".tmp-s1.00"):
        (tmp_path / name).touch()
    names = Names(["s1", "s3"])
    assert names.sessions(fd) == ["s1"]
    assert (names.of(fd, "s2"), names.temporary("s2"), names.temporary("s1")) == ([], [], [".tmp-s1.00"])
