"""No command does anything to a terminal, whatever a session, its files' names or a configuration hold."""

import io
import json
import logging
import os
import pathlib
import subprocess
import sys

import pytest

from mala_context._util.log import get_logger
from mala_context.archive import log
from mala_context.cli.app import run
from tests.security.hostile import EVIL, NAME, SID, Machine, on_a_terminal

COMMANDS = [
    "replay {folder}",
    "replay {odd} --format csv",
    "replay {folder} --format json",
    "replay {folder} --trace",
    "replay {folder} --totals",
    "replay {folder}/nothing*",
    "audit {folder}",
    "audit {folder} --by model",
    "audit {folder} --by version",
    "audit {folder} --json",
    "simulate {folder} --policy {policy}",
    "simulate {folder} --policy {policy} --json",
    "simulate {folder} --policy {wrong}",
    "watch --once",
    "watch --once --json",
    "watch {odd} --once",
    "watch --once \x1b]0;",
    "report {folder} -o -",
    "report {folder} --json",
    "report {folder} -o {folder}/r.html",
    "report {folder} -o {folder}/none/r.html",
    "archives list",
    "archives list --all",
    "archives list --all --json",
    "archives show {sid}",
    "archives show {sid} --full",
    "archives show {sid} --json",
    "archives show {sid} --agent a1",
    "archives show {sid} --agent {odd}",
    "archives lost {sid}",
    "archives lost {sid} --json",
    "archives search owned",
    "archives search owned --json",
    "archives verify",
    "archives verify --all",
    "archives catch-up",
    "archives pack",
    "archives push",
    "archives export {sid} {folder}/copy.jsonl",
    "archives export {sid} {folder}/copy.jsonl --redact",
    "archives import {folder}",
    "archives restore {sid}",
    "archives restore {sid} --json",
    "archives prune --days 0",
    "archives show {odd}",
    "archives list --dir {odd}",
    "doctor --no-session",
    "doctor --no-session --json",
    "config show {policy}",
    "config check {wrong}",
    "config check {wrong} --json",
    "config init {folder}/m.yaml",
    "statusline",
    "statusline --json",
    "completion bash",
    "\x1b]0;owned",
    "replay --\x1b]0;owned",
]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path, monkeypatch)
    made.policy = made.repo / f"{NAME}.yaml"
    made.policy.write_text("context:\n  warn_at: 0.1\n  guard:\n    tool_output_tokens: 100\n")
    made.wrong = made.repo / f"wrong{NAME}.yaml"
    made.wrong.write_text(json.dumps({"context": {EVIL: EVIL, "warn_at": EVIL, "hard_limit": {EVIL: 1}}}))
    return made


def call(machine, command, monkeypatch, given=b""):
    """Run a command in this process; return what it wrote to both streams, and its status."""
    places = {name: str(getattr(machine, name)) for name in ("folder", "odd", "policy", "wrong")}
    words = [each.format(sid=SID, **places) for each in command.split(" ")]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    read, write = os.pipe()
    os.write(write, given)
    os.close(write)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["mala-context", *words])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = None
        try:
            run()
        except SystemExit as end:
            status = end.code
    os.close(read)
    out.flush()
    err.flush()
    return out.buffer.getvalue().decode(), err.buffer.getvalue().decode(), status


@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.startswith("statusline")])
def test_every_command(command, machine, monkeypatch):
    out, err, status = call(machine, command, monkeypatch)
    assert status in {0, 1, 2, 3}, err
    assert "Traceback" not in err
    assert on_a_terminal(err), err
    assert out or err
    if "-o -" in command:
        assert "<img" not in out  # a page is no terminal's, but its text is no markup
    else:
        assert on_a_terminal(out, lines="\n\r" if "csv" in command else "\n"), out


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--format", "{model} {session} {source}"]])
def test_the_status_line(arguments, machine):
    given = {"session_id": EVIL, "model": {"id": EVIL, "display_name": EVIL}, "transcript_path": str(machine.odd)}
    done = subprocess.run(
        [sys.executable, "-m", "mala_context.cli", "statusline", "--color", "never", *arguments],
        input=json.dumps({**given, "workspace": {"project_dir": EVIL}, "cwd": EVIL, "version": EVIL}).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert on_a_terminal(done.stdout.decode()), done.stdout
    assert b"owned" in done.stdout


def test_log_lines(caplog):
    caplog.set_level(logging.INFO)
    get_logger("mala_context.x").warning("model %s", EVIL, model=EVIL)
    log.warning("%s, %d, %s", EVIL, 7, OSError(EVIL))
    first, second = caplog.records
    assert on_a_terminal(first.getMessage())
    assert on_a_terminal(second.getMessage(), lines="")
    assert first.model == EVIL, "a value for machines is as it came"


def test_a_hooks_words(tmp_path):
    """A hook's one line on standard error, which Claude Code shows, with every field of its input hostile."""
    hook = pathlib.Path(__file__).parents[2] / "hooks" / "hook.py"
    for event in ("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit", EVIL):
        given = {"hook_event_name": event, "session_id": EVIL, "transcript_path": f"/{EVIL}", "cwd": f"/{EVIL}"}
        env = {"MALA_RUNS_DIR": str(tmp_path / "runs"), "HOME": str(tmp_path), "MALA_WARN_AT": EVIL}
        done = subprocess.run(
            [sys.executable, "-I", str(hook)],
            input=json.dumps({**given, "trigger": EVIL, "source": EVIL, "compact_summary": EVIL}).encode(),
            capture_output=True,
            env=env,
            cwd=tmp_path,
            timeout=60,
            check=True,
        )
        assert json.loads(done.stdout) == {}
        assert on_a_terminal(done.stderr.decode()), (event, done.stderr)
        assert not [each for each in tmp_path.rglob("*.jsonl") if each.is_file()], event
