"""What all commands have in common, each of them tried: help, exit statuses, JSON, pipes and Ctrl-C.

A new command is found by itself; `CASES` has the arguments with which it can be tried, and one without is a failure.
"""

import io
import json
import os
import sys
from importlib import import_module

import click
import pytest

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import COMMANDS, run
from tests.helpers.recordings import plain
from tests.helpers.small_transcripts import SID, dump, session

LINES = "a JSON value a line"
NONE = "prints no data"


def leaves():
    """Return each command that does something: its words and the click command."""
    for name, (module, _) in COMMANDS.items():
        command = getattr(import_module(module), name.replace("-", "_"))
        yield from _leaves((name,), command)


def _leaves(words, command):
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(click.Context(command)):
        yield from _leaves((*words, name), command.get_command(click.Context(command), name))


LEAVES = dict(leaves())


class Case:
    """How a command is tried: with a missing input, and with arguments that are right; what it prints as JSON.

    Where the latter are `None` the command needs more than this file has, and is tried where it is tested itself.
    """

    def __init__(self, good, missing=None, *, as_json="--json"):
        self.good, self.missing, self.as_json = good, missing, as_json


CASES = {
    ("demo",): Case(None),
    ("run",): Case(None, ["hello", "--cwd", "/none"]),
    ("watch",): Case(["--once"], ["--once", "--projects", "/none"], as_json=LINES),
    ("report",): Case(["rec.jsonl", "--json"], ["none.jsonl"]),
    ("init",): Case(["--yes"], ["--repo", "/none"], as_json=NONE),
    ("hook",): Case(None, as_json=NONE),
    ("statusline",): Case(None),
    ("replay",): Case(["rec.jsonl"], ["none.jsonl"], as_json="--format=json"),
    ("audit",): Case(["rec.jsonl"], ["none.jsonl"]),
    ("map",): Case(["rec.jsonl"], ["none.jsonl"]),
    ("simulate",): Case(["rec.jsonl", "--policy", "mala.yaml"], ["none.jsonl", "--policy", "mala.yaml"]),
    ("config", "show"): Case([], ["none"]),
    ("config", "check"): Case([], ["none"]),
    ("config", "init"): Case(["--stdout"], ["none/mala.yaml"], as_json=NONE),
    ("doctor",): Case(["--no-session"], ["--repo", "/none"]),
    ("completion",): Case(["fish"], as_json=NONE),
    ("archives", "list"): Case([], ["--repo", "/none"]),
    ("archives", "show"): Case([SID], ["7c9e"], as_json=LINES),
    ("archives", "cat"): Case([SID], ["7c9e"], as_json=NONE),
    ("archives", "lost"): Case([SID], ["7c9e"]),
    ("archives", "search"): Case(["message"], ["message", "--session", "7c9e"]),
    ("archives", "verify"): Case([], ["--dir", "/none"]),
    ("archives", "restore"): Case([SID], ["7c9e"]),
    ("archives", "prune"): Case(["--days", "1"], ["7c9e"]),
    ("archives", "catch-up"): Case([], ["--repo", "/none"]),
    ("archives", "pack"): Case([SID], ["7c9e"]),
    ("archives", "push"): Case(None, ["--repo", "/none"]),
    ("archives", "export"): Case([SID, "out.jsonl"], ["7c9e", "out.jsonl"]),
    ("archives", "import"): Case(["rec.jsonl"], ["none.jsonl"]),
}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A repository with a mala.yaml, a recording and an archived session, and it is the working directory."""
    for name, place in (("HOME", "home"), ("MALA_RUNS_DIR", "runs"), ("CLAUDE_CONFIG_DIR", "home/.claude")):
        (tmp_path / place).mkdir(exist_ok=True, mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / place))
    repo = tmp_path / "repo"
    repo.mkdir()
    monkeypatch.chdir(repo)
    (repo / "mala.yaml").write_text("context:\n  warn_at: 0.5\n")
    plain().write(repo / "rec.jsonl")
    folder = tmp_path / "home" / ".claude" / "projects" / "-repo"
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "home" / ".claude" / "projects").chmod(0o700)
    transcript = folder / f"{SID}.jsonl"
    transcript.write_bytes(dump(session(2)))
    transcript.chmod(0o600)
    TranscriptArchive(repo_path=repo).archive(transcript, SID, trigger="auto")
    return tmp_path


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line in this process: exit status, standard output, standard error."""

    def run_it(*words):
        monkeypatch.setattr(sys, "argv", ["mala-context", *words])
        with pytest.raises(SystemExit) as end:
            run()
        return end.value.code, *capsys.readouterr()

    return run_it


def named(pairs):
    return [pytest.param(words, id=" ".join(words)) for words in pairs]


TRIED = [words for words, case in CASES.items() if case.good is not None and words in LEAVES]


@pytest.mark.parametrize("words", named(LEAVES))
def test_it_has_a_case(words):
    assert words in CASES, f"add {' '.join(words)} to CASES of {__file__}"


@pytest.mark.parametrize("words", named(LEAVES))
def test_help(call, words):
    code, out, err = call(*words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: mala-context {' '.join(words)}")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("words", named(LEAVES))
def test_each_option_says_what_it_is_for(words):
    for parameter in LEAVES[words].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.opts


@pytest.mark.parametrize("words", named(LEAVES))
def test_an_unknown_flag_is_2(call, world, words):
    code, out, err = call(*words, "--no-such-flag")
    assert (code, out) == (2, "")
    assert "--no-such-flag" in err


@pytest.mark.parametrize("words", named(words for words, case in CASES.items() if case.missing and words in LEAVES))
def test_a_missing_input_is_3(call, world, words):
    code, out, err = call(*words, *CASES[words].missing)
    assert (code, out) == (3, "")
    assert err.startswith("mala-context: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", named(TRIED))
def test_it_works(call, world, words):
    code, out, err = call(*words, *CASES[words].good)
    assert (code, err) == (0, "")
    assert out


@pytest.mark.parametrize("words", named(words for words in TRIED if CASES[words].as_json != NONE))
def test_json(call, world, words):
    case = CASES[words]
    flag = "--json" if case.as_json == LINES else case.as_json
    code, out, err = call(*words, *case.good, flag)
    assert (code, err) == (0, "")
    assert out.isascii()
    for text in out.splitlines() if case.as_json == LINES else [out]:
        json.loads(text)


@pytest.mark.parametrize("words", named(words for words in LEAVES if words in CASES))
def test_what_prints_data_has_a_json_form(words):
    options = {option for parameter in LEAVES[words].params for option in parameter.opts}
    assert ({"--json", "--format"} & options != set()) == (CASES[words].as_json != NONE)


@pytest.mark.parametrize("words", named(TRIED))
def test_a_reader_that_is_gone_is_no_error(call, world, words, monkeypatch):
    receiving, sending = os.pipe()
    os.close(receiving)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(os.fdopen(sending, "wb")))
    monkeypatch.setattr(sys, "argv", ["mala-context", *words, *CASES[words].good])
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == 0
    sys.stdout.close()


@pytest.mark.parametrize("words", named(TRIED))
def test_ctrl_c_is_130_and_one_line(call, world, words, monkeypatch):
    """It comes at the first word that is printed."""

    class Interrupted(io.StringIO):
        def write(self, _):
            raise KeyboardInterrupt

        @property
        def buffer(self):
            return self

    monkeypatch.setattr(sys, "stdout", Interrupted())
    monkeypatch.setattr(sys, "argv", ["mala-context", *words, *CASES[words].good])
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == 130
    assert err.getvalue().strip() == "mala-context: interrupted"
