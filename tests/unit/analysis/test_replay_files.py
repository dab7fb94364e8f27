"""Which recordings paths mean, and their bytes in blocks of whole lines."""

import gzip
import io
import json
import os
import sys
import types

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.analysis.replay import files
from mala_context.analysis.replay.files import Recording, blocks, find
from mala_context.errors import RecordingNotFoundError

SID = "0b5e0000-0000-4000-8000-000000000001"


def read(path, told=None):
    told = [] if told is None else told
    recording = Recording(str(path), (str(path),), 0)
    return b"".join(bytes(block) for block in blocks(recording, told.append))


def names(found):
    return [os.path.basename(each.path) for each in found]


def test_a_folder_gives_its_transcripts_in_order_and_nothing_else(tmp_path):
    for name in ("b.jsonl", "a.jsonl.gz", "deep/c.jsonl.zst", "notes.txt", "x.manifest.jsonl", "d.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}\n")
    assert names(find([str(tmp_path)])) == ["a.jsonl.gz", "b.jsonl", "c.jsonl.zst"]


def test_a_file_named_twice_is_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n")
    os.link(path, tmp_path / "b.jsonl")
    assert len(find([str(path), str(path), str(tmp_path), str(tmp_path / "*.jsonl")])) == 1


def test_files_are_told_of_while_they_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_AT_ONCE", 2)
    for name in ("a.jsonl", "b.jsonl", "c.txt", "deep/d.jsonl", "deep/er/e.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}\n")

    told = []
    assert len(find([str(tmp_path)], types.SimpleNamespace(passed=told.append))) == 4
    assert told == [2, 1, 1, 1]
    assert len(find([str(tmp_path)], object())) == 4


def test_any_file_that_is_named_is_read_whatever_its_name(tmp_path):
    path = tmp_path / "rows.log"
    path.write_bytes(b"{}\n")
    assert names(find([str(path)])) == ["rows.log"]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("pattern", [False, True])
def test_a_transcript_brings_its_subagents_and_nothing_else(tmp_path, suffix, pattern):
    below = ("agent-a.jsonl", "workflows/run/agent-b.jsonl.gz", "agent-a.meta.json")
    for name in (f"one.x{suffix}", f"two{suffix}", "one.x/other.jsonl", *(f"one.x/subagents/{each}" for each in below)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")
    path = str(tmp_path / ("one*" if pattern else "one.x")) + suffix
    assert names(find([path])) == [f"one.x{suffix}", "agent-a.jsonl", "agent-b.jsonl.gz"]
    assert names(find([path], subagents=False)) == [f"one.x{suffix}"]
    assert len(find([path, str(tmp_path)])) == len(find([str(tmp_path)])) == 5


@pytest.mark.parametrize("kind", ["file", "link to nothing"])
def test_what_is_no_folder_beside_a_transcript_is_passed_by(tmp_path, kind):
    (tmp_path / "one.jsonl").write_bytes(b"{}\n")
    (tmp_path / "one").mkdir()
    if kind == "file":
        (tmp_path / "one/subagents").write_bytes(b"")
    else:
        (tmp_path / "one/subagents").symlink_to(tmp_path / "nowhere")
    assert names(find([str(tmp_path / "one.jsonl")])) == ["one.jsonl"]


def test_a_pattern_reaches_into_folders(tmp_path):
    (tmp_path / "one" / "two").mkdir(parents=True)
    (tmp_path / "one" / "two" / "a.jsonl").write_bytes(b"")
    assert names(find([str(tmp_path / "**" / "*.jsonl")])) == ["a.jsonl"]
    assert names(find([str(tmp_path / "on*")])) == ["a.jsonl"]


@pytest.mark.parametrize("missing", ["nowhere.jsonl", "*.jsonl"])
def test_what_is_not_there_is_named(tmp_path, missing):
    with pytest.raises(RecordingNotFoundError) as caught:
        find([str(tmp_path / missing)])
    assert caught.value.path == str(tmp_path / missing)


def piece(stamp, agent=""):
    return f"{SID}{agent}_{stamp}_transcript.jsonl"


def test_pieces_of_an_archive_are_one_recording_a_chain_and_agent(tmp_path):
    one, two = piece("20260501T100000.000000Z"), piece("20260501T110000.000000Z")
    (tmp_path / one).write_bytes(b'{"a":1}\n')
    (tmp_path / two).write_bytes(b'{"b":2}\n')
    (tmp_path / piece("20260501T100000.000000Z", ".agent-a1")).write_bytes(b'{"c":3}\n')
    (tmp_path / piece("20260501T120000.000000Z", ".2")).write_bytes(b'{"d":4}\n')
    found = find([str(tmp_path)])
    assert sorted(len(each.parts) for each in found) == [1, 1, 2]
    main = next(each for each in found if len(each.parts) == 2)
    assert main.stem == SID
    assert b"".join(map(bytes, blocks(main, pytest.fail))) == b'{"a":1}\n{"b":2}\n'
    assert {each.stem for each in found} == {SID, "agent-a1"}


def test_of_pieces_that_are_whole_transcripts_the_newest_counts(tmp_path):
    one, two = piece("20260501T100000.000000Z"), piece("20260501T110000.000000Z")
    (tmp_path / one).write_bytes(b'{"a":1}\n')
    (tmp_path / two).write_bytes(b'{"a":1}\n{"b":2}\n')
    rows = [{"v": 1, "row": "piece", "name": name, "mode": "full"} for name in (one, two)]
    (tmp_path / f"{SID}.manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = find([str(tmp_path)])
    assert names([found]) == [two]


@pytest.mark.parametrize("name", [f"{SID}.manifest.jsonl", "a.jsonl"])
def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path, name):
    """Nothing writes to it: to open it as a file is to wait for ever."""
    (tmp_path / piece("20260501T100000.000000Z")).write_bytes(b'{"a":1}\n')
    os.mkfifo(tmp_path / name)
    found = [each for each in find([str(tmp_path)]) if each.stem == SID]
    assert [b"".join(map(bytes, blocks(each, pytest.fail))) for each in found] == [b'{"a":1}\n']


def test_packed_files_give_their_plain_bytes(tmp_path):
    data = b'{"a":"' + b"x" * 3_000_000 + b'"}\n{"b":2}'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    assert read(tmp_path / "a.jsonl.gz") == data
    assert read(tmp_path / "a.jsonl.zst") == data


def test_standard_input_is_a_dash(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(b'{"a":1}\n')

    monkeypatch.setattr("sys.stdin", Stdin)
    (recording,) = find(["-", "-"])
    assert b"".join(map(bytes, blocks(recording, pytest.fail))) == b'{"a":1}\n'


def without_isal(monkeypatch):
    for name in ("isal", "isal.igzip", "isal.isal_zlib"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("isal", [True, False])
@pytest.mark.parametrize("damage", ["cut", "inside", "after", "no gzip at all", "empty"])
def test_gzip_is_read_alike_with_isal_and_without(tmp_path, monkeypatch, isal, damage):
    plain = b"".join(b'{"a":%d}\n' % number for number in range(100_000))
    packed = bytearray(gzip.compress(plain[:400_000]) + gzip.compress(plain[400_000:]))  # as `cat` joins two
    if damage == "cut":
        del packed[-2_000:]
    elif damage == "inside":
        packed[len(packed) // 2 : len(packed) // 2 + 50] = b"\xff" * 50
    elif damage == "after":
        packed += b"no gzip"
    elif damage == "no gzip at all":
        packed = bytearray(b"{}\n")
    else:
        packed.clear()
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    if not isal:
        without_isal(monkeypatch)
    told = []
    got = read(tmp_path / "a.jsonl.gz", told)
    whole = 200_000 if damage == "inside" else len(got)  # bytes after the damage are others, until a checksum tells
    assert got[:whole] == plain[:whole]
    assert bool(told) == (damage != "empty")
    if damage in ("after", "cut"):
        assert len(got) > 400_000


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_damage_is_told_and_what_stood_before_it_is_there(tmp_path, name):
    plain = b'{"a":1}\n' * 200_000
    packed = gzip.compress(plain) if name.endswith("gz") else zstandard.ZstdCompressor().compress(plain)
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    told = []
    got = read(tmp_path / name, told)
    assert plain.startswith(got)
    if name.endswith("gz"):
        assert told


def test_a_file_that_cannot_be_opened_is_told(tmp_path):
    told = []
    assert read(tmp_path, told) == b""
    assert "cannot be read" in told[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 90), max_size=30), st.booleans(), st.integers(8, 40))
def test_blocks_are_whole_lines_and_lose_nothing(tmp_path_factory, lengths, ended, size):
    data = b"\n".join(b"x" * length for length in lengths) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("blocks") / "a.jsonl"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", size)
        got = [bytes(block) for block in blocks(Recording(str(path), (str(path),), 0), pytest.fail, bytearray(size))]
    assert b"".join(got) == data
    assert all(block.endswith(b"\n") for block in got[:-1])


@pytest.mark.parametrize("behind", [b"", b'\n{"b":2}\n', b"\n" + b"y" * 200 + b"\nz"])
def test_a_line_beyond_the_bound_is_left_out_told_and_still_counted(tmp_path, monkeypatch, behind):
    monkeypatch.setattr(files, "BLOCK", 64)
    monkeypatch.setattr(files, "MAX_LINE", 512)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"x" * 5_000 + behind)
    told = []
    data = read(path, told)
    assert len(told) == 1
    assert data == b'{"a":1}\n\n' + behind[1:]


class Bucket:
    """An object store as far as recordings ask it: the objects below one address."""

    def __init__(self, objects):
        self.objects = objects

    def walk(self):
        return [(name, len(data)) for name, data in sorted(self.objects.items())]

    def size(self, name):
        return len(self.objects[name]) if name in self.objects else None

    def read(self, name):
        return self.objects.get(name)

    def open(self, name):
        return io.BytesIO(self.objects[name])


@pytest.fixture
def bucket(monkeypatch):
    """Objects by their address below `s3://b`."""
    objects = {
        "p/a.jsonl": b'{"a":1}\n',
        "p/deep/b.jsonl.gz": gzip.compress(b'{"b":1}\n'),
        "p/deep/c.jsonl.zst": zstandard.compress(b'{"c":1}\n'),
        "p/notes.txt": b"x",
    }

    def bucket_at(address):
        start = f"{address.removeprefix('s3://b').strip('/')}/".lstrip("/")
        return Bucket({name[len(start) :]: data for name, data in objects.items() if name.startswith(start)})

    monkeypatch.setattr("mala_context.archive.remote.bucket.bucket_at", bucket_at)
    return objects


class TestObjectStores:
    def test_an_address_gives_what_lies_below_it(self, bucket):
        found = find(["s3://b/p"])
        assert [each.path for each in found] == [
            "s3://b/p/a.jsonl",
            "s3://b/p/deep/b.jsonl.gz",
            "s3://b/p/deep/c.jsonl.zst",
        ]
        assert [each.size for each in found] == [len(data) for name, data in bucket.items() if name != "p/notes.txt"]

    def test_one_object_is_one_recording(self, bucket):
        (one,) = find(["s3://b/p/deep/b.jsonl.gz"])
        assert one.stem == "b"

    @pytest.mark.parametrize("address", ["s3://b/p/gone.jsonl", "s3://b/nothing"])
    def test_an_address_of_nothing_is_an_error(self, bucket, address):
        with pytest.raises(RecordingNotFoundError):
            find([address])

    @pytest.mark.parametrize("name", ["p/a.jsonl", "p/deep/b.jsonl.gz", "p/deep/c.jsonl.zst"])
    def test_its_bytes_are_plain_however_they_are_packed(self, bucket, name):
        letter = name.split("/")[-1][0]
        assert read(f"s3://b/{name}") == f'{{"{letter}":1}}\n'.encode()


def test_a_piece_goes_by_its_session_and_a_subagents_by_the_agent():
    from mala_context.archive.layout import piece_name, stamp

    for agent, stem in ((None, SID), ("a1", "agent-a1")):
        path = "/x/" + piece_name(SID, agent, 1, stamp(1_700_000_000_000_000), ".jsonl")
        assert Recording(path, (path,), 0).stem == stem


def test_whoever_watches_is_told_the_plain_bytes_that_are_done(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a":1}\n' * 10))
    told = []
    recording = Recording(str(path), (str(path),), 0, told.append)
    assert sum(len(block) for block in blocks(recording, lambda problem: None)) == 80
    assert told[-1] == 80
