"""`mala-context archives push`: what it says, with a store's answers in the store's place."""

import json

import pytest
from click.testing import CliRunner

from mala_context.archive.remote.push import PushResult
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.archives.changing import push

SID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command in a repository whose archive goes to a store; what was asked for is in `run.asked`."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "mala.yaml").write_text("context:\n  archive:\n    directory: s3://bucket/archives\n")
    transcript = tmp_path / "t.jsonl"
    transcript.write_text('{"type":"user"}\n')
    TranscriptArchive(repo_path=repo).archive(str(transcript), SID, trigger="auto")

    def call(result, *arguments):
        def pushed(self, session_ids, *, progress):
            call.asked.append(session_ids)
            progress(1)
            return result

        monkeypatch.setattr(TranscriptArchive, "push", pushed)
        done = CliRunner().invoke(push, [*arguments, "--repo", str(repo)])
        assert not isinstance(done.exception, Exception), done.exception
        return done

    call.asked = []
    return call


def result(**fields):
    return PushResult(**{"address": "s3://bucket/archives/x", "files": 2, "bytes": 2048, "sessions": 1, **fields})


def test_what_was_uploaded_is_told_in_a_line(run):
    done = run(result())
    assert (done.exit_code, run.asked) == (0, [None])
    assert done.stdout == "2 files, 2.0 KB uploaded; 1 session complete in s3://bucket/archives/x\n"


def test_a_session_goes_by_its_first_letters(run):
    run(result(), SID[:8])
    assert run.asked == [[SID]]


def test_what_is_not_there_yet_is_named_and_fails(run):
    done = run(result(pending=(SID,)))
    assert done.exit_code == 1
    assert done.stdout.startswith(f"not all there: {SID}\n")


def test_for_machines(run):
    done = run(result(pending=(SID,)), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "address": "s3://bucket/archives/x",
        "files": 2,
        "bytes": 2048,
        "sessions": 1,
        "pending": [SID],
    }
