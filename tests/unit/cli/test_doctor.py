"""`mala-context doctor`: what people see of it."""

import json
import os
import re

import pytest
from click.testing import CliRunner

from mala_context.analysis.doctor import CHECKS, Facts
from mala_context.analysis.doctor.facts import (
    ConfigFile,
    PathMode,
    Program,
    RunsDirectory,
    SettingsFile,
    TranscriptFacts,
    UnarchivedProject,
)
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.doctor import doctor
from mala_context.cli.hook_proof import prove
from tests.helpers.small_transcripts import SID


@pytest.fixture
def facts(monkeypatch):
    """Let the doctor see these facts."""
    given = []
    monkeypatch.setattr("mala_context.analysis.doctor.gather", lambda *args, **more: given[-1])
    return given.append


def run(*args, status=0):
    result = CliRunner().invoke(doctor, args, standalone_mode=False)
    assert result.exception is None, result.exception
    assert result.return_value == status
    return result.stdout


def test_nothing_is_wrong(facts, tmp_path):
    facts(Facts(programs=(Program("/bin/claude", "on PATH", "2.1.332"),), configs=()))
    lines = run("--repo", str(tmp_path)).splitlines()
    assert lines[0] == f"{tmp_path}:"
    assert lines[2] == "✓ Claude Code      2.1.332 (on PATH)"
    assert "- free space       not looked at" in lines
    assert lines[-1] == "Nothing is wrong."
    assert len(lines) == 3 + len(CHECKS)


def test_what_is_wrong(facts, tmp_path):
    problems = tuple(f"line {number}: bad" for number in range(7))
    facts(
        Facts(
            configs=(ConfigFile("/repo/mala.yaml", problems),),
            settings=(SettingsFile("user", "/u", {"disableAllHooks": True}),),
        )
    )
    text = run("--repo", str(tmp_path), status=1)
    assert "✗ mala.yaml        1 finding\n" in text
    assert "\nerror /repo/mala.yaml\n" in text
    assert "  - line 4: bad\n  - and 2 more; --json lists all\n  fix: correct what is listed" in text
    assert text.endswith("2 things are wrong.\n")
    paths = re.compile(r"fix:|/")
    assert max(len(line) for line in text.splitlines() if not paths.search(line)) <= 80


def test_commands_are_shown_a_line_each_and_the_rest_is_counted(facts, tmp_path):
    projects = tuple(UnarchivedProject(f"/p/{n}", f"/r{n}", (f"/p/{n}/a",), 1) for n in range(7))
    facts(Facts(transcripts=TranscriptFacts(7, 7, projects)))
    text = run("--repo", str(tmp_path), status=1)
    assert "  fix: mala-context archives import --repo /r0 /p/0\n       mala-context archives import --repo /r1" in text
    assert "       and 2 more; `mala-context doctor --fix` runs all\n" in text
    assert text.endswith("1 thing is wrong.\n")


def test_a_command_that_fails_is_named(facts, tmp_path, capfd):
    place = RunsDirectory("/nowhere\x1b", directories=(PathMode("/nowhere\x1b", 0o755),))
    facts(Facts(runs=place))
    result = CliRunner().invoke(doctor, ["--repo", str(tmp_path), "--fix", "--yes"], standalone_mode=False)
    assert result.return_value == 1
    assert "exit status 1" in result.stderr
    assert "\x1b" not in result.output


def test_fix_is_not_for_json(tmp_path):
    result = CliRunner().invoke(doctor, ["--repo", str(tmp_path), "--fix", "--json"])
    assert (result.exit_code, "exclude each other" in result.output) == (2, True)


def test_hostile_text_does_nothing_to_a_terminal(facts, tmp_path):
    hostile = "\x1b]0;title\x07\x1b[2J\u202e"
    facts(
        Facts(
            configs=(ConfigFile(hostile, (hostile,)),),
            models={hostile: hostile},
            programs=(Program(hostile, hostile, error=hostile),),
        )
    )
    text = run("--repo", str(tmp_path), status=1)
    assert not set("\x1b\x07\u202e") & set(text)
    assert "\\x1b]0;title\\x07" in text
    raw = run("--repo", str(tmp_path), "--json", status=1)
    assert raw.isascii()
    assert hostile in [each["where"] for each in json.loads(raw)["findings"]]


def test_no_colours_in_a_pipe(facts, tmp_path):
    facts(Facts(programs=()))
    assert "\x1b" not in run("--repo", str(tmp_path), status=1)


def test_a_directory_that_is_not_there(tmp_path):
    result = CliRunner().invoke(doctor, ["--repo", str(tmp_path / "none")])
    assert isinstance(result.exception, FileNotFoundError)  # the command line's frame ends with 3


def test_no_session_without_being_asked(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        "mala_context.analysis.doctor.gather", lambda *args, **more: asked.append(more["prove_hooks"]) or Facts()
    )
    run("--repo", str(tmp_path), "--no-session")
    run("--repo", str(tmp_path))
    assert asked == [None, prove]


@pytest.mark.parametrize("known", [True, False])
def test_in_a_directory_that_was_deleted_the_rest_is_looked_at(known, facts, tmp_path, monkeypatch):
    facts(Facts(configs=()))
    gone = tmp_path / "gone\x1b[2J"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone) if known else "")
    gone.rmdir()
    result = CliRunner().invoke(doctor, [], standalone_mode=False, catch_exceptions=False)
    assert result.stdout.endswith("Nothing is wrong.\n")
    assert result.stderr.startswith("mala-context: the working directory is gone, /")
    assert "\x1b" not in result.output
    assert (str(tmp_path) in result.stdout) is known
    assert os.getcwd() == "/", "what is started from here has a directory"


@pytest.mark.parametrize("home", ["there", "nowhere"])
def test_the_repository_is_the_one_around_us_unless_named(facts, tmp_path, monkeypatch, home):
    """Where archives have no place at all, that is a finding and not the end."""
    deep = tmp_path / "repo" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    for name in ("MALA_RUNS_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path) if home == "there" else "/")
    if home == "there":
        TranscriptArchive(repo_path=tmp_path / "repo").archive(__file__, SID, trigger="auto")
    facts(Facts())
    assert run().splitlines()[0] == f"{tmp_path / 'repo' if home == 'there' else deep}:"
