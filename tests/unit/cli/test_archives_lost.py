"""`mala-context archives lost`."""

import json

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app

SID = "5a2b7c9e-0000-4000-8000-000000000001"


def said(words):
    return json.dumps({"type": "user", "uuid": words, "message": {"content": words}}) + "\n"


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    archive = TranscriptArchive(tmp_path / "archives")
    path = tmp_path / f"{SID}.jsonl"

    def compact(words, how="compacted", **outcome):
        with path.open("a") as file:
            file.write(said(words))
        archive.archive(str(path), SID, trigger="auto", agent="main")
        archive.record_outcome(SID, how, **{"trigger": "auto", **outcome})

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, ["archives", "lost", SID[:8], "--dir", str(tmp_path / "archives"), *arguments])
        assert result.exit_code == status, (result.output, result.exception)
        return result.stdout

    return archive, compact, run


def test_what_was_measured_then_and_what_is_measured_now(world):
    _, compact, run = world
    entry = {"total": 3, "named": 1, "missing": ["/p/a.py", "/p/\x1b[31mb.py"]}
    compact("never touch the lexer", tokens_before=183_021, tokens_after=24_310, lost={"read": entry})
    compact("always test the parser", summary="nothing of it")
    compact("third instruction stands here")
    first, *rest = run().split("\n2. ")
    assert "183,021 → 24,310 tokens (trigger=auto); summary names 1 of 3 files, 0 of 0 instructions" in first
    assert "   Files read:\n   - /p/a.py\n   - /p/\\x1b[31mb.py" in first
    second, third = rest[0].split("\n3. ")
    assert "unknown → unknown tokens (trigger=auto); summary names 0 of 0 files, 0 of 1 instructions" in second
    assert "   Instructions of the user:\n   - always test the parser" in second
    assert third.strip().endswith("what it lost is not known")


def test_json(world):
    _, compact, run = world
    compact("never touch the lexer", summary="x", tokens_before=5)
    found = json.loads(run("--json"))
    assert found["session"] == SID
    (each,) = found["compactions"]
    assert each["tokens_before"] == 5
    assert each["lost"]["instruction"] == {"total": 1, "named": 0, "missing": ["never touch the lexer"]}


def test_failed_ones_are_not_shown(world):
    archive, _, run = world
    archive.record_outcome(SID, "failed", trigger="auto")
    assert run() == f"{SID}: no compaction is archived\n"
    assert json.loads(run("--json"))["compactions"] == []


def test_a_subagents_is_shown_as_its_own(world):
    _, compact, run = world
    compact(
        "never touch the lexer", agent="a1", summary="x", lost={"read": {"total": 1, "named": 0, "missing": ["/a"]}}
    )
    compact("always test the parser", agent="a2", summary="x")
    first, second = run().split("\n2. ")
    assert "(trigger=auto, subagent a1); summary names 0 of 1 files" in first
    assert "(trigger=auto, subagent a2); what it lost is not known" in second
    assert [each["agent"] for each in json.loads(run("--json"))["compactions"]] == ["a1", "a2"]


def test_a_session_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    assert CliRunner().invoke(app, ["archives", "lost", "absent", "--dir", str(tmp_path)]).exit_code == 3


def test_odd_rows(world):
    _, compact, run = world
    compact("never touch the lexer", lost={"read": {"total": "3", "named": None, "missing": "x"}, "todo": 3})
    assert "summary names 0 of 3 files" in run()


def test_one_by_reference_says_so(world):
    _, compact, run = world
    compact("never touch the lexer", summary="x")
    lost = {"instruction": {"total": 1, "named": 1, "missing": []}}
    compact("always test the parser", "by_reference", trigger="manual", lost=lost, kept={"calls": 3})
    assert "(trigger=manual, by reference); kept text names 0 of 0 files, 1 of 1 instructions" in run()
    assert [each["outcome"] for each in json.loads(run("--json"))["compactions"]] == ["compacted", "by_reference"]
