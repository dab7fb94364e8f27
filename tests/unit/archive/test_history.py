"""From where a session's rows are read."""

import errno

import pytest

from mala_context.archive import layout, manifests
from mala_context.archive.history import History, continues
from mala_context.archive.increment import repair_pieces
from mala_context.archive.packing import pack_piece
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import PartNotFoundError, SessionNotFoundError
from mala_context.transcripts.long_rows import LONG
from mala_context.transcripts.rows import LongRow
from tests.helpers.archive_memory import MemoryStore
from tests.helpers.small_transcripts import SID, Told, dump, session

DATA = dump(session(1))


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return TranscriptArchive(tmp_path / "archives", compress="zstd")


@pytest.fixture
def transcript(tmp_path, archive):
    path = tmp_path / "claude" / "projects" / "-x" / f"{SID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    archive.archive(path, SID, cwd="/one")
    return path


def read(archive, **how):
    with History(archive, SID, **how) as history:
        data = b"".join(row.data + b"\n" for row in history.rows())
        assert history.beside in {None, history.last_path}
        return data, history.transcript, history.beside, history.cwds


def test_a_transcript_that_went_on_is_read_itself(archive, transcript):
    transcript.write_bytes(DATA + b'{"more":1}\n')
    data, path, beside, cwds = read(archive)
    assert data == DATA + b'{"more":1}\n'
    assert path == beside == str(transcript)
    assert cwds == ("/one",)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("now", [b"", DATA[:100], b"X" + DATA[1:], b"X" * 5000])
def test_a_transcript_that_was_rewritten_or_cut_is_not_read(now, pack, archive, transcript):
    if pack:
        archive.pack()
    transcript.write_bytes(now)
    data, path, beside, _ = read(archive)
    assert (data, path, beside) == (DATA, None, str(transcript))


def test_a_packed_archive_is_compared_too(archive, transcript):
    archive.pack()
    assert read(archive)[1] == str(transcript)


def test_a_transcript_that_is_gone_or_was_moved(archive, transcript, tmp_path):
    moved = tmp_path / "claude" / "projects" / "-y" / transcript.name
    moved.parent.mkdir()
    transcript.rename(moved)
    assert read(archive)[1] == str(moved)
    assert read(TranscriptArchive(archive.location, projects_dirs=[]))[1] is None, "it is the archive that looks for it"
    moved.unlink()
    assert read(archive)[:2] == (DATA, None)
    with History(archive, SID) as history:
        assert history.last_path == str(transcript)


def test_only_where_it_is_to_be_looked_for(archive, transcript, tmp_path):
    assert read(archive, projects=[str(tmp_path / "none")])[1] is None
    assert read(archive, projects=[str(tmp_path / "claude" / "projects")])[1] == str(transcript)


def test_a_chain_by_number_comes_from_the_archive(archive, transcript):
    assert read(archive, chain=1)[1:3] == (None, None)
    with pytest.raises(PartNotFoundError):
        History(archive, SID, chain=2)


def test_an_archive_with_a_gap_yields_to_the_transcript(archive, transcript, tmp_path):
    transcript.write_bytes(DATA + b'{"more":1}\n')
    archive.archive(transcript, SID)
    (tmp_path / "archives" / archive.pieces(SID)[0].name).unlink()
    assert read(archive)[1] == str(transcript)


def test_a_session_that_nobody_knows(archive):
    with pytest.raises(SessionNotFoundError):
        History(archive, SID)


def test_progress_is_told_in_bytes(archive, transcript):
    seen = []
    read(archive, progress=seen.append)
    assert sum(seen) == len(DATA) - DATA.count(b"\n")


def test_its_size_is_known_without_reading(archive, transcript):
    with History(archive, SID) as history:
        assert history.size() == len(DATA)
    transcript.write_bytes(DATA + b'{"more":1}\n')
    with History(archive, SID) as history:
        assert history.size() == len(DATA) + 11
    archive.pack()
    transcript.unlink()
    with History(archive, SID) as history:
        assert history.size() == len(DATA)


def test_rows_are_read_in_parts_where_they_are_long(archive, transcript):
    seen = Told()
    long = b'{"text":"' + b"x" * (LONG + (2 << 20)) + b'"}'
    transcript.write_bytes(DATA + long + b'\n{"last":1}\n')
    with History(archive, SID, progress=seen) as history:
        history.expect(history.size())
        found = [b"".join(line.parts()) if isinstance(line, LongRow) else line.data for line in history.lines()]
        assert sum(isinstance(line, LongRow) for line in history.lines()) == 1
    assert found == [*DATA.splitlines(), long, b'{"last":1}']
    assert seen.expected == transcript.stat().st_size
    assert sum(seen) == 2 * (seen.expected - len(found))
    with History(archive, SID, progress=seen.append) as history:
        history.expect(1)  # one that cannot be told what to expect is not


def test_a_side_file_comes_by_its_name_in_the_archive(archive, transcript):
    data = bytes(range(256)) * 2_000
    beside = transcript.with_suffix("") / "tool-results" / "large.txt"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(data)
    archive.archive_side_files(str(transcript), SID)
    with History(archive, SID) as history:
        (row,) = history.manifest.of_kind("file")
        assert b"".join(history.side_file(row["name"])) == data
        with pytest.raises(FileNotFoundError):
            list(history.side_file(row["name"] + "0"))
        assert row["name"] in {file.name for file in history.files.list()}


class TestContinues:
    """Whether a transcript begins with exactly what the archive has of it."""

    @pytest.fixture
    def pieces(self):
        with MemoryStore().lock("s1", 1.0) as files:
            for number, data in enumerate((b"one\n", b"two\n")):
                files.publish(layout.piece_name("s1", None, 1, layout.stamp(10**15 + number), ".jsonl"), written(data))
            yield files

    @pytest.mark.parametrize(
        ("data", "found"),
        [(b"one\ntwo\n", True), (b"one\ntwo\nthree", True), (b"one\ntw0\n", False), (b"one\n", False)],
    )
    @pytest.mark.parametrize("pack", [False, True])
    def test_byte_by_byte_or_by_hash(self, pieces, tmp_path, data, found, pack):
        (tmp_path / "t.jsonl").write_bytes(data)
        repair_pieces(pieces, of(pieces), 10**15)
        for piece in of(pieces) if pack else ():
            pack_piece(pieces, piece, 10**15)
        assert continues(pieces, str(tmp_path / "t.jsonl"), of(pieces)) is found

    def test_not_one_that_cannot_be_read(self, pieces, tmp_path):
        assert not continues(pieces, str(tmp_path / "t.jsonl"), of(pieces))
        (tmp_path / "t.jsonl").mkdir()
        assert not continues(pieces, str(tmp_path / "t.jsonl"), of(pieces))

    def test_not_where_the_archive_cannot_be_read(self, pieces, tmp_path, monkeypatch):
        (tmp_path / "t.jsonl").write_bytes(b"one\ntwo\n")

        def broken(_name):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(pieces, "open", broken)
        assert not continues(pieces, str(tmp_path / "t.jsonl"), of(pieces))

    def test_an_empty_one_continues_nothing(self, pieces, tmp_path):
        (tmp_path / "t.jsonl").write_bytes(b"")
        assert not continues(pieces, str(tmp_path / "t.jsonl"), [])
        (tmp_path / "t.jsonl").write_bytes(b"x")
        assert continues(pieces, str(tmp_path / "t.jsonl"), [])


def of(files):
    return manifests.pieces_of(files.list(), manifests.parse(files.manifest()))


def written(data):
    return lambda write: write(data)
