"""Wrong inputs of every kind (case people-21): one line that names the input, an exit status, no hang, no traceback."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mala_context import instrument
from mala_context.cli.app import app
from tests.helpers.recordings import plain

READERS = (["replay"], ["audit"], ["report", "--json"], ["simulate", "--policy", "mala.yaml"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mala.yaml").write_text("context:\n  warn_at: 0.5\n")
    plain().write(tmp_path / "good.jsonl")
    return tmp_path


def call(*arguments, **env):
    command = [sys.executable, "-m", "mala_context.cli", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": os.getcwd(), **env}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=environment, stdin=subprocess.DEVNULL
    )


def check(done, status, words):
    assert done.returncode == status, done
    assert words in done.stderr
    assert done.stderr.startswith("mala-context: ")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == (2 if status == 2 else 1)


@pytest.mark.parametrize("reader", READERS, ids=lambda each: each[0])
class TestRecordings:
    def test_a_link_to_nothing(self, place, reader):
        (place / "x.jsonl").symlink_to("/nope")
        check(call(*reader, "x.jsonl"), 3, "x.jsonl: No such file or directory")

    def test_an_empty_folder(self, place, reader):
        (place / "empty").mkdir()
        check(call(*reader, "empty"), 3, "in empty")

    def test_a_link_to_itself(self, place, reader):
        (place / "x.jsonl").symlink_to("x.jsonl")
        check(call(*reader, "x.jsonl"), 3, "x.jsonl: Too many levels of symbolic links")

    def test_a_fifo(self, place, reader):
        os.mkfifo(place / "x.jsonl")
        check(call(*reader, "x.jsonl"), 3, "x.jsonl: it is no file")

    def test_a_device(self, place, reader):
        check(call(*reader, "/dev/zero"), 3, "/dev/zero: it is no file")

    @pytest.mark.parametrize("data", [b"words\n", b"\x00\xff\xfe" * 900, b"[1, 2]\n", b"{"])
    def test_no_json(self, place, reader, data):
        (place / "x.jsonl").write_bytes(data)
        check(call(*reader, "x.jsonl"), 3, "nothing could be read: x.jsonl:1: no")

    def test_a_pipe_of_the_shell_is_read(self, place, reader):
        script = f"{sys.executable} -m mala_context.cli {' '.join(reader)} <(cat good.jsonl)"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done


def number_options(command=app, words=()):
    """Each option that takes a number, with the words of its command; none of commands that start an agent."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in {*command.list_commands(context)} - {"demo", "run"}:
            yield from number_options(command.get_command(context, name), (*words, name))
        return
    for each in command.params:
        if isinstance(each, click.Option) and isinstance(each.type, click.types._NumberRangeBase):
            yield " ".join((*words, each.opts[-1]))


@pytest.mark.parametrize("digits", [19, 400, 5_000])
@pytest.mark.parametrize("option", sorted(number_options()))
def test_a_number_of_any_size(place, option, digits):
    *command, name = option.split()
    more = {"report": ["good.jsonl", "-o", "page.html"], "simulate": ["good.jsonl", "--policy", "mala.yaml"]}
    more |= {"replay": ["good.jsonl"], "audit": ["good.jsonl"], "map": ["good.jsonl"], "watch": ["--once"], "init": []}
    more |= {"archives search": ["words"], "archives export": ["s1", "copy.jsonl"]}
    words = [*command, *more.get(" ".join(command), []), f"{name}={'9' * digits}"]
    done = CliRunner().invoke(app, words, env={"HOME": os.getcwd()})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {0, 1, 2, 3}


def test_a_policy_that_is_not_there(place):
    check(call("simulate", "good.jsonl", "--policy", "/nope/a.yaml"), 3, "/nope/a.yaml: No such file or directory")


@pytest.mark.parametrize("group", ["archives", "config"])
def test_a_group_without_a_command_shows_its_help(place, group):
    done = call(group)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Usage: mala-context {group}")
    assert "\\x0a" not in done.stderr
    assert done.stderr.count("\n") > 10


def test_watch_of_what_is_not_there(place):
    check(call("watch", "nosuch"), 3, "no session nosuch in ")
    check(call("watch", "--projects", "/etc/passwd"), 3, "/etc/passwd: Not a directory")


def test_options_that_are_none():
    with pytest.raises(TypeError, match="options is a dict; instrument takes ClaudeAgentOptions or None"):
        instrument({})


def test_removed_fields_are_lines(place):
    (place / "mala.yaml").write_text("context_limit: 5\n")
    done = call("doctor", "--no-session", "--repo", ".")
    assert "Unknown field 'context_limit' in mala.yaml\n" in done.stdout
    assert "\\x0a" not in done.stdout + done.stderr


def test_wrong_usage_names_the_help(place):
    done = call("replay", "--format", "xml")
    check(done, 2, "'xml' is not one of")
    assert done.stderr.endswith("\nTry 'mala-context replay --help'.\n")


def test_the_short_version(place):
    assert call("-V").stdout == call("--version").stdout


def test_one_session_is_one(place):
    assert "\n1 session, " in call("replay", "good.jsonl").stdout
