"""Every example runs to its end, offline, as a user would run it; a new one is a line of the table here."""

import ast
import contextlib
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import pytest

from mala_context.testing import ScriptedMessagesAPI
from tests.helpers import openai_loopback

FOLDER = pathlib.Path(__file__).parents[2] / "examples"
MOST_LINES = 60
NOWHERE = "http://127.0.0.1:9"
"""A proxy that does not answer: what is not on the loopback cannot be reached."""


class Example(NamedTuple):
    says: tuple
    """Patterns of what it prints, in this order."""
    logs: tuple = ()
    """The same for standard error."""
    server: str | None = None
    """Who answers where it asks a server of the user's: a name in `SERVERS`."""
    arguments: tuple = ()


EXAMPLES = {
    "minimal.py": Example((r"^Sure\.$", r"^[\d,]+ of [\d,]+ tokens$"), server="anthropic"),
    "existing_agent.py": Example(
        (r"^Sure\.$", r"^It was 41\.$"), logs=("INFO Context: ", "INFO Context: ", "INFO Archived "), server="anthropic"
    ),
    "restart.py": Example(("looks$", "^--- threshold: restart 1, going on from its checkpoint", "^done: All twelve")),
    "final_turn.py": Example(
        (r"^The report is written\.$", "the final turn ended .* nothing is missing", "^report.md: No failure")
    ),
    "undo_compaction.py": Example(
        ("^> /compact$", "^I do not know", "^--- restored as ", "^> Which port", "^Port 41001")
    ),
    "object_store.py": Example(("^here: 1 file, the manifest; [0-9,]+ bytes freed$", "^there: 2 pieces, .* sound$")),
    "multi_provider_guard.py": Example(
        (
            "^local/small: .* search, write_report, set_metadata$",
            "^cloud/large: ",
            "forced_final$",
            "tools write_report, set_metadata$",
            "tools set_metadata$",
            r"^Finished; the final turn's reason: context$",
        )
    ),
    "openai_server.py": Example(
        ("^whole$", "  200 of 1,000 tokens$", "^by chunks$", "  900 of", "compacted$", "^whole$", "  150 of"),
        server="openai",
        arguments=("played", "1000"),
    ),
    "telemetry.py": Example(
        ("^mala_context.compactions .*: 1$", "^gen_ai.context.tokens .*: [0-9]+$", "^span: compact .*, in turn [0-9]$")
    ),
    "testing_offline.py": Example(("^request 1 held [0-9,]+ tokens$", "^request 2", "^request 3")),
}


@contextlib.contextmanager
def anthropic(folder):
    with ScriptedMessagesAPI(("Sure.", "It was 41.")) as api:
        yield api.env(folder / "home")


@contextlib.contextmanager
def openai(_folder):
    answers = ("whole", 200), ("by chunks", 900), ("a summary", 950), ("whole", 150)
    with openai_loopback.serve(*({"text": words, "total": total} for words, total in answers)) as server:
        yield {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        assert [asked.get("stream", False) for asked in server.asked] == [False, True, False, False]
        assert [len(asked["messages"]) for asked in server.asked] == [1, 3, 5, 2]
        assert server.asked[-1]["messages"][0]["content"] == "a summary"


SERVERS = {None: lambda _folder: contextlib.nullcontext({}), "anthropic": anthropic, "openai": openai}


def run(name, folder):
    """Run an example in an empty project, with an empty home and no way out, and return the process that ended."""
    example = EXAMPLES[name]
    for each in ("project", "home", "runs"):
        (folder / each).mkdir()
    ours = {"HOME": str(folder / "home"), "MALA_RUNS_DIR": str(folder / "runs")}
    ours |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
    ours |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    accounts = ("ANTHROPIC_", "CLAUDE", "OPENAI_")
    theirs = {key: value for key, value in os.environ.items() if not key.startswith(accounts)}
    with SERVERS[example.server](folder) as env:
        return subprocess.run(
            [sys.executable, "-W", "error", str(FOLDER / name), *example.arguments],
            cwd=folder / "project",
            env={**theirs, **ours, **env},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


def find_in_order(patterns, text):
    lines = iter(text.splitlines())
    for pattern in patterns:
        assert any(re.search(pattern, line) for line in lines), f"no {pattern!r} at its place in:\n{text}"


LONG = ("restart.py", "telemetry.py", "undo_compaction.py", "final_turn.py", "object_store.py")
"""Those that take two seconds and more."""


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.long] * (each in LONG)) for each in EXAMPLES])
def test_it_runs(name, tmp_path):
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    find_in_order(EXAMPLES[name].says, done.stdout)
    find_in_order(EXAMPLES[name].logs, done.stderr)
    assert list((tmp_path / "project").iterdir()) == []
    if EXAMPLES[name].server != "anthropic":
        left = [path for place in ("home", "runs") for path in (tmp_path / place).rglob("*")]
        assert left == [], "it plays its model, and leaves nothing in a home"


def test_existing_agent_archives_its_session(tmp_path):
    run("existing_agent.py", tmp_path)
    (piece,) = (tmp_path / "runs").glob("*/archives/*_transcript.jsonl")
    assert "It was 41." in piece.read_text()


@pytest.mark.parametrize(("arguments", "words"), [((), "^usage: "), (("model",), "OPENAI_API_KEY")])
def test_an_openai_server_that_is_not_named_is_no_traceback(arguments, words):
    env = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    command = [sys.executable, str(FOLDER / "openai_server.py"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(words, done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_can_be_read_at_once(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES
    words = ast.get_docstring(ast.parse(text))
    assert words is not None
    assert f"python examples/{name}" in words, "its docstring says how to run it"


def test_the_folder_holds_what_its_page_lists():
    listed = re.findall(r"^\| \[`([^`]+)`\]\(([^)]+)\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert all(name == target for name, target in listed)
    there = sorted(path.name for path in FOLDER.iterdir() if path.is_file())
    assert sorted(name for name, _ in listed) == sorted(EXAMPLES) == [name for name in there if name != "README.md"]
