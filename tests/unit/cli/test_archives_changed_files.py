"""`restore` lists the files that changed since, and says what brings them back."""

import json
import os
import subprocess

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from mala_context.cli.archives.changed_files import SHOWN, ChangedFile, changed_lines, changed_since
from tests.helpers.small_transcripts import SID, boundary, dump, message

END = 1_793_534_403.0  # 2026-11-01T12:00:03Z


def call(number, name, **given):
    block = {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}
    row = message(number, "x")
    return {**row, "type": "assistant", "message": {"role": "assistant", "content": [block]}}


@pytest.fixture
def work(tmp_path):
    """A directory with files that are older and newer than the conversation."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name, age in (("old.py", -10), ("new.py", 10), ("relative.py", 10), ("untold.py", 10)):
        (folder / name).write_text(name)
        os.utime(folder / name, (END + age, END + age))
    return folder


def rows(work):
    return [
        message(1, timestamp="2026-11-01T12:00:01Z"),
        call(2, "Read", file_path=str(work / "old.py")),
        call(3, "Edit", file_path=str(work / "new.py")),
        call(3, "Write", file_path="relative.py"),
        call(3, "Write", file_path=str(work / "gone.py")),
        call(3, "Bash", command=f"touch {work}/untold.py"),
        call(3, "Edit", file_path="/a\0b"),
        call(3, "Edit", file_path=5),
        call(3, ["Edit"], file_path=str(work / "untold.py")),
    ]


def test_files_that_were_written_or_deleted_since(work, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(dump(rows(work)) + b"[]\nno json\n")
    found, end = changed_since(str(path), str(work), "2026-11-01T12:00:03Z")
    assert end == END
    assert found == [
        ChangedFile(str(work / "gone.py"), "deleted"),
        ChangedFile(str(work / "new.py"), "changed"),
        ChangedFile(str(work / "relative.py"), "changed"),
    ]
    assert changed_since(str(path), None, None)[0] == [found[0], found[1]]  # by the newest row's time
    path.write_bytes(dump([{"type": "user"}]))
    assert changed_since(str(path), str(work), None) == ([], None)
    assert changed_since(str(path), str(work), "soon") == ([], None)


def test_what_brings_them_back_can_be_pasted(work):
    git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "new.py"], check=True)
    then = {**os.environ, "GIT_COMMITTER_DATE": f"{int(END) - 60} +0000", "GIT_AUTHOR_DATE": f"{int(END) - 60} +0000"}
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True, env=then)
    (work / "new.py").write_text("changed")
    lines = list(changed_lines([ChangedFile(str(work / "new.py"), "changed")], END, SID, str(work)))
    assert lines[0] == "1 file changed since 2026-11-01 12:00:03 UTC; files are not restored:"
    assert lines[1] == f"changed:  {work}/new.py"
    assert lines[2].endswith(f"claude --resume {SID}, then /rewind")
    command = lines[3].partition("before then: ")[2]
    subprocess.run(command, shell=True, check=True)
    assert (work / "new.py").read_text() == "new.py"


def test_outside_of_git_and_of_very_many(tmp_path):
    many = [ChangedFile(f"/f/{number}", "changed") for number in range(SHOWN + 5)]
    lines = list(changed_lines(many, END, SID, str(tmp_path)))
    assert "and 5 more; --json lists all" in lines
    assert not any(line.startswith("with git") for line in lines)
    assert list(changed_lines(many[:1], END, SID, None))[-1].startswith("with Claude Code's checkpoints: claude")


@pytest.mark.parametrize("as_json", [True, False])
def test_restore_lists_them(work, tmp_path, monkeypatch, as_json):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    folder = tmp_path / "claude" / "projects" / "-w"
    folder.mkdir(parents=True)
    path = folder / f"{SID}.jsonl"
    known = [{**row, "cwd": str(work)} for row in rows(work)[:5]]
    path.write_bytes(dump([*known, {**boundary(9), "timestamp": "2026-11-01T12:00:03Z"}]))
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(path, SID, trigger="auto", agent="main")
    more = ["--json"] if as_json else []
    result = CliRunner().invoke(app, ["archives", "restore", SID, "--dir", str(archive.location), *more])
    assert result.exit_code == 0, result.output
    if as_json:
        assert [each["state"] for each in json.loads(result.stdout)["changed"]] == ["deleted", "changed", "changed"]
    else:
        assert f"deleted:  {work}/gone.py\nchanged:  {work}/new.py\n" in result.stdout
        assert result.stdout.splitlines()[-1].startswith(f"cd {work} && claude --resume ")
    dry = CliRunner().invoke(app, ["archives", "restore", SID, "--dir", str(archive.location), "--dry-run"])
    assert "changed since" not in dry.output
