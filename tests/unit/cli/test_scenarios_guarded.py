"""The guard's scenarios as a user plays them, on the real CLI, and what makes their checks fail."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mala_context.cli.scenarios import guarded
from mala_context.testing.api import ANOTHER_ACCOUNT
from mala_context.testing.scripts import RESULT_CHARACTERS

DEMO = (sys.executable, "-W", "error", "-m", "mala_context.cli", "demo", "--json", "--scenario")
BOTH = {"scenario", "scripted_api", "ok", "turns", "seconds", "kept", "checks", "window", "cli_version"}
KEYS = {
    "overflow": {"without", "with_guard", "compactions"},
    "restart": {"without", "with_guard", "restarts"},
    "final": {"without", "with_guard", "stubborn", "final_turn", "stubborn_final_turn"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", KEYS)
def test_a_scenario_dies_without_and_finishes_with(name, tmp_path):
    kept = {key: value for key, value in os.environ.items() if key not in {*ANOTHER_ACCOUNT, "ANTHROPIC_API_KEY"}}
    done = subprocess.run([*DEMO, name], env={**kept, "TMPDIR": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert set(result) == BOTH | KEYS[name]
    assert result["ok"] is True
    assert all(check["ok"] for check in result["checks"])
    assert 0 < result["seconds"] < 90  # on a busy machine
    assert result["without"]["terminal_reason"] == "prompt_too_long"
    assert result["with_guard"]["terminal_reason"] == "completed"
    assert result["with_guard"]["refused"] == 0


def result(reason="completed", *, is_error=False):
    return SimpleNamespace(terminal_reason=reason, is_error=is_error)


def run(*results, texts=("Done.",), requests=()):
    return guarded.Run(SimpleNamespace(), requests, results=list(results), texts=list(texts))


def test_a_run_that_did_not_die_fails_the_first_check():
    assert guarded.died_check(run(result(guarded.DEAD, is_error=True))).ok
    assert not guarded.died_check(run(result())).ok
    assert not guarded.died_check(run()).ok


@pytest.mark.parametrize(
    "bad",
    [
        run(result()),
        run(result(), result(is_error=True)),
        run(result(), result(), texts=()),
        run(result(), result(), texts=("Done.", "Prompt is too long")),
    ],
)
def test_work_that_is_not_finished_fails(bad):
    assert guarded.finished_check(run(result(), result()), 2, "Done.").ok
    assert not guarded.finished_check(bad, 2, "Done.").ok


def test_a_refused_request_fails():
    taken, refused = SimpleNamespace(status=200, tokens=5), SimpleNamespace(status=400, tokens=9)
    assert guarded.accepted_check(run(result(), requests=[taken])).ok
    check = guarded.accepted_check(run(result(), requests=[taken, refused]))
    assert not check.ok
    assert "the largest held 5" in check.words


def test_looks_are_sized_by_the_room_that_is_left():
    looking = guarded.Looking(4)
    first = looking.next(SimpleNamespace(received_tokens=20_000))
    sizes = [int(block["input"]["command"].split()[2]) for block in first.content]
    assert sum(sizes) == int(40_000 * 3.0 * 1.4 / 4)
    assert max(sizes) <= RESULT_CHARACTERS
    assert looking.next(SimpleNamespace(received_tokens=50_000)) == first
