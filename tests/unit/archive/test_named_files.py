"""Which side files rows name, and what is put back."""

import os

import pytest

from mala_context.archive.history import History
from mala_context.archive.named_files import look_after, results_named, subagents_named
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ObjectStoreError
from tests.helpers.small_transcripts import SID, dump, message


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        (rb'{"text":"Full output saved to: /p/-x/s/tool-results/a.txt\n\nPreview"}', ["/p/-x/s/tool-results/a.txt"]),
        (rb'{"persistedOutputPath":"/p/-x/s/tool-results/a.txt"}', ["/p/-x/s/tool-results/a.txt"]),
        (rb'{"path":"/with space/s/tool-results/a-1_b.txt"}', ["/with space/s/tool-results/a-1_b.txt"]),
        (
            rb'"/a/s/tool-results/x" and "/b/s/tool-results/y/z.json"',
            ["/a/s/tool-results/x", "/b/s/tool-results/y/z.json"],
        ),
        (rb"see /a/s/tool-results/x.", ["/a/s/tool-results/x"]),
        (rb"in /a/s/tool-results/ there", []),
        (rb"relative s/tool-results/x", []),
        (rb'"/a/../s/tool-results/x"', []),
        (rb"no result here", []),
        (rb'"' + b"/" + b"x" * 10_000 + rb'/tool-results/y"', []),
    ],
)
def test_results_named(data, paths):
    assert list(results_named(data)) == paths


@pytest.mark.parametrize(
    ("value", "agents"),
    [
        ({"toolUseResult": {"agentId": "a1"}}, ["a1"]),
        ({"toolUseResult": {"agentId": "../x"}}, []),
        ({"toolUseResult": {"agentId": ""}}, []),
        ({"toolUseResult": {"agentId": "x" * 100}}, []),
        ({"toolUseResult": ["agentId"]}, []),
        ({"agentId": "a1"}, []),
    ],
)
def test_subagents_named(value, agents):
    assert list(subagents_named(value)) == agents


@pytest.fixture
def world(tmp_path):
    folder = tmp_path / "projects" / "-x"
    beside = folder / SID
    (beside / "tool-results" / "deep").mkdir(parents=True)
    transcript = folder / f"{SID}.jsonl"
    transcript.write_bytes(dump([message(1)]))
    (beside / "tool-results" / "deep" / "a.txt").write_text("result")
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(transcript, SID)
    archive.archive_side_files(str(transcript), SID, final=True)
    return archive, beside, str(tmp_path / "projects")


def look(world, results):
    archive, _, projects = world
    with History(archive, SID) as history:
        return look_after(history, {str(each) for each in results}, projects)


def test_what_is_there_is_left_alone(world):
    _, beside, _ = world
    found = look(world, [beside / "tool-results" / "deep" / "a.txt"])
    assert (found.put_back, found.missing) == ((), ())


def test_what_is_archived_comes_back(world):
    _, beside, _ = world
    path = beside / "tool-results" / "deep" / "a.txt"
    path.unlink()
    path.parent.rmdir()
    found = look(world, [path])
    assert found.put_back == (str(path),)
    assert found.missing == ()
    assert path.read_text() == "result"


def test_a_link_on_the_way_is_not_followed(world, tmp_path):
    _, beside, _ = world
    path = beside / "tool-results" / "deep" / "a.txt"
    path.unlink()
    path.parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")
    found = look(world, [path])
    assert found.missing == (str(path),)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_dangling_link_is_not_written_through(world, tmp_path):
    _, beside, _ = world
    path = beside / "tool-results" / "deep" / "a.txt"
    path.unlink()
    path.symlink_to(tmp_path / "target")
    look(world, [path])
    assert not (tmp_path / "target").exists()


def test_another_sessions_result_is_only_named(world):
    _, beside, _ = world
    other = beside.parent / "other" / "tool-results" / "deep" / "a.txt"
    assert look(world, [other]).missing == (str(other),)
    assert not other.exists()


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ObjectStoreError("s3://b", "it cannot be reached")]
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_one_that_is_archived_and_cannot_be_read_is_missing(world, monkeypatch, caplog, error, dry_run):
    """Wherever it is kept: the new session is there already, and goes on without it."""
    archive, beside, projects = world
    path = beside / "tool-results" / "deep" / "a.txt"
    path.unlink()

    def broken(self, name):
        raise error

    with History(archive, SID) as history:
        monkeypatch.setattr(type(history.files), "open", broken)
        found = look_after(history, {str(path)}, projects, dry_run=dry_run)
    assert (found.put_back, found.missing) == ((), (str(path),))
    assert str(error) in caplog.text
    assert not path.exists()


def test_a_dry_run_says_what_would_come_back_and_leaves_it(world):
    archive, beside, projects = world
    path = beside / "tool-results" / "deep" / "a.txt"
    path.unlink()
    with History(archive, SID) as history:
        found = look_after(history, {str(path)}, projects, dry_run=True)
    assert (found.put_back, found.missing) == ((str(path),), ())
    assert not path.exists()
