"""`mala-context replay` without click: the same output, status and errors, or left to click."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mala_context.cli import session_lines
from mala_context.cli.app import app
from mala_context.cli.session_lines import fast
from tests.helpers.recordings import OTHER, SID, Rows, plain


class Ended(BaseException):
    """In place of the process's end."""


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the fast way: its exit status, output and words."""

    ours, leave = os.getpid(), os._exit

    def end(status):
        if os.getpid() != ours:
            leave(status)
        raise Ended(status)

    def run(*arguments):
        with pytest.raises(Ended) as ended:
            fast([str(each) for each in arguments])
        return ended.value.args[0], *capsys.readouterr()

    monkeypatch.setattr(os, "_exit", end)
    return run


@pytest.fixture
def folder(tmp_path):
    plain().write(tmp_path / f"{SID}.jsonl")
    rows = Rows(OTHER)
    rows.prompt()
    rows.response("o", 12_000)
    rows.write(tmp_path / f"{OTHER}.jsonl")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "json"),
        ("--format=json", "--jobs", "2"),
        ("--format", "ndjson", "--jobs=1"),
        ("--totals",),
        ("--totals", "--format", "json"),
        ("--format", "json", "--totals"),
        ("--format", "json", "--format", "ndjson"),
        ("--jobs", "1", "--jobs", "3", "--totals"),
    ],
)
def test_it_prints_what_click_s_command_prints(folder, run, arguments):
    expected = CliRunner().invoke(app, ["replay", *arguments, str(folder)])
    assert expected.exit_code == 0
    assert run(*arguments, folder) == (0, expected.stdout, "")
    assert run(folder, *arguments) == (0, expected.stdout, "")


def test_several_paths_are_read_and_one_with_an_equals_sign(folder, run):
    there = folder / "a=b.jsonl"
    (folder / f"{SID}.jsonl").rename(there)
    status, out, _ = run("--format", "ndjson", there, folder / f"{OTHER}.jsonl")
    assert status == 0
    assert [json.loads(line)["session_id"] for line in out.splitlines()] == [SID, OTHER]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("PATH",),
        ("--format", "json"),
        ("--format", "table", "PATH"),
        ("--format", "xml", "PATH"),
        ("PATH", "--format"),
        ("--format=", "PATH"),
        ("--totals=1", "PATH"),
        ("--totals", "PATH", "--jobs", "0"),
        ("--totals", "PATH", "--jobs", "-1"),
        ("--totals", "PATH", "--jobs", "²"),
        ("--totals", "PATH", "--jobs", "99999"),
        ("--totals", "PATH", "--jobs"),
        ("--totals", "--", "PATH"),
        ("--totals", "-", "PATH"),
        ("--totals", "-h"),
        ("--totals", "PATH", "--since", "7d"),
        ("--format", "json", "PATH", "-o", "x"),
        ("--format", "json", "PATH", "--trace"),
        ("--format", "json", "PATH", "--engine", "local"),
        ("--form", "json", "PATH"),
    ],
)
def test_help_and_mistakes_and_all_that_is_rare_are_left_to_click(monkeypatch, folder, arguments):
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail(f"it ended with {status}"))
    assert fast([str(folder) if each == "PATH" else each for each in arguments]) is None


def test_a_path_that_is_not_there_is_said_as_click_s_command_says_it(tmp_path, run):
    status, out, err = run("--totals", tmp_path / "no")
    assert (status, out) == (3, "")
    assert err.startswith("mala-context: ")
    assert str(tmp_path / "no") in err


def test_ctrl_c_is_said_and_is_status_130(monkeypatch, folder, run):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mala_context.analysis.replay.engine.replay", interrupted)
    assert run("--totals", folder) == (130, "", "mala-context: interrupted\n")


def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch, folder, run):
    def gone(sessions, out):
        raise BrokenPipeError

    monkeypatch.setitem(session_lines.WRITERS, "json", gone)
    assert run("--format", "json", folder) == (0, "", "")


CODE = """
import os, sys
def end(status):
    sys.stderr.write(f"{status} {'click' in sys.modules}")
    leave(status)
leave, os._exit = os._exit, end
import mala_context.cli
mala_context.cli.main()
"""


def test_the_command_line_takes_it_and_click_is_not_loaded(folder):
    arguments = [sys.executable, "-c", CODE, "replay", "--format", "json", str(folder)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stderr == "0 False"
    assert len(json.loads(done.stdout)) == 2
