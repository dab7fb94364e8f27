"""The status line keeps no state, waits for nothing, and believes nothing of what it is given."""

import json
import os
import subprocess
import sys

import pytest

from mala_context.agent.claude_code.statusline import line, measure
from tests.security.hostile import EVIL, SID, dump, on_a_terminal, rows
from tests.security.odd_files import NO_FILES, ODD


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A home, a repository and a session; returns what Claude Code gives, and the environment."""
    for name in ("home/.claude", "repo/.claude", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    transcript = tmp_path / f"{SID}.jsonl"
    transcript.write_bytes(dump(rows()))
    monkeypatch.chdir(tmp_path / "repo")
    given = {
        "session_id": SID,
        "transcript_path": str(transcript),
        "model": {"id": "claude-sonnet-4-5"},
        "workspace": {"project_dir": str(tmp_path / "repo")},
    }
    return given, {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "PATH": os.environ["PATH"]}


SETTINGS = ["home/.claude.json", "home/.claude/settings.json", "repo/.claude/settings.json"]


@pytest.mark.parametrize("place", [*SETTINGS, "repo/.claude/settings.local.json"])
@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_settings_of_a_hostile_repository_hold_nothing_up(make, place, machine, tmp_path):
    given, env = machine
    make(tmp_path / place)
    gauge = measure(given, env)
    assert gauge.tokens == 180_000
    assert gauge.threshold is None or gauge.threshold > 0
    assert on_a_terminal(line(gauge, color=False), lines="")


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_transcript_that_is_no_file_holds_nothing_up(make, machine, tmp_path):
    given, env = machine
    make(tmp_path / "odd.jsonl")
    gauge = measure({**given, "transcript_path": str(tmp_path / "odd.jsonl")}, env)
    assert (gauge.tokens, gauge.source) == (None, "none")


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_nothing_is_written_anywhere(mask, machine, tmp_path):
    """So there is no state in which another user, or another session, could put something."""
    given, env = machine
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    for fields in ({}, {"session_id": EVIL, "transcript_path": EVIL, "workspace": {"project_dir": EVIL}}):
        done = subprocess.run(
            [sys.executable, "-B", "-m", "mala_context.cli", "statusline"],
            input=json.dumps({**given, **fields}).encode(),
            capture_output=True,
            env=env,
            umask=mask,
            timeout=60,
            check=True,
        )
        assert done.stdout.endswith(b"\n")
        assert done.stderr == b""
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before
