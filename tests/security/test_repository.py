"""A repository that somebody else wrote: its files hold nothing up, run nothing, and fill no memory."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from claude_agent_sdk import ClaudeAgentOptions
from click.testing import CliRunner

from mala_context import instrument
from mala_context.agent.pin import Pin
from mala_context.cli.app import app
from mala_context.config import load_config
from mala_context.errors import ConfigError
from tests.security.hostile import SID, dump, on_a_terminal, rows
from tests.security.odd_files import NO_FILES, ODD

HOOK = pathlib.Path(__file__).parents[2] / "hooks" / "hook.py"


@pytest.fixture
def repo(tmp_path, monkeypatch):
    for name in ("home/.claude", "repo/.claude"):
        (tmp_path / name).mkdir(parents=True)
    for name, value in (("HOME", "home"), ("MALA_RUNS_DIR", "runs"), ("CLAUDE_CONFIG_DIR", "home/.claude")):
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("PATH", str(tmp_path / "repo" / "bin"))  # where a program would be found, if any were looked for
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path / "repo"


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_configuration_that_is_no_file_is_an_error_at_once(make, repo):
    make(repo / "mala.yaml")
    if not (repo / "mala.yaml").is_dir():
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(repo)
    for words in (["config", "check"], ["config", "show"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code in {1, 2, 3}, done.output
        assert "Traceback" not in done.output


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_settings_that_are_odd_are_said(make, repo):
    make(repo / ".claude" / "settings.json")
    done = CliRunner().invoke(app, ["doctor", "--no-session", "--json"], catch_exceptions=False)
    assert done.exit_code in {0, 1}
    assert on_a_terminal(done.stdout)
    assert json.loads(done.stdout)["repo"] == str(repo)
    threshold = instrument(ClaudeAgentOptions(cwd=repo), repo).tracker.snapshot().auto_compact_threshold
    assert threshold is None or threshold > 0


def test_a_folder_of_settings_runs_nothing(repo, tmp_path):
    """Hooks, helpers, servers and a status line of the repository's own are for the CLI to ask about, not for us."""
    run = f"touch {tmp_path}/ran"
    hooks = {
        event: [{"matcher": "*", "hooks": [{"type": "command", "command": run}]}]
        for event in ("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit", "Stop")
    }
    settings = {
        "hooks": hooks,
        "statusLine": {"type": "command", "command": run},
        "apiKeyHelper": run,
        "env": {
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
            "PATH": str(repo),
            "MALA_RUNS_DIR": str(tmp_path / "theirs"),
        },
        "model": "$(" + run + ")",
    }
    (repo / ".claude" / "settings.json").write_text(json.dumps(settings))
    (repo / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"x": {"command": "touch", "args": [f"{tmp_path}/ran"]}}})
    )
    for name in ("claude", "git", "sitecustomize.py", "yaml.py", "click.py"):
        (repo / name).write_text(f"#!/bin/sh\n{run}\n")
        (repo / name).chmod(0o755)
    transcript = tmp_path / f"{SID}.jsonl"
    transcript.write_bytes(dump(rows()))
    for words in (["doctor", "--no-session"], ["config", "show"], ["archives", "list"], ["watch", "--once"]):
        CliRunner().invoke(app, words, catch_exceptions=False)
    given = {"session_id": SID, "transcript_path": str(transcript), "workspace": {"project_dir": str(repo)}}
    CliRunner().invoke(app, ["statusline"], input=json.dumps(given))
    for event in ("SessionStart", "UserPromptSubmit", "PreCompact"):
        ask_hook(repo, tmp_path, event, transcript)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "theirs").exists()


def ask_hook(repo, root, event, transcript, **environment):
    """Run the plugin's hook as Claude Code does, in the repository; returns what it wrote to standard error."""
    given = {"hook_event_name": event, "session_id": SID, "transcript_path": str(transcript), "cwd": str(repo)}
    env = {"HOME": str(root / "home"), "MALA_RUNS_DIR": str(root / "runs"), "CLAUDE_PROJECT_DIR": str(repo)}
    done = subprocess.run(
        [sys.executable, "-I", str(HOOK), "warn"],
        input=json.dumps(given).encode(),
        capture_output=True,
        env=env | environment,
        cwd=repo,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == {}
    return done.stderr.decode()


@pytest.mark.parametrize("kind", ["FIFO", "link to a FIFO", "link to an endless device", "folder"])
def test_the_plugins_hook_waits_for_no_configuration(kind, repo, tmp_path):
    NO_FILES[kind](repo / "mala.yaml")
    transcript = tmp_path / f"{SID}.jsonl"
    transcript.write_bytes(dump(rows()))
    assert "Traceback" not in ask_hook(repo, tmp_path, "UserPromptSubmit", transcript)


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_a_continuation_template_that_is_no_file_is_an_error_at_once(make, repo):
    make(repo / "template.md")
    (repo / "mala.yaml").write_text("context:\n  restart_at: 0.9\n  continuation_template: template.md\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        instrument(ClaudeAgentOptions(), repo)


def test_a_continuation_template_has_a_bound(repo):
    (repo / "template.md").write_text("{checkpoint}" + " " * 2_000_000)
    (repo / "mala.yaml").write_text("context:\n  restart_at: 0.9\n  continuation_template: template.md\n")
    with pytest.raises(ConfigError, match="more than 1,000,000 bytes"):
        instrument(ClaudeAgentOptions(), repo)


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
async def test_a_pinned_file_that_is_none_says_nothing_to_the_agent(make, repo):
    make(repo / "pinned.md")
    pin = Pin("pinned.md", str(repo))
    assert await pin.session_started({"source": "compact", "hook_event_name": "SessionStart"}) is None


def test_what_a_repository_is_called_is_no_markup_and_no_command(repo, tmp_path, monkeypatch):
    odd = tmp_path / "[link=http:x]y[bold] $(touch ran) \x1b]0;owned\x07"
    odd.mkdir()
    monkeypatch.chdir(odd)
    done = CliRunner().invoke(app, ["doctor", "--no-session"], catch_exceptions=False)
    assert on_a_terminal(done.stdout)
    assert "[link=http:x]y[bold] $(touch ran)" in done.stdout
    assert os.listdir(odd) == []
