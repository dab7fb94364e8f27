"""Where the next piece goes."""

import errno
import hashlib
import json
import logging
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.archive import layout, manifests
from mala_context.archive.increment import ArchiveRequest, add_piece, make_plan, open_plain
from mala_context.archive.packing import pack_piece
from mala_context.archive.source import Source, fill
from mala_context.archive.verify import verify_archive
from mala_context.errors import TranscriptError
from tests.helpers.archive_memory import MemoryStore
from tests.helpers.archive_tools import cat

WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=9).map(lambda b: b.replace(b"a", b"\n"))),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.just("edit"), st.integers(0, 40)),
        st.tuples(st.just("archive"), st.booleans()),
        st.tuples(st.just("pack"), st.none()),
        st.tuples(st.just("forget"), st.integers(0, 400)),
    ),
    max_size=14,
)


@pytest.fixture
def files():
    with MemoryStore().lock("s1", 1) as files:
        yield files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s1.jsonl"


def request(mode="incremental", *, final=False, now=10**15, **more):
    fields = {"trigger": "auto", **more.pop("fields", {})}
    return ArchiveRequest(session_id="s1", subagent=None, mode=mode, final=final, now=now, fields=fields, **more)


def archive(files, path, data=None, **how):
    """Archive a transcript that now holds these bytes."""
    if data is not None:
        path.write_bytes(data)
    with Source(path) as source:
        return add_piece(files, source, request(**how))


def pieces(files):
    return manifests.pieces_of(files.list(), manifests.parse(files.manifest()))


def read(files, piece):
    reader, data = open_plain(files, piece), bytearray(1 << 12)
    try:
        return bytes(data[: fill(reader, data)])
    finally:
        reader.close()


def chains(files):
    """Bytes of each chain."""
    return [b"".join(read(files, piece) for piece in chain) for chain in manifests.chains_of(pieces(files), None)]


@settings(max_examples=60, deadline=None)
@given(writes=WRITES)
def test_whatever_happens_to_a_transcript_the_newest_chain_is_its_beginning_and_old_chains_stay(writes, one_file):
    """The pieces may be packed in between, and the manifest lost or cut; what is not to be archived again is not."""
    data, history = bytearray(), []
    with MemoryStore().lock("s1", 1) as files:
        for what, value in [*writes, ("archive", True)]:
            if what == "append":
                data += value
            elif what == "truncate":
                del data[value:]
            elif what == "edit" and value < len(data):
                data[value] ^= 1
            elif what == "forget":
                files.replace_manifest(files.manifest()[:value])
            elif what == "pack" and (plain := [each for each in pieces(files) if not each.packed]):
                pack_piece(files, plain[-1], 10**15)
            elif what == "archive":
                archive(files, one_file, data, final=value)
                now = chains(files)
                assert now[: len(history) - 1] == history[:-1]
                assert not history or now[len(history) - 1].startswith(history[-1])
                history = now
                if data and (value or b"\n" in data):
                    assert data.startswith(now[-1])
                    rest = data[len(now[-1]) :]
                    assert not rest if value else b"\n" not in rest
                assert not archive(files, one_file, final=value).archived
                assert chains(files) == history


@settings(max_examples=30, deadline=None)
@given(data=st.binary(min_size=2, max_size=60).map(lambda b: b.replace(b"a", b"\n")), cuts=st.sets(st.integers(1, 59)))
def test_the_pieces_of_a_transcript_that_grew_lie_end_to_end(data, cuts, one_file):
    with MemoryStore().lock("s1", 1) as files:
        results = [archive(files, one_file, data[:cut], final=cut >= len(data)) for cut in [*sorted(cuts), len(data)]]
        written = [each for each in results if each.archived]
        for each, piece in zip(written, pieces(files), strict=True):
            assert (each.offset, each.bytes, each.sha256) == (piece.offset, piece.length, piece.sha256)
            assert read(files, piece) == data[piece.offset : piece.end]
            assert hashlib.sha256(read(files, piece)).hexdigest() == piece.sha256
    assert [each.offset for each in written] == [0, *(each.offset + each.bytes for each in written[:-1])]
    assert written[-1].offset + written[-1].bytes == len(data)
    assert {(each.chain, each.new_chain) for each in results} == {(1, False)}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    ("now", "began", "said"),
    [
        (b"one\ntwo\nthree\n", None, ""),
        (b"one\nTWO\nthree\n", "rewritten", "was rewritten: its first 8 bytes are not what was archived"),
        (b"one\nt", "shrunk", "shrank: 8 bytes of it were archived"),
        (b"one\ntwo!\n", "rewritten", "was rewritten"),
    ],
    ids=["grown", "rewritten", "cut", "last newline overwritten"],
)
def test_a_transcript_goes_on_where_it_still_begins_with_what_was_archived(files, path, caplog, pack, now, began, said):
    archive(files, path, b"one\n")
    archive(files, path, b"one\ntwo\n")
    if pack:
        for each in pieces(files):
            pack_piece(files, each, 10**15)
    caplog.clear()
    result = archive(files, path, now)
    assert (result.chain, result.offset, result.new_chain) == ((1, 8, False) if began is None else (2, 0, True))
    assert chains(files)[0].startswith(b"one\ntwo\n")
    rows = manifests.parse(files.manifest()).pieces()
    assert rows[pieces(files)[-1].plain].get("began") == began
    assert said in caplog.text
    assert [each.levelname for each in caplog.records] == ["WARNING"] * bool(began)


@pytest.mark.parametrize(("first", "then"), [("incremental", "full"), ("full", "incremental")])
def test_a_chain_is_of_one_mode(files, path, caplog, first, then):
    caplog.set_level(logging.INFO, logger="mala_context.archive")
    archive(files, path, b"one\n", mode=first)
    result = archive(files, path, b"one\ntwo\n", mode=then)
    assert (result.chain, result.offset, result.bytes) == (2, 0, 8)
    assert "is archived in another mode from now on, after 4 bytes" in caplog.text
    assert "WARNING" not in {each.levelname for each in caplog.records}


def test_a_full_copy_is_made_whatever_the_transcript_was_before(files, path):
    for data in (b"one\n", b"one\ntwo\n", b"other\n"):
        assert archive(files, path, data, mode="full").bytes == len(data)
    assert [(read(files, each), each.offset) for each in pieces(files)] == [
        (b"one\n", 0),
        (b"one\ntwo\n", 0),
        (b"other\n", 0),
    ]


def test_a_row_that_is_still_being_written_waits_for_its_end(files, path):
    assert archive(files, path, b"one\ntw").bytes == 4
    waiting = archive(files, path, b"one\ntwo")
    assert (waiting.reason, waiting.offset) == ("incomplete row", 4)
    assert archive(files, path, b"one\ntwo\n").bytes == 4
    assert archive(files, path, b"").reason == "empty"
    assert chains(files) == [b"one\ntwo\n"]


def test_an_emptied_transcript_is_said_and_leaves_what_was_archived(files, path, caplog):
    archive(files, path, b"")
    assert "is empty" in caplog.text
    archive(files, path, b"one\n")
    result = archive(files, path, b"")
    assert (result.reason, result.archived) == ("empty", False)
    assert chains(files) == [b"one\n"]


class TestLostRows:
    """A piece without a row was written by somebody who was killed, or the manifest was lost: its file says all."""

    @pytest.mark.parametrize("mode", ["incremental", "full"])
    @pytest.mark.parametrize("lost", [0, 1, 2])
    def test_are_made_again_from_the_files(self, files, path, caplog, mode, lost):
        for data in (b"one\n", b"one\ntwo\n"):
            archive(files, path, data, mode=mode)
        before = pieces(files)
        files.replace_manifest(b"".join(files.manifest().splitlines(keepends=True)[: 2 - lost]))
        result = archive(files, path, b"one\ntwo\nthree\n", mode=mode)
        assert (result.chain, result.offset) == (1, 8 if mode == "incremental" else 0)
        same = "name", "offset", "length", "sha256", "mode"
        for now, then in zip(pieces(files), before, strict=False):
            assert [getattr(now, name) for name in same] == [getattr(then, name) for name in same]
        rows = manifests.parse(files.manifest()).of_kind("piece")
        assert sum(bool(row.get("rebuilt")) for row in rows) == lost
        assert (f"{lost} rows made again" in caplog.text) is bool(lost)

    @pytest.mark.parametrize("unreadable", ["damaged", "not installed"])
    def test_of_a_packed_piece_that_cannot_be_read_have_no_length(self, files, path, monkeypatch, unreadable):
        archive(files, path, b"one\ntwo\n")
        pack_piece(files, pieces(files)[0], 10**15)
        (packed,) = pieces(files)
        files.replace_manifest(b"")
        if unreadable == "damaged":
            with files.open(packed.name) as reader:
                data = reader.read()
            files.remove(packed.name)
            files.publish(packed.name, lambda write: write(data[:-6] + bytes(6)))
        else:
            monkeypatch.setitem(sys.modules, "zstandard", None)
        result = archive(files, path, b"one\ntwo\nthree\n")
        first, *_ = pieces(files)
        assert (first.length, first.sha256) == (None, None)
        assert (result.offset, result.bytes, result.chain) == (0, 14, 2)  # the whole transcript

    @pytest.mark.parametrize("mode", ["incremental", "full"])
    @pytest.mark.parametrize("pack", [False, True])
    @pytest.mark.parametrize("count", [1, 2])
    def test_of_pieces_that_no_disk_gives_back_hold_nothing_up(
        self, files, path, monkeypatch, caplog, mode, pack, count
    ):
        for data in (b"one\n", b"one\ntwo\n")[:count]:
            archive(files, path, data, mode=mode)
        for each in pieces(files) if pack else ():
            pack_piece(files, each, 10**15)
        files.replace_manifest(b"")

        def broken(_name):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(files, "open", broken)
        result = archive(files, path, b"one\ntwo\nthree\n", mode=mode)
        monkeypatch.undo()
        assert result.archived
        assert read(files, pieces(files)[-1]) == b"one\ntwo\nthree\n"
        assert "cannot be read now" in caplog.text

    def test_of_what_only_an_object_store_has_ask_no_network(self, files, path, monkeypatch):
        """A hook waits for this."""
        archive(files, path, b"one\n")
        (there,) = files.list()[1:]
        files.replace_manifest(b"")
        files.remove(there.name)
        real = files.list
        monkeypatch.setattr(files, "list", lambda: [*real(), replaced(there, remote="s3://bucket")])
        monkeypatch.setattr(files, "open", lambda name: pytest.fail(f"{name} was asked for"))
        result = archive(files, path, b"one\ntwo\n")
        assert (result.chain, result.bytes) == (2, 8)


def replaced(file, **fields):
    return manifests.StoredFile(**{**vars(file), **fields})


@pytest.mark.parametrize("known", [True, False])
def test_what_only_an_object_store_has_is_compared_by_its_hash(files, path, monkeypatch, known):
    archive(files, path, b"one\n")
    (there,) = (each for each in files.list() if each.name.endswith(".jsonl") and "manifest" not in each.name)
    if not known:
        row = manifests.parse(files.manifest()).rows[0]
        files.replace_manifest(manifests.dump([{key: row[key] for key in row if key != "sha256"}]))
    real = files.list
    monkeypatch.setattr(files, "list", lambda: [replaced(there, remote="s3://bucket"), *real()[2:]])
    monkeypatch.setattr(files, "open", lambda name: pytest.fail(f"{name} was asked for"))
    result = archive(files, path, b"one\ntwo\n")
    assert (result.chain, result.offset) == ((1, 4) if known else (2, 0))


def test_a_piece_of_a_gap_on_is_no_beginning(files, path, caplog):
    for data in (b"one\n", b"one\ntwo\n", b"one\ntwo\nthree\n"):
        archive(files, path, data)
    files.remove(pieces(files)[1].name)
    result = archive(files, path, b"one\ntwo\nthree\nfour\n")
    assert (result.chain, result.offset, result.bytes) == (2, 0, 19)
    assert "pieces of its first 10 bytes are missing" in caplog.text


def test_a_piece_that_a_disk_does_not_give_back_begins_a_chain(files, path, monkeypatch, caplog):
    archive(files, path, b"one\n")

    def broken(_name):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "open", broken)
    assert archive(files, path, b"one\ntwo\n").chain == 2
    assert "pieces of its first 4 bytes cannot be read" in caplog.text


@pytest.mark.parametrize("broken", [ValueError("a fault of ours"), TranscriptError("p", "changing")])
def test_no_other_error_is_taken_for_a_piece_that_cannot_be_read(files, path, monkeypatch, broken):
    archive(files, path, b"one\n")

    def fails(*_):
        raise broken

    monkeypatch.setattr(Source, "same_as", fails)
    with pytest.raises(type(broken)):
        archive(files, path, b"one\ntwo\n")
    assert len(pieces(files)) == 1


def test_a_name_that_is_taken_is_passed_over(files, path):
    """By whatever: nothing is replaced."""
    taken = layout.piece_name("s1", None, 1, layout.stamp(10**15), ".jsonl")
    real, hidden = files.list, {taken}
    files.publish(taken, lambda write: write(b"somebody's"))
    files.list = lambda: [each for each in real() if each.name not in hidden]
    result = archive(files, path, b"one\n")
    hidden.clear()
    assert result.path.endswith(layout.piece_name("s1", None, 1, layout.stamp(10**15 + 1), ".jsonl"))
    assert [read(files, each) for each in pieces(files)] == [b"somebody's", b"one\n"]


def test_a_row_that_cannot_be_written_is_made_again_by_the_next(files, path, monkeypatch, caplog):
    def full(_rows):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "append", full)
        assert archive(files, path, b"one\n").archived
    assert "row not written" in caplog.text
    assert archive(files, path, b"one\ntwo\n").offset == 4
    assert [each.row is not None for each in pieces(files)] == [True, True]


def test_rows_that_nobody_can_read_are_said_and_kept(files, path, caplog):
    archive(files, path, b"one\n")
    files.replace_manifest(files.manifest() + b"{cut\n[1]\n")
    assert archive(files, path, b"one\ntwo\n").offset == 4
    assert "2 unreadable rows ignored" in caplog.text
    assert b"{cut\n[1]\n" in files.manifest()


@pytest.mark.parametrize(
    ("trigger", "words"), [("auto", "PreCompact: archived transcript (trigger=auto)"), ("boundary", "Archived transcr")]
)
def test_what_was_archived_is_said_in_the_words_that_people_search_for(files, path, caplog, trigger, words):
    caplog.set_level(logging.INFO, logger="mala_context.archive")
    archive(files, path, b"one\n", fields={"trigger": trigger})
    archive(files, path, fields={"trigger": trigger})
    first, second = caplog.messages
    assert first.startswith(words)
    assert "nothing new" in second.lower()


def piece(number, size, **row):
    name = layout.piece_name("s1", None, 1, layout.stamp(10**15 + number), ".jsonl")
    return manifests.StoredFile(name=name, size=size, mtime_ns=1), {"row": "piece", "name": name, **row}


@pytest.mark.parametrize(
    ("pieces", "mode", "size", "broken"),
    [
        ([], "incremental", 10, None),
        ([piece(1, 10, offset=0)], "incremental", 9, "shrunk"),
        ([piece(1, 10, offset=5)], "incremental", 90, "gap"),
        ([piece(1, 10, mode="full")], "incremental", 10, "mode"),
        ([piece(1, 10, mode="incremental")], "full", 10, "mode"),
        ([piece(1, 10, mode="full"), piece(2, 90, mode="full")], "full", 10, None),
        ([piece(1, 10, offset=0)], "incremental", 90, "unreadable"),
    ],
)
def test_why_a_chain_ends(pieces, mode, size, broken, tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b"x" * size)
    files = MemoryStore().view("s1")
    manifest = manifests.parse(manifests.dump(row for _, row in pieces))
    chain = manifests.pieces_of([file for file, _ in pieces], manifest)
    with Source(tmp_path / "t.jsonl") as source:
        plan = make_plan(files, source, chain, mode)
    assert (plan.broken, plan.chain, plan.offset) == (broken, 1 if broken is None else 2, 0)


SECOND = 10**6


@pytest.mark.parametrize(
    ("since", "agent", "outcome", "pieces"),
    [
        (None, None, False, 2),
        (10**15, None, False, 1),
        (10**15 - SECOND, "main", False, 1),
        (10**15 + SECOND, None, False, 2),
        (10**15, None, True, 2),
        (10**15, "a1", False, 2),
    ],
    ids=[
        "nobody beside it",
        "beside it",
        "before it",
        "long before",
        "of a compaction that is over",
        "of another agent",
    ],
)
@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_what_another_hook_archived_for_this_compaction_is_not_archived_again(
    mode, since, agent, outcome, pieces, tmp_path
):
    path = tmp_path / "s1.jsonl"
    path.write_bytes(b"one\n")
    with MemoryStore().lock("s1", 1) as files, Source(str(path)) as source:
        source.take_size()
        first = add_piece(files, source, request(mode, fields={"agent": "main"}))
        if outcome:
            name = first.path.removeprefix("memory:")
            files.append(manifests.dump([manifests.new_row("outcome", 10**15, outcome="failed", piece=name)]))
        path.write_bytes(b"one\ntwo\n")
        source.take_size()
        result = add_piece(files, source, request(mode, now=10**15 + SECOND, since=since, fields={"agent": agent}))
        found = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
    assert len(found) == pieces
    assert result.archived is (pieces == 2)
    if pieces == 1:
        assert (result.reason, result.offset, result.chain) == ("another hook archived", 4, 1)


def test_a_stale_piece_is_opened_again(tmp_path, monkeypatch):
    from mala_context.archive import increment
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"n":1}\n')
    archive.archive(transcript, "s1")
    transcript.write_bytes(b'{"n":1}\n{"n":2}\n')
    real, answers = increment.open_plain, [OSError(errno.ESTALE, "Stale file handle")]

    def stale(files, piece):
        if answers:
            raise answers.pop()
        return real(files, piece)

    monkeypatch.setattr(increment, "open_plain", stale)
    result = archive.archive(transcript, "s1")
    assert (result.chain, result.new_chain, answers) == (1, False, [])


@pytest.mark.parametrize("back", [3, 60, 1_800, 3_599, 7_200, 10**7])
def test_a_hook_is_not_held_back_by_a_piece_from_before_the_clock_was_set_back(tmp_path, monkeypatch, back):
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"n":1}\n')
    now = 1_800_000_000_000_000
    monkeypatch.setattr(layout, "now", lambda: now + back * 1_000_000)
    archive.archive(transcript, "s1", trigger="auto")
    for step in range(3):
        with transcript.open("ab") as file:
            file.write(b'{"n":2}\n')
        monkeypatch.setattr(layout, "now", lambda step=step: now + step * 60_000_000)
        since = now + step * 60_000_000 - 1_000_000
        assert archive.archive(transcript, "s1", trigger="auto", since=since).archived
        # The hook that runs beside it sees that piece, though its name is of a time that is still to come.
        assert archive.archive(transcript, "s1", trigger="auto", since=since).reason == "another hook archived"


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_what_was_said_between_two_hooks_is_archived_and_the_compaction_counts_once(tmp_path, mode):
    """The first compaction may have been given up. What hooks write of themselves meanwhile makes no piece."""
    from mala_context.archive.reading import choose_chain, chunks
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a", mode=mode), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"type":"user","message":{"role":"user","content":"one"}}\n')
    assert archive.archive(transcript, "s1", trigger="auto", since=0).archived
    said = b'{"type":"user","message":{"role":"user","content":"two"}}\n'
    for row, archived in (
        (b'{"type":"progress","data":{"type":"hook_progress"}}\n', False),
        (said, True),
        (b"", False),
    ):
        with transcript.open("ab") as file:
            file.write(row)
        assert archive.archive(transcript, "s1", trigger="auto", since=0).archived is archived
    with archive.view("s1") as files:
        assert b"".join(chunks(files, choose_chain(archive.pieces("s1"), "s1", "here"))) == transcript.read_bytes()
    assert [row["trigger"] for row in archive.manifest("s1").of_kind("piece")] == ["auto", "catch_up"]
    archive.record_outcome("s1", "compacted")
    assert archive.manifest("s1").open_piece() is None


def test_a_planted_name_of_a_time_without_end_stops_no_archive(tmp_path):
    from mala_context.archive.store import TranscriptArchive

    transcript = tmp_path / "t.jsonl"
    for mode in ("incremental", "full"):
        archive = TranscriptArchive(tmp_path / mode, mode=mode)
        transcript.write_bytes(b'{"n":1}\n')
        archive.archive(transcript, "s1", trigger="auto")
        names = ("s1_99999999T999999.999999Z_transcript.jsonl", "s1_99991231T235959.999999Z_transcript.jsonl")
        for name in names:
            (tmp_path / mode / name).write_bytes(b'{"n":1}\n' if mode == "full" else b"x")
        for number in range(2, 5):
            with transcript.open("ab") as file:
                file.write(b'{"n":%d}\n' % number)
            assert archive.archive(transcript, "s1", trigger="auto").archived
        assert cat(archive) == transcript.read_bytes() if mode == "incremental" else archive.pieces("s1")
        assert archive.pieces("s1")[-1].chain == 2


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_piece_is_followed_by_all_of_the_transcript_and_called_damaged(tmp_path, packed, caplog):
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"n":1}\n' * 100)
    archive.archive(transcript, "s1")
    if packed:
        archive.pack()
    (piece,) = archive.pieces("s1")
    path = tmp_path / "a" / piece.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with transcript.open("ab") as file:
        file.write(b'{"n":2}\n')
    result = archive.archive(transcript, "s1")
    assert (result.chain, result.new_chain) == (2, True)
    assert "pieces of its first 800 bytes are damaged in the archive" in caplog.text
    assert cat(archive) == transcript.read_bytes()
    assert not archive.archive(transcript, "s1").archived


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "cut at a row": lambda data: data[: data.index(b"\n") + 1],
    "a byte less": lambda data: data[:-1],
    "longer": lambda data: data + b'{"n":1}\n',
    "twice": lambda data: data + data,
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_any_damage_of_any_piece_is_followed_by_all_of_the_transcript(tmp_path, packed, which, damage, caplog):
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    for _ in range(3):
        with transcript.open("ab") as file:
            file.write(b'{"n":1}\n' * 100)
        archive.archive(transcript, "s1")
    if packed:
        archive.pack()
    path = tmp_path / "a" / archive.pieces("s1")[which].name
    data = path.read_bytes()
    path.write_bytes(damage(data) if not packed or b"\n" in data else damage(data + b"\n"))
    with transcript.open("ab") as file:
        file.write(b'{"n":1}\n')
    result = archive.archive(transcript, "s1")
    assert (result.chain, result.new_chain) == (2, True)
    assert cat(archive) == transcript.read_bytes()
    words = "damaged in" if path.exists() else "missing from"  # an empty file is no piece, and is removed
    assert [each for each in ("damaged in", "missing from", "rewritten", "shrank") if each in caplog.text] == [words]


@pytest.mark.parametrize("digest", ["", "0a", "0a" * 31 + "[[", "0A" * 32, "0a" * 33, 7], ids=repr)
def test_a_hash_of_another_shape_is_none(tmp_path, digest):
    """A damaged manifest may say one: `verify` names its row, and the piece is read and goes on."""
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"n":1}\n' * 100)
    archive.archive(transcript, "s1")
    (manifest,) = (tmp_path / "a").glob("*manifest*")
    row = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**row, "sha256": digest}) + "\n", "utf-8")
    with transcript.open("ab") as file:
        file.write(b'{"n":2}\n')
    archive.archive(transcript, "s1")
    assert cat(archive) == transcript.read_bytes()
    assert [each.kind for each in verify_archive(archive).problems] == ["manifest"]


@pytest.mark.parametrize("lost", [[0], [1], [0, 1]], ids=["the first", "the last", "all"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_chain_with_a_piece_that_is_gone_is_followed_by_a_whole_one(tmp_path, packed, lost):
    """Also a second time, where all of a chain is gone: its number is not taken again."""
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b"")
    for turn in range(3):
        for _ in range(2):
            with transcript.open("ab") as file:
                file.write(b'{"n":1}\n' * 10)
            archive.archive(transcript, "s1")
        if packed:
            archive.pack()
        assert cat(archive) == transcript.read_bytes()
        newest = archive.pieces("s1")[-1].chain
        assert newest == turn + 1
        pieces = [each for each in archive.pieces("s1") if each.chain == newest]
        for number in lost:
            (tmp_path / "a" / pieces[number].name).unlink()
