"""`mala-context statusline` as Claude Code runs it: a process with JSON on standard input."""

import json
import os
import subprocess
import sys

import pytest

from mala_context.cli import statusline
from tests.helpers.slow_input import Trickle

INPUT = {
    "session_id": "s",
    "model": {"id": "claude-sonnet-4-5", "display_name": "Sonnet 4.5"},
    "context_window": {"context_window_size": 200_000, "current_usage": {"input_tokens": 126_812}},
}


def run(*arguments, given=None, env=None, **options):
    data = json.dumps(INPUT if given is None else given) if not isinstance(given, str) else given
    command = [sys.executable, "-m", "mala_context.cli", "statusline", *arguments]
    environment = {"PATH": os.environ["PATH"], **(env or {})}
    return subprocess.run(command, input=data, capture_output=True, text=True, env=environment, timeout=60, **options)


def test_one_line_in_colour():
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "\x1b[33mSonnet 4.5 ██████░░░░ 63% (127k of 200k)\x1b[0m\n"


@pytest.mark.parametrize("arguments", [["--color", "never"], ["--color=never"]])
def test_without_colour(arguments):
    assert run(*arguments).stdout == "Sonnet 4.5 ██████░░░░ 63% (127k of 200k)\n"


def test_no_color_is_heard():
    assert "\x1b" not in run(env={"NO_COLOR": "1"}).stdout


def test_a_template():
    assert run("--format", "{percent} of {window}", "--color=never").stdout == "63% of 200k\n"


def test_a_wrong_field_lists_the_right_ones():
    done = run("--format", "{nope}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "tokens_exact" in done.stderr


@pytest.mark.parametrize("arguments", [["--colour"], ["--color", "pink"], ["--format"]])
def test_wrong_usage(arguments):
    assert run(*arguments).returncode == 2


def test_json():
    found = json.loads(run("--json").stdout)
    assert (found["tokens"], found["window"], found["exact"], found["source"]) == (126_812, 200_000, True, "cli")


def test_help_names_every_field():
    from mala_context.agent.claude_code.statusline import FIELDS

    done = run("--help")
    assert done.returncode == 0
    assert all("{" + name + "}" in done.stdout for name in FIELDS)


@pytest.mark.parametrize("given", ["", "garbage", "[]", "\x00"])
def test_bad_input_is_one_line_and_no_failure(given):
    done = run(given=given)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_an_endless_input_in_small_pieces_is_one_line_too(monkeypatch, capfd):
    monkeypatch.setattr(os, "isatty", lambda _: False)
    with Trickle(65_536) as endless:
        endless.standard_input(monkeypatch)
        assert statusline.run(None, "never", as_json=False) == 0
    assert capfd.readouterr() == ("mala-context: no JSON from Claude Code on standard input\n", "")
    assert endless.taken < 4 * endless.given


def test_a_reader_that_is_gone(tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "mala_context.cli", "statusline"]
    done = subprocess.run(command, input=b"{}", stdout=write, stderr=subprocess.PIPE, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_heavy_is_imported(tmp_path):
    code = (
        "import sys\nfrom mala_context.cli import main\nsys.argv = ['mala-context', 'statusline']\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(INPUT), capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stderr.split())
    assert "mala_context.agent.claude_code.statusline" in loaded
    assert not loaded & {
        "click",
        "rich",
        "yaml",
        "structlog",
        "dataclasses",
        "typing",
        "hashlib",
        "mala_context.tracking.tracker",
    }
