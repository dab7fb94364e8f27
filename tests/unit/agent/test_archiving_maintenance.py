"""What an archive needs besides its pieces, in threads that no hook waits for."""

import logging
import threading

import pytest

from mala_context.agent.archiving import maintenance as upkeep_module
from mala_context.agent.archiving.maintenance import ArchiveMaintenance
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError, ArchiveUnavailableError

ROW = '{"type":"user"}\n'


@pytest.fixture
def projects(tmp_path):
    path = tmp_path / "projects" / "-repo"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def left(tmp_path, projects):
    """An archive that knows two sessions, of which nothing was archived."""
    archive = TranscriptArchive(tmp_path / "archives", projects_dirs=[str(projects.parent)])
    for name in ("s1", "s2"):
        transcript = projects / f"{name}.jsonl"
        transcript.write_text(ROW)
        archive.register_session(name, str(transcript))
    return archive


def archived(archive):
    return sorted(each.session_id for each in archive.sessions() if each.pieces)


async def test_catching_up_leaves_our_own_sessions_alone(left, projects):
    upkeep = ArchiveMaintenance(left)
    upkeep.begin({"s2"})
    await upkeep.finish(30)
    assert archived(left) == ["s1"]


async def test_catching_up_is_done_once(left, projects):
    upkeep = ArchiveMaintenance(left)
    upkeep.begin({"s2"})
    upkeep.begin(())
    await upkeep.finish(30)
    assert archived(left) == ["s1"]


async def test_what_ended_is_packed_and_nothing_else(left, projects):
    left.compress = "zstd"
    upkeep = ArchiveMaintenance(left)
    for name in ("s1", "s2"):
        left.archive(projects / f"{name}.jsonl", name)
    upkeep.ended(["s1"])
    await upkeep.finish(30)
    assert [left.pieces(name)[0].packed for name in ("s1", "s2")] == [True, False]


async def test_nothing_to_tidy_starts_nothing(left):
    upkeep = ArchiveMaintenance(left)
    upkeep.ended(["s1"])
    left.compress = "zstd"
    upkeep.ended([])
    assert upkeep._last is None
    await upkeep.finish(30)


async def test_a_disk_that_hangs_holds_nobody_up(left, monkeypatch, caplog):
    gate = threading.Event()
    monkeypatch.setattr(left, "catch_up", lambda *_, **__: gate.wait(30))
    monkeypatch.setattr(upkeep_module, "CATCH_UP_SECONDS", 0.05)
    upkeep = ArchiveMaintenance(left)
    with caplog.at_level(logging.INFO):
        upkeep.begin(())
        await upkeep.finish(30)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    gate.set()
    await upkeep.finish(30)


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ArchiveUnavailableError("no place"), None),
        (ArchiveError("damaged"), "WARNING"),
        (OSError(28, "full"), "ERROR"),
        (RuntimeError("never expected"), "ERROR"),
    ],
    ids=["no place", "ours", "disk", "bug"],
)
async def test_what_goes_wrong_is_a_line_of_log(left, monkeypatch, caplog, error, level):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(left, "catch_up", fail)
    upkeep = ArchiveMaintenance(left)
    upkeep.begin(())
    await upkeep.finish(30)
    assert [record.levelname for record in caplog.records] == ([] if level is None else [level])


def test_an_archive_that_does_not_exist_yet_is_not_made(tmp_path):
    upkeep = ArchiveMaintenance(TranscriptArchive(tmp_path / "archives"))
    upkeep.begin(())
    upkeep._catching_up.result(30)
    assert not (tmp_path / "archives").exists()
