"""Which session is which: project and first prompt, at a terminal and nowhere else."""

import io
import sys

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from mala_context.cli.session_names import SessionName, name_of, name_of_file, named
from tests.helpers.recordings import Rows
from tests.helpers.watch_sessions import Terminal

PROMPT = {"type": "user", "cwd": "/home/dev/web-shop/", "message": {"content": "Fix the rounding\nof prices"}}


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_first_rows_tell_project_and_prompt():
    later = {"type": "user", "cwd": "/elsewhere", "message": {"content": "And now the tests"}}
    assert name_of([{"type": "system"}, PROMPT, later]) == ("web-shop", "Fix the rounding of prices")
    assert name_of([{"cwd": 5}]) == ("", "")
    assert name_of([{**PROMPT, "message": {"content": "\x1b]0;x\x07 red"}}]).prompt == "\\x1b]0;x\\x07 red"


@pytest.mark.parametrize("path", ["-", "/nowhere.jsonl", "s3://bucket/x.jsonl"])
def test_a_session_without_a_file_here_has_no_name(path):
    assert name_of_file(path) == ("", "")


@pytest.mark.parametrize(
    ("room", "text"),
    [(80, "web-shop: Fix the rounding"), (16, "web-shop: Fix t…"), (11, "")],
)
def test_a_name_takes_the_room_that_is_left(room, text):
    assert SessionName("web-shop", "Fix the rounding").within(room) == text


def test_a_pipe_and_a_narrow_terminal_get_no_prompt():
    assert named("line", [PROMPT], io.StringIO(), 200) == "line"
    assert named("line", [PROMPT], Screen(), 15) == "line"
    assert named("line", [PROMPT], Screen(), 80) == "line  web-shop: Fix the rounding of prices"
    assert named("line", [], Screen(), 80) == "line"


@pytest.fixture
def recorded(tmp_path):
    rows = Rows()
    rows.prompt("Fix the rounding\nof prices", cwd="/home/dev/web-shop", timestamp="2026-05-01T10:00:00Z")
    rows.response("a", 20_000)
    rows.prompt("Go on")
    rows.response("b", 170_000)
    path = rows.write(tmp_path / "a.jsonl")
    policy = tmp_path / "mala.yaml"
    policy.write_text("context:\n  warn_at: 0.5\n")
    TranscriptArchive(tmp_path / "archives").archive(str(path), session_id=rows.session_id, trigger="auto")
    return tmp_path


COMMANDS = {
    "replay": ("a.jsonl",),
    "audit": ("a.jsonl",),
    "simulate": ("--policy", "mala.yaml", "a.jsonl"),
    "archives list": ("--dir", "archives"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_table_names_the_sessions_on_a_terminal_only(recorded, command, monkeypatch):
    monkeypatch.chdir(recorded)
    words = (*command.split(), *COMMANDS[command])
    with Terminal(sys.executable, "-m", "mala_context.cli", *words, columns=180) as screen:
        assert screen.ended() == 0
        assert "web-shop" in screen.text
        assert "Fix the rounding of prices" in screen.text
    assert "Fix the rounding" not in CliRunner().invoke(app, words).output
