"""Commands that write: what `push` says, with a store's answers in the store's place, and one bad session of many."""

import json

import pytest
from click.testing import CliRunner

from mala_context.archive.remote.push import PushResult
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.writer import LocalView
from mala_context.cli.app import app
from mala_context.cli.archives.changing import push
from mala_context.cli.archives.common import configured

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


@pytest.mark.parametrize(
    ("command", "others"),
    [("verify --repair", "fixed"), ("pack", "saved"), ("prune s1 s2 s3 --yes", "removed s3")],
    ids=["verify", "pack", "prune"],
)
def test_what_is_wrong_with_one_session_keeps_no_other(tmp_path, caplog, command, others):
    archive = TranscriptArchive(tmp_path / "archives")
    for name in ("s1", "s2", "s3"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b'{"type":"user"}\n' * 200)
        archive.archive(path, name, trigger="auto")
    manifest = tmp_path / "archives" / "s2.manifest.jsonl"
    manifest.unlink()
    manifest.mkdir(0o700)
    for piece in (tmp_path / "archives").glob("s[13]_*"):
        piece.chmod(0o640)
    done = CliRunner().invoke(app, ["archives", *command.split(), "--dir", str(tmp_path / "archives")])
    assert done.exit_code in {1, 3}, done.output
    assert others in done.stdout
    assert "s2.manifest.jsonl is a directory" in done.output + caplog.text
    left = {name: sorted((tmp_path / "archives").glob(f"{name}_*")) for name in ("s1", "s2", "s3")}
    modes = {each.stat().st_mode & 0o777 for name in ("s1", "s3") for each in left[name]}
    if command == "pack":
        assert {each.suffix for name in ("s1", "s3") for each in left[name]} == {".zst"}
    else:
        assert modes == ({0o600} if command.startswith("verify") else set())
    assert len(left["s2"]) == 1


@pytest.mark.parametrize("command", ["push", "search word", "search word --json"])
def test_a_store_that_lacks_one_session_keeps_no_other(tmp_path, monkeypatch, command):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    repo, bucket = tmp_path / "repo", tmp_path / "bucket"
    repo.mkdir()
    (repo / "mala.yaml").write_text(f"context:\n  archive:\n    directory: file://{bucket}\n")
    archive = configured(str(repo))
    for name in ("s1", "s2", "s3"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b'{"type":"user","message":{"role":"user","content":"a word"}}\n')
        archive.archive(path, name, trigger="auto")
    archive.push(["s2"])
    (sent,) = bucket.rglob("s2_*")
    sent.unlink()
    if command == "push":
        sent.mkdir()
        (manifest,) = (tmp_path / "runs").rglob("s2.manifest.jsonl")
        rows = [line for line in manifest.read_text().splitlines(keepends=True) if '"uploaded"' not in line]
        manifest.write_text("".join(rows))
    else:
        (here,) = (tmp_path / "runs").rglob("s2_*")
        here.unlink()
    done = CliRunner().invoke(app, ["archives", *command.split(), "--repo", str(repo)])
    assert done.exit_code == 3
    assert sent.name in done.stderr
    if command == "push":
        assert {each.name[:3] for each in bucket.rglob("s[13]_*")} == {"s1_", "s3_"}
    else:
        assert "1 session could not be searched" in done.stderr
        assert ("s1" in done.stdout, "s2" in done.stdout, "s3" in done.stdout) == (True, False, True)


@pytest.mark.parametrize(
    ("command", "status"),
    [("list", 0), ("list --json", 0), ("verify", 1), ("search word", 3), ("pack", 3), ("prune s1 s2 s3", 3)],
)
def test_a_session_that_cannot_be_read_keeps_no_other(tmp_path, caplog, monkeypatch, command, status):
    archive = TranscriptArchive(tmp_path / "archives")
    for name in ("s1", "s2", "s3"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b'{"type":"user","message":{"role":"user","content":"a word"}}\n')
        archive.archive(path, name, trigger="auto")
    read = LocalView._read_manifest

    def refused(view):
        if view.session_id == "s2":
            raise PermissionError(13, "Permission denied", "s2.manifest.jsonl")
        return read(view)

    monkeypatch.setattr(LocalView, "_read_manifest", refused)
    done = CliRunner().invoke(app, ["archives", *command.split(), "--dir", str(tmp_path / "archives")])
    assert done.exit_code == status, done.output
    assert "Permission denied" in done.output + caplog.text
    if "json" in command:
        assert [each["session_id"] for each in json.loads(done.stdout)[0]["sessions"]] == ["s3", "s2", "s1"]
    elif command not in {"pack", "verify"}:
        assert ("s1" in done.stdout, "s3" in done.stdout) == (True, True)
