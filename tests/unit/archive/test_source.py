"""Reading a transcript that anybody may be writing to."""

import errno
import hashlib
import io
import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive import source as sources
from mala_context.archive.source import Source, digest_of, fill, own_directory
from mala_context.errors import TranscriptError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.jsonl"


class Dribble(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe or an unpacker may."""

    def __init__(self, data, step):
        self.data, self.step = io.BytesIO(data), step

    def readable(self):
        return True

    def readinto(self, buffer):
        got = self.data.read(min(self.step, len(buffer)))
        buffer[: len(got)] = got
        return len(got)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
@given(data=st.binary(max_size=60).map(lambda b: b.replace(b"a", b"\n")), start=st.integers(0, 60))
def test_the_last_newline_is_found_whatever_the_buffer(chunk, data, start, one_file):
    one_file.write_bytes(data)
    old, sources.CHUNK = sources.CHUNK, chunk
    try:
        start = min(start, len(data))
        with Source(one_file) as source:
            expected = data.rfind(b"\n", start) + 1 or start
            assert source.last_newline(start, len(data)) == expected
    finally:
        sources.CHUNK = old


@given(data=st.binary(max_size=80), other=st.binary(max_size=80), step=st.integers(1, 9))
def test_comparing_is_equality_whatever_the_reader(data, other, step, one_file):
    one_file.write_bytes(data + other)
    old, sources.CHUNK = sources.CHUNK, 8
    try:
        with Source(one_file) as source:
            assert source.same_as(Dribble(data, step), 0, len(data))
            assert source.same_as(Dribble(other, step), len(data), len(other))
            assert source.same_as(Dribble(other, step), 0, len(other)) == (one_file.read_bytes()[: len(other)] == other)
            assert source.same_as(Dribble(data, step), 0, len(data) + 1) is False
            assert not data or source.same_as(Dribble(data, step), 0, len(data) - 1) is False
            assert digest_of(Dribble(data + other, step)) == (source.digest(0, source.size), source.size)
    finally:
        sources.CHUNK = old


def test_a_copy_is_hashed_on_the_way(path):
    data = os.urandom(700_000)
    path.write_bytes(data)
    written = []
    with Source(path) as source:
        assert (
            source.copy(5, 600_000, lambda view: written.append(bytes(view)))
            == hashlib.sha256(data[5:600_000]).hexdigest()
        )
    assert b"".join(written) == data[5:600_000]


@pytest.mark.parametrize("bad", ["", None, 3, b"", [], "x\0y"])
def test_what_is_no_path_is_refused(bad):
    with pytest.raises(TranscriptError) as caught:
        Source(bad)
    assert caught.value.reason == ("unreadable" if bad == "x\0y" else "empty path")


def test_a_path_may_lead_through_links_but_not_end_at_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "t.jsonl").write_bytes(b"x\n")
    os.symlink(tmp_path / "real", tmp_path / "linked")
    os.symlink(tmp_path / "real" / "t.jsonl", tmp_path / "t.jsonl")
    with Source(tmp_path / "linked" / "t.jsonl") as source:
        assert source.size == 2
    with pytest.raises(TranscriptError, match="symbolic link"):
        Source(tmp_path / "t.jsonl")


def test_a_device_is_refused_without_reading():
    with pytest.raises(TranscriptError, match="not a regular file"):
        Source("/dev/zero")


def test_an_unreadable_file_says_so(path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sources.os, "open", refuse)
    with pytest.raises(TranscriptError, match="Permission denied") as caught:
        Source(path)
    assert caught.value.reason == "unreadable"


def test_an_error_while_reading_says_so(path):
    path.write_bytes(b"x" * 10)

    class Failing(io.RawIOBase):
        def seek(self, *_):
            raise OSError(5, "Input/output error")

    with Source(path) as source:
        file, source._file = source._file, Failing()
        with pytest.raises(TranscriptError, match="Input/output error"):
            source.digest(0, 10)
        source._file = file


def test_the_size_can_be_taken_anew(path):
    path.write_bytes(b"x")
    with Source(path) as source:
        path.write_bytes(b"xyz")
        assert source.size == 1
        source.take_size()
        assert source.size == 3


def test_a_buffer_is_filled_as_far_as_it_goes():
    buffer = bytearray(10)
    assert fill(Dribble(b"0123456", 3), buffer) == 7
    assert fill(Dribble(b"", 3), buffer) == 0


def test_a_transcript_that_another_machine_replaced_is_changing(path, monkeypatch):
    path.write_bytes(b"one\n")
    with Source(path) as source:

        def stale(_fd):
            raise OSError(errno.ESTALE, "Stale file handle")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", stale)
            with pytest.raises(TranscriptError) as caught:
                source.take_size()
        assert caught.value.reason == "changing"
        with open(f"{path}.new", "wb") as file:
            file.write(b"another\n")
        os.replace(f"{path}.new", path)
        source.open_again()
        source.take_size()
        assert source.size == len(b"another\n")
        os.unlink(path)
        with pytest.raises(TranscriptError, match="missing"):
            source.open_again()


class TestOwnDirectory:
    """A subagent's transcript lies in its session's own directory; whoever may write there may put links on the way."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "projects" / "s1" / "subagents" / "inner" / "agent-a1.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"one\n")
        return path

    @pytest.mark.parametrize(
        ("path", "found"),
        [
            ("/p/s1/subagents/agent-a.jsonl", "/p/s1"),
            (pathlib.Path("/p/s1/subagents/a/b/agent-a.jsonl"), "/p/s1"),
            ("/p/s1/subagents/../../x", None),
            ("/p/s1.jsonl", None),
            ("subagents/agent-a.jsonl", None),
            (None, None),
        ],
    )
    def test_it_is_what_stands_before_subagents(self, path, found):
        assert own_directory(path) == found

    def test_a_file_in_it_is_read(self, path):
        own = own_directory(path)
        with Source(path, own=own) as source:
            assert source.last_newline(0, source.size) == 4
            source.open_again()
            assert source.digest(0, 4) == hashlib.sha256(b"one\n").hexdigest()

    @pytest.mark.parametrize("link", ["s1", "s1/subagents", "s1/subagents/inner", "s1/subagents/inner/agent-a1.jsonl"])
    def test_no_link_on_the_way_is_followed(self, path, tmp_path, link):
        place, elsewhere = tmp_path / "projects" / link, tmp_path / "elsewhere"
        place.rename(elsewhere)
        place.symlink_to(elsewhere)
        with pytest.raises(TranscriptError) as caught:
            Source(path, own=own_directory(path))
        assert caught.value.reason in {"not a regular file", "missing"}

    def test_what_is_not_there_is_missing(self, path):
        with pytest.raises(TranscriptError, match="missing"):
            Source(path.with_name("agent-a2.jsonl"), own=own_directory(path))


def test_a_size_that_cannot_be_taken_is_no_size(path, monkeypatch):
    path.write_bytes(b"one\n")
    with Source(path) as source:

        def broken(_fd):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "fstat", broken)
        with pytest.raises(TranscriptError, match="unreadable"):
            source.take_size()
        monkeypatch.undo()
