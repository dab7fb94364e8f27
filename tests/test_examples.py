"""Every example runs to its end, as a user would run it."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from mala_context.testing import ScriptedMessagesAPI

EXAMPLES_DIR = pathlib.Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(EXAMPLES_DIR.glob("*.py"))


WORDS = ("Sure.", "It was 41.")
"""What a model says to the examples that ask one; they are run against a scripted API."""


def run(path, folder):
    project = folder / "project"
    project.mkdir()
    with ScriptedMessagesAPI(WORDS) as api:
        env = {**os.environ, **api.env(folder / "home"), "MALA_RUNS_DIR": str(folder / "runs")}
        return subprocess.run(
            [sys.executable, "-W", "error", str(path)],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


def test_minimal(tmp_path):
    lines = run(EXAMPLES_DIR / "minimal.py", tmp_path).stdout.splitlines()
    assert lines[0] == "Sure."
    assert lines[1].endswith(" of 200,000 tokens") or lines[1].endswith(" of 1,000,000 tokens")


def test_existing_agent(tmp_path):
    done = run(EXAMPLES_DIR / "existing_agent.py", tmp_path)
    assert done.stdout.splitlines() == ["Sure.", "It was 41."]
    assert done.stderr.count("INFO Context: ") == 2
    (piece,) = (tmp_path / "runs").glob("*/archives/*_transcript.jsonl")
    assert "It was 41." in piece.read_text()


def test_there_are_examples():
    assert "multi_provider_guard.py" in {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path, tmp_path):
    done = run(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert path.read_text().startswith('"""')


def test_multi_provider_guard(tmp_path):
    path = next(path for path in EXAMPLES if path.name == "multi_provider_guard.py")
    started = time.monotonic()
    lines = run(path, tmp_path).stdout.splitlines()
    assert time.monotonic() - started < 2
    assert sum("forced_final" in line for line in lines) == 1
    first_cloud = next(number for number, line in enumerate(lines) if "cloud/large" in line)
    assert not any("local/small" in line for line in lines[first_cloud:])
    assert "tools set_metadata" in lines[-3]
    assert lines[-1].startswith("Finished in turn ")
    assert lines[-1].endswith("reason: context")
