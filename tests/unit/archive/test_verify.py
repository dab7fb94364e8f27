"""Every way in which an archive can be wrong is seen, and mended where that is possible."""

import json
import os

import pytest

from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import KINDS, strays, verify_archive
from mala_context.archive.writer import LocalView
from mala_context.errors import ObjectStoreError, SessionNotFoundError


class World:
    def __init__(self, tmp_path, **fields):
        self.directory = tmp_path / "archives"
        self.archive = TranscriptArchive(self.directory, compress="zstd", **fields)
        self.transcript = tmp_path / "s1.jsonl"
        for n in range(1, 4):
            with self.transcript.open("ab") as file:
                file.write(b'{"n":%d}\n' % n * n)
            self.archive.archive(self.transcript, "s1", trigger="auto")
        self.manifest = self.directory / "s1.manifest.jsonl"

    def pieces(self):
        return [self.directory / piece.name for piece in self.archive.pieces("s1")]

    def edit(self, change):
        """Write the manifest anew, each row as `change` makes it."""
        rows = [json.loads(line) for line in self.manifest.read_bytes().splitlines()]
        rows = [change(number, row) for number, row in enumerate(rows)]
        self.manifest.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows if row is not None))

    def kinds(self, **how):
        return [problem.kind for problem in verify_archive(self.archive, **how).problems]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def damage_piece(world):
    path = world.pieces()[1]
    path.write_bytes(b"X" + path.read_bytes()[1:])


def damage_packed(world):
    world.archive.pack()
    path = world.pieces()[1]
    data = path.read_bytes()
    path.write_bytes(data[:-5] + b"\0" * 5)


def cut_packed(world):
    world.archive.pack()
    path = world.pieces()[1]
    path.write_bytes(path.read_bytes()[:-3])


def lose_piece(world):
    world.pieces()[1].unlink()


def lose_piece_and_row(world):
    name = world.pieces()[1].name
    world.pieces()[1].unlink()
    world.edit(lambda number, row: None if row.get("name") == name else row)


def lose_manifest(world):
    world.manifest.unlink()


def cut_manifest(world):
    world.manifest.write_bytes(world.manifest.read_bytes()[:-20])


def edit_offset(world):
    world.edit(lambda number, row: {**row, "offset": 5} if number == 1 else row)


def edit_length(world):
    world.edit(lambda number, row: {**row, "length": 1, "sha256": None} if number == 0 else row)


def open_files(world):
    world.pieces()[0].chmod(0o644)
    world.manifest.chmod(0o640)


def open_directory(world):
    world.directory.chmod(0o755)


def leave_an_old_copy(world):
    (world.directory / "transcript_backup.jsonl").write_text("{}")
    (world.directory / "transcript_backup.jsonl").chmod(0o644)


def lose_side_file(world):
    keep_side_file(world).unlink()


def damage_side_file(world):
    keep_side_file(world).write_text("other")


def keep_side_file(world):
    beside = world.transcript.with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    (beside / "x.txt").write_text("result")
    world.archive.archive_side_files(str(world.transcript), "s1")
    (stored,) = world.directory.glob("s1.file-*")
    return stored


def lose_everything_but_the_manifest(world):
    for piece in world.pieces():
        piece.unlink()
    world.edit(lambda number, row: {"v": 1, "row": "outcome"} if number == 0 else None)


MENDED = [
    (lose_manifest, {"row"}),
    (cut_manifest, {"manifest", "row"}),
    (edit_offset, {"offset"}),
    (open_files, {"mode"}),
    (open_directory, {"directory"}),
    (leave_an_old_copy, {"stray"}),
    (lose_everything_but_the_manifest, {"empty"}),
]
LASTING = [
    (damage_piece, {"hash"}),
    (damage_packed, {"unreadable"}),
    (cut_packed, {"packed"}),
    (lose_piece, {"gone", "gap"}),
    (lose_piece_and_row, {"gap"}),
    (edit_length, {"hash"}),
    (lose_side_file, {"side file"}),
    (damage_side_file, {"side file"}),
]


def test_a_sound_archive(world):
    report = verify_archive(world.archive)
    assert report.problems == ()
    assert report.ok
    assert (report.sessions, report.pieces, report.bytes) == (1, 3, world.transcript.stat().st_size)


@pytest.mark.parametrize(("harm", "kinds"), MENDED, ids=[harm.__name__ for harm, _ in MENDED])
def test_what_is_mended(harm, kinds, world):
    harm(world)
    report = verify_archive(world.archive, repair=True)
    assert {problem.kind for problem in report.problems} == kinds
    assert report.ok
    assert verify_archive(world.archive).problems == ()
    transcript = world.transcript.read_bytes()
    pieces = world.pieces()
    assert b"".join(piece.read_bytes() for piece in pieces) == (transcript if pieces else b"")


@pytest.mark.parametrize(("harm", "kinds"), MENDED, ids=[harm.__name__ for harm, _ in MENDED])
def test_nothing_is_mended_unasked(harm, kinds, world):
    harm(world)
    report = verify_archive(world.archive)
    assert {problem.kind for problem in report.problems} == kinds
    assert not report.ok
    if harm is not open_directory:  # using it tightens it
        assert set(world.kinds()) == kinds


@pytest.mark.parametrize(("harm", "kinds"), LASTING, ids=[harm.__name__ for harm, _ in LASTING])
def test_what_stays_wrong(harm, kinds, world):
    harm(world)
    report = verify_archive(world.archive, repair=True)
    assert {problem.kind for problem in report.problems} == kinds
    assert not report.ok
    assert set(world.kinds()) == kinds


def test_every_kind_is_tried():
    tried = set().union(*(kinds for _, kinds in MENDED + LASTING))
    assert tried | {"repair", "session"} == set(KINDS)


def test_a_session_that_cannot_be_read_is_named_and_mended_by_its_mode(world, monkeypatch):
    read = LocalView._read_manifest

    def refused(view):
        if not world.manifest.stat().st_mode & 0o400:
            raise PermissionError(13, "Permission denied", world.manifest.name)
        return read(view)

    monkeypatch.setattr(LocalView, "_read_manifest", refused)
    world.manifest.chmod(0)
    for repair in (False, True):
        (problem,) = verify_archive(world.archive, repair=repair).problems
        assert (problem.kind, problem.fixed) == ("session", repair)
        assert "Permission denied" in problem.text
    assert verify_archive(world.archive).ok


def test_what_cannot_be_repaired_now_is_said_beside_what_is_wrong(world):
    world.manifest.unlink()
    world.manifest.mkdir()
    report = verify_archive(world.archive, repair=True)
    assert {problem.kind for problem in report.problems} == {"row", "repair"}
    assert not any(problem.fixed for problem in report.problems)
    assert "is a directory" in report.problems[-1].text


def test_mending_keeps_what_it_does_not_know(world):
    with world.manifest.open("ab") as file:
        file.write(b'{"v":9,"row":"dream","x":[1]}\nhalf a ro')
    verify_archive(world.archive, repair=True)
    rows = [json.loads(line) for line in world.manifest.read_bytes().splitlines()]
    assert {"v": 9, "row": "dream", "x": [1]} in rows
    assert "half a ro" in [row.get("text") for row in rows]


def test_full_copies(tmp_path):
    world = World(tmp_path, mode="full")
    assert verify_archive(world.archive).problems == ()
    world.manifest.unlink()
    assert verify_archive(world.archive, repair=True).ok
    assert {piece.mode for piece in world.archive.pieces("s1")} == {"full"}


def test_archiving_goes_on_after_a_repair(world):
    lose_manifest(world)
    verify_archive(world.archive, repair=True)
    with world.transcript.open("ab") as file:
        file.write(b'{"n":4}\n')
    result = world.archive.archive(world.transcript, "s1")
    assert (result.chain, result.bytes) == (1, 8)


def test_one_session_by_its_name(world, tmp_path):
    world.archive.archive(world.transcript, "s2")
    damage_piece(world)
    assert verify_archive(world.archive, ["s2"]).ok
    assert not verify_archive(world.archive, ["s1", "s2"]).ok
    with pytest.raises(SessionNotFoundError):
        verify_archive(world.archive, ["s3"])


def test_progress_is_told_in_bytes(world):
    read = []
    verify_archive(world.archive, progress=read.append)
    assert sum(read) == world.transcript.stat().st_size


def test_a_session_that_is_written_to_is_looked_at_again(world, monkeypatch):
    """Between a piece and its row in the manifest there is a moment; the first look falls into it."""
    whole = world.manifest.read_bytes()
    world.manifest.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    read = []

    def write_the_row(count):
        read.append(count)
        world.manifest.write_bytes(whole)

    assert verify_archive(world.archive, progress=write_the_row).problems == ()
    assert len(read) == 3


def test_a_session_that_is_pruned_meanwhile_is_no_problem(world, monkeypatch):
    summaries = world.archive.sessions()
    world.archive.prune(session_ids=["s1"], dry_run=False)
    monkeypatch.setattr(world.archive, "sessions", lambda **_: summaries)
    assert verify_archive(world.archive).ok


def test_a_link_is_no_stray_and_is_not_followed(world, tmp_path):
    (tmp_path / "other").write_text("")
    (tmp_path / "other").chmod(0o644)
    (world.directory / "link").symlink_to(tmp_path / "other")
    assert strays(str(world.directory)) == []
    assert verify_archive(world.archive, repair=True).problems == ()
    assert os.stat(tmp_path / "other").st_mode & 0o777 == 0o644


def test_no_archive_at_all(tmp_path):
    report = verify_archive(TranscriptArchive(tmp_path / "none"))
    assert report.ok
    assert report.sessions == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ObjectStoreError("s3://b", "it cannot be reached")]
)
def test_what_cannot_be_read_is_named_and_the_rest_is_checked(world, monkeypatch, error):
    beside = world.transcript.with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    for name in ("a", "b"):
        (beside / name).write_text(name)
    world.archive.archive_side_files(str(world.transcript), "s1")
    first = world.pieces()[0].name
    real = LocalView.open

    def broken(self, name):
        if name == first or ".file-" in name:
            raise error
        return real(self, name)

    monkeypatch.setattr(LocalView, "open", broken)
    report = verify_archive(world.archive)
    assert [each.kind for each in report.problems] == ["unreadable", "side file", "side file"]
    assert all(str(error) in each.text for each in report.problems)
    assert report.bytes == sum(path.stat().st_size for path in world.pieces()[1:])
