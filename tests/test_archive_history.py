"""From where a session's rows are read."""

import pytest
from archived import SID, dump, session

from mala_context.archive.history import History
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import PartNotFoundError, SessionNotFoundError

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
        return data, history.transcript, history.beside, history.known


def test_a_transcript_that_went_on_is_read_itself(archive, transcript):
    transcript.write_bytes(DATA + b'{"more":1}\n')
    data, path, beside, known = read(archive)
    assert data == DATA + b'{"more":1}\n'
    assert path == beside == known.transcript == str(transcript)
    assert known.cwds == ("/one",)


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
    moved.unlink()
    assert read(archive)[:2] == (DATA, None)


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
