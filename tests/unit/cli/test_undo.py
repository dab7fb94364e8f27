"""The scenario `undo`: on the real CLI as a user runs it, and its checks by themselves."""

import json
import os
import subprocess
import sys

import pytest

from mala_context.archive.restore import RestoreResult
from mala_context.cli.scenarios import undo
from mala_context.cli.scenarios.undo import HeldConversation, OldConversation
from mala_context.testing.api import ANOTHER_ACCOUNT

UNDO = (sys.executable, "-W", "error", "-m", "mala_context.cli", "demo", "--scenario", "undo")


@pytest.fixture
def env(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name not in {*ANOTHER_ACCOUNT, "ANTHROPIC_API_KEY"}}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return {**kept, "TMPDIR": os.fspath(temporary), "MALA_RUNS_DIR": os.fspath(tmp_path / "runs")}


def play(env, *args):
    return subprocess.run([*UNDO, *args], env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.long
def test_for_machines(env):
    done = play(env, "--json", "--turns", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] is True
    assert 0 < result["seconds"] < 90  # on a busy machine
    assert result["compactions"] == 1
    before, after, *restored = result["requests"]
    assert (before["prompts"], before["tool_results"]) == (3, 3)
    assert after["prompts"] == 0
    for each in restored:
        assert (each["prompts"], each["answers"], each["tool_results"], each["of"]) == (3, 3, 3, 3)
        assert each["tracked_tokens"] == each["received_tokens"] > before["received_tokens"] > after["received_tokens"]
        assert each["from_after_the_compaction"] is False
    ids = [result["session_id"], *(each["session_id"] for each in result["restored"])]
    assert [each["session_id"] for each in result["requests"]] == [ids[0], *ids]
    assert len(set(ids)) == 3
    there, deleted = result["restored"]
    assert (there["transcript"], there["through"], there["read_from"]) == ("there", "fork_session", "transcript")
    assert (deleted["transcript"], deleted["through"], deleted["read_from"]) == ("deleted", "archive", "archive")
    assert there["rows"] == deleted["rows"]
    assert os.listdir(env["TMPDIR"]) == []
    assert not os.path.exists(env["MALA_RUNS_DIR"])


@pytest.mark.long
def test_for_people(env):
    done = play(env, "--turns", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by the server's log" in done.stdout
    assert done.stdout.count("1 of 1   1 of 1   1 of 1\n") == 2
    assert "\nrestored, transcript deleted " in done.stdout
    assert "All 9 checks passed" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if not line.startswith("✓ "))


def test_estimators_belong_to_another_scenario(env):
    done = play(env, "--estimators")
    assert done.returncode == 2
    assert "--estimators works with the scenario compaction" in done.stderr


class TestChecks:
    @staticmethod
    def held(prompts=2, answers=2, results=2, *, received=200, tracked=200, later=False):
        return HeldConversation(
            "", "s", tracked, received, prompts, answers, results, of=2, from_after_the_compaction=later
        )

    def test_the_compaction_must_have_dropped_it(self):
        gone = self.held(0, 1, 0, received=50)
        assert undo.dropped_check(self.held(), gone, 1).ok
        assert not undo.dropped_check(self.held(), gone, 0).ok
        assert not undo.dropped_check(self.held(), gone, 2).ok
        assert not undo.dropped_check(self.held(1), gone, 1).ok
        assert not undo.dropped_check(self.held(), self.held(1, 1, 0, received=50), 1).ok
        assert not undo.dropped_check(self.held(), self.held(0, 1, 2, received=50), 1).ok
        assert not undo.dropped_check(self.held(), self.held(0, 0, 0, received=200), 1).ok

    def test_all_of_it_must_be_back_and_nothing_later(self):
        assert undo.back_check("there", self.held(received=190), self.held()).ok
        for less in (self.held(1), self.held(2, 1), self.held(2, 2, 1), self.held(later=True)):
            assert not undo.back_check("there", self.held(received=190), less).ok
        assert not undo.back_check("there", self.held(received=200), self.held()).ok

    def test_the_right_way_under_the_id_that_was_given(self):
        def result(through, session_id="new", missing=()):
            return RestoreResult(
                session_id=session_id,
                source="old",
                path="",
                cwd=None,
                rows=1,
                compaction=None,
                compactions=1,
                through=through,
                read_from="",
                missing=missing,
            )

        assert undo.way_check("there", result("fork_session"), "new").ok
        assert undo.way_check("deleted", result("archive"), "new").ok
        assert not undo.way_check("there", result("archive"), "new").ok
        assert not undo.way_check("deleted", result("fork_session"), "new").ok
        assert not undo.way_check("there", result("fork_session"), "another").ok
        assert not undo.way_check("there", result("fork_session", "old"), "old").ok
        assert not undo.way_check("there", result("fork_session", missing=("file",)), "new").ok

    def test_the_gauge(self):
        assert undo.gauge_check([self.held()]).ok
        assert not undo.gauge_check([self.held(), self.held(tracked=199)]).ok
        assert not undo.gauge_check([self.held(tracked=None)]).ok
        assert not undo.gauge_check([])[1]


def test_the_words_that_are_looked_for_are_said_only_where_they_belong(tmp_path):
    conversation = OldConversation.of(os.fspath(tmp_path), 60)
    said = [*conversation.prompts, *conversation.answers, *conversation.results]
    assert len(set(said)) == 180
    assert not [(a, b) for a in said for b in said if a != b and a in b]
    logs = [path.read_text() for path in tmp_path.iterdir()]
    assert len(logs) == 60
    assert all(len(log) < 30_000 for log in logs)
