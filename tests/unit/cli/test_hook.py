"""`mala-context hook`: the command that `init` puts into Claude Code's settings."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mala_context.agent.claude_code import command_hooks
from mala_context.cli import hook as module
from mala_context.cli.app import app

SID = "0f8fad5b-d9cb-469f-a165-70867728950e"


class Ended(BaseException):
    """In place of the process's end."""


@pytest.fixture
def ended(monkeypatch):
    def end(status):
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", end)


def test_a_compaction_is_archived_without_click_and_rich(tmp_path):
    (tmp_path / "repo").mkdir()
    transcript = tmp_path / f"{SID}.jsonl"
    transcript.write_text('{"type": "user"}\n')
    given = {
        "hook_event_name": "PreCompact",
        "session_id": SID,
        "transcript_path": str(transcript),
        "trigger": "auto",
        "cwd": str(tmp_path / "repo"),
    }
    script = (
        "import os, sys\nleave = os._exit\n"
        'def end(status):\n    sys.stderr.write(f\'{status} {sorted({"click", "rich"} & set(sys.modules))}\')\n'
        "    sys.stderr.flush()\n    leave(status)\n"
        "os._exit = end\nsys.argv = ['mala-context', 'hook']\nimport mala_context.cli\nmala_context.cli.main()\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MALA_RUNS_DIR": str(tmp_path / "runs")}
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(given), capture_output=True, text=True, timeout=60, env=env
    )
    assert done.stdout == "{}\n"
    assert done.stderr.endswith("0 []")
    archives = tmp_path / "runs"
    assert list(archives.rglob(f"{SID}_*.jsonl"))


@pytest.mark.parametrize("arguments", [["--help"], ["warm"], ["warn", "more"], ["--warn"]])
def test_help_and_mistakes_are_left_to_click(ended, arguments):
    assert module.fast(arguments) is None
    assert CliRunner().invoke(app, ["hook", *arguments]).exit_code == (0 if arguments == ["--help"] else 2)


@pytest.mark.parametrize("arguments", [[], ["warn"]])
def test_whatever_goes_wrong_the_answer_is_empty_and_the_status_0(ended, monkeypatch, capfd, arguments):
    def broken(given, env):
        assert list(given) == arguments
        raise MemoryError("no more")

    monkeypatch.setattr(command_hooks, "answer_in_time", broken)
    with pytest.raises(Ended) as end:
        module.fast(arguments)
    assert end.value.args == (0,)
    assert capfd.readouterr() == ("{}\n", "mala-context: MemoryError: no more\n")


def test_a_reader_that_is_gone(ended, monkeypatch):
    def closed(*_):
        raise BrokenPipeError

    monkeypatch.setattr(command_hooks, "answer_in_time", lambda *_: (b"{}", ""))
    monkeypatch.setattr(os, "write", closed)
    with pytest.raises(Ended):
        module.fast([])


def test_click_has_the_same_command(ended, monkeypatch, capfd):
    monkeypatch.setattr(command_hooks, "answer_in_time", lambda given, _: (str(list(given)).encode(), ""))
    with pytest.raises(Ended):
        module.hook.callback("warn")
    assert capfd.readouterr().out == "['warn']\n"
    with pytest.raises(AttributeError):
        module.nothing  # noqa: B018 - for its error
