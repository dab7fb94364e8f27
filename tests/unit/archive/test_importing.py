"""Full copies of plain copy hooks become pieces, and go only after every byte was compared."""

import errno
import os
import pathlib

import pytest

from mala_context.archive.importing import find_copies, import_copies, session_of_copy
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.errors import ArchiveUnavailableError
from tests.helpers.small_transcripts import SID, dump, message


def text_of(count):
    return dump(message(n) for n in range(1, count + 1))


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(tmp_path / "archives")


@pytest.fixture
def copies(tmp_path):
    folder = tmp_path / "copies"
    folder.mkdir()
    for count in (2, 5, 9):
        path = folder / f"{SID}_2025010{count}_120000_transcript.jsonl"
        path.write_bytes(text_of(count))
        path.chmod(0o644)
    return folder


def outcomes(results):
    return [(each.outcome, each.verified, each.removed) for each in results]


def archived(archive, session=SID):
    return b"".join(pathlib.Path(archive.location, piece.name).read_bytes() for piece in archive.pieces(session))


def test_copies_become_pieces_of_what_each_gained(archive, copies):
    results = import_copies(archive, [copies])
    assert outcomes(results) == [("archived", True, False)] * 3
    assert [piece.length for piece in archive.pieces(SID)] == [
        len(text_of(2)),
        len(text_of(5)) - len(text_of(2)),
        len(text_of(9)) - len(text_of(5)),
    ]
    assert archived(archive) == text_of(9)
    assert len(list(copies.iterdir())) == 3
    assert verify_archive(archive).problems == ()
    assert {row["trigger"] for row in archive.manifest(SID).of_kind("piece")} == {"import"}


def test_again_adds_nothing(archive, copies):
    import_copies(archive, [copies])
    assert outcomes(import_copies(archive, [copies])) == [("there already", True, False)] * 3
    assert len(archive.pieces(SID)) == 3


def test_old_copies_of_a_session_that_went_on(archive, copies, tmp_path):
    transcript = tmp_path / "live.jsonl"
    transcript.write_bytes(text_of(20))
    archive.archive(transcript, SID)
    assert outcomes(import_copies(archive, [copies], remove=True)) == [("there already", True, True)] * 3
    assert len(archive.pieces(SID)) == 1
    assert list(copies.iterdir()) == []


def test_a_copy_goes_only_when_asked_and_verified(archive, copies):
    cut = copies / f"{SID}_20250103_120000_transcript.jsonl"
    cut.write_bytes(text_of(3) + b'{"half":')
    results = {os.path.basename(each.path): each for each in import_copies(archive, [copies], remove=True)}
    assert not results[cut.name].verified
    assert "cut" in results[cut.name].reason
    assert [file.name for file in copies.iterdir()] == [cut.name]
    assert archived(archive) == text_of(9)


def test_a_dry_run_writes_and_removes_nothing(archive, copies):
    results = import_copies(archive, [copies], remove=True, dry_run=True)
    assert outcomes(results) == [("would be archived", False, False)] * 3
    assert archive.sessions() == []
    assert len(list(copies.iterdir())) == 3


def test_a_copy_that_changes_after_the_comparison_stays(archive, copies, monkeypatch):
    import mala_context.archive.importing as module

    compare = module._is_there

    def compare_then_change(archive, session_id, path):
        there = compare(archive, session_id, path)
        if there:
            with open(path, "ab") as file:
                file.write(b"more\n")
        return there

    monkeypatch.setattr(module, "_is_there", compare_then_change)
    results = import_copies(archive, [next(iter(copies.iterdir()))], remove=True)
    assert [each.removed for each in results] == [False]
    assert results[0].reason == "it changed meanwhile"
    assert len(list(copies.iterdir())) == 3


def test_another_history_is_a_chain_of_its_own(archive, copies):
    import_copies(archive, [copies])
    other = copies / f"{SID}_20250109_130000_transcript.jsonl"
    other.write_bytes(dump([message(77)]))
    assert outcomes(import_copies(archive, [other])) == [("archived", True, False)]
    assert [piece.chain for piece in archive.pieces(SID)] == [1, 1, 1, 2]
    assert outcomes(import_copies(archive, [copies], remove=True)) == [("there already", True, True)] * 4


def test_copies_in_the_archives_own_directory(archive, copies, tmp_path):
    (tmp_path / "archives").mkdir(mode=0o755)
    for file in copies.iterdir():
        file.rename(tmp_path / "archives" / file.name)
    assert outcomes(import_copies(archive, [archive.location], remove=True)) == [("archived", True, True)] * 3
    assert archived(archive) == text_of(9)
    assert verify_archive(archive).problems == ()


@pytest.mark.parametrize(
    ("name", "rows", "session"),
    [
        (f"backup-{SID}.jsonl", b"", SID),
        ("abc-1_20250101_transcript.jsonl", b"", "abc-1"),
        ("backup.jsonl", dump([message(1, sessionId="old"), message(2, sessionId="new")]), "new"),
        ("backup.jsonl", b"not json at all\n", None),
    ],
)
def test_whose_copy_it_is(name, rows, session, tmp_path):
    (tmp_path / name).write_bytes(rows)
    assert session_of_copy(str(tmp_path / name)) == session


def test_what_is_skipped(archive, tmp_path):
    (tmp_path / "backup.jsonl").write_bytes(b"not json\n")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "backup.jsonl")
    (tmp_path / "bad.jsonl").write_bytes(dump([message(1, sessionId="../../x")]))
    os.mkfifo(tmp_path / "pipe.jsonl")
    names = ["backup.jsonl", "link.jsonl", "bad.jsonl", "pipe.jsonl", "none.jsonl"]
    results = import_copies(archive, [tmp_path / name for name in names], remove=True)
    assert {each.outcome for each in results} == {"skipped"}
    assert len(results) == len(names)
    assert all(each.reason for each in results)
    assert (tmp_path / "backup.jsonl").exists()


def test_a_directory_is_not_searched_below_and_pieces_are_no_copies(archive, copies):
    (copies / "deeper").mkdir()
    (copies / "deeper" / "x.jsonl").write_bytes(b"")
    (copies / "notes.md").write_text("no copy")
    import_copies(archive, [copies])
    assert len(find_copies([copies, copies])) == 3
    assert find_copies([archive.location]) == []


def test_progress_is_told_the_bytes_of_each_copy(archive, copies):
    told = []
    import_copies(archive, [copies], dry_run=True, progress=told.append)
    import_copies(archive, [copies], progress=told.append)
    assert told == [len(text_of(count)) for count in (2, 5, 9)] * 2


@pytest.mark.parametrize(
    ("become", "reason"),
    [
        (lambda path: None, "missing"),
        (lambda path: path.symlink_to("/etc/hostname"), "not a regular file"),
        (os.mkfifo, "not a regular file"),
    ],
    ids=["gone", "a link", "a pipe"],
)
def test_a_copy_that_is_another_thing_when_its_turn_comes_is_skipped(archive, copies, monkeypatch, become, reason):
    """The first copy may take a while, and the place is not ours: the others are imported all the same."""
    import mala_context.archive.importing as module

    _, second, _ = sorted(copies.iterdir())
    real = module._import

    def slowly(archive, session_id, path, **how):
        result = real(archive, session_id, path, **how)
        if path != str(second) and second.is_file() and not second.is_symlink():
            second.unlink()
            become(second)
        return result

    monkeypatch.setattr(module, "_import", slowly)
    results = import_copies(archive, [copies], remove=True)
    assert outcomes(results) == [("archived", True, True), ("skipped", False, False), ("archived", True, True)]
    assert results[1].reason == reason
    assert archived(archive) == text_of(9)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_copy_that_cannot_be_read_holds_up_no_other(archive, copies, monkeypatch, dry_run):
    import mala_context.archive.source as module

    first, second, _ = sorted(copies.iterdir())
    import_copies(archive, [first])
    real = module._open

    def broken(path, own):
        if path == str(second):
            module._refuse(path, "unreadable", "Input/output error")
        return real(path, own)

    monkeypatch.setattr(module, "_open", broken)
    results = import_copies(archive, [copies], remove=True, dry_run=dry_run)
    assert [each.outcome for each in results][:2] == ["there already", "skipped"]
    assert results[1].reason == "unreadable"
    assert results[2].outcome != "skipped"
    assert second.exists()


def test_a_copy_that_goes_after_it_was_compared_was_not_removed_by_us(archive, copies, monkeypatch):
    import mala_context.archive.importing as module

    real = module._is_there

    def compared(archive, session_id, path):
        if there := real(archive, session_id, path):
            os.unlink(path)
        return there

    monkeypatch.setattr(module, "_is_there", compared)
    results = import_copies(archive, [copies], remove=True)
    assert outcomes(results) == [("archived", True, False)] * 3
    assert {each.reason for each in results} == {"No such file or directory"}


def test_a_copy_that_cannot_be_removed_is_archived_all_the_same(archive, copies, monkeypatch):
    def refused(path, **where):
        if str(path).startswith(str(copies)):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(path, **where)

    real = os.unlink
    monkeypatch.setattr(os, "unlink", refused)
    results = import_copies(archive, [copies], remove=True)
    assert outcomes(results) == [("archived", True, False)] * 3
    assert {each.reason for each in results} == {"Operation not permitted"}
    assert len(list(copies.iterdir())) == 3


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_a_chain_that_cannot_be_read_proves_nothing(copies, tmp_path, caplog, mode):
    """What cannot be compared is archived again, and nothing goes for the sake of it."""
    archive = TranscriptArchive(tmp_path / "archives", mode=mode)
    import_copies(archive, [copies])
    archive.pack()
    for piece in archive.pieces(SID):
        path = pathlib.Path(archive.location, piece.name)
        path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    before = len(archive.pieces(SID))
    results = import_copies(archive, [copies], remove=True)
    assert "cannot be compared" in caplog.text
    again = [each for each in results if each.outcome == "archived"]
    assert again
    assert len(archive.pieces(SID)) > before
    assert all(each.verified or not each.removed for each in results)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), ArchiveUnavailableError("no directory")])
def test_one_that_cannot_be_archived_holds_up_no_other(archive, copies, monkeypatch, error):
    """What was removed before is told, whatever comes after it."""
    whole = archive.archive

    def full(path, *args, **more):
        if "20250105" in path:
            raise error
        return whole(path, *args, **more)

    monkeypatch.setattr(archive, "archive", full)
    results = import_copies(archive, [copies], remove=True)
    assert outcomes(results) == [("archived", True, True), ("skipped", False, False), ("archived", True, True)]
    assert results[1].reason in {"No space left", "no directory"}
    assert [each.name[len(SID) :][:9] for each in copies.iterdir()] == ["_20250105"]
