"""`mala-context archives search`."""

import json

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    archive = TranscriptArchive(tmp_path / "archives")
    for session, words in (("one", ["the needle", "hay"]), ("two", ["needle \x1b[31m needle needle", "hay hay"])):
        path = tmp_path / f"{session}.jsonl"
        rows = [{"type": "user", "uuid": w, "timestamp": "2026-01-01", "message": {"content": w}} for w in words]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        archive.archive(str(path), session)

    def call(*arguments, status=0):
        result = CliRunner().invoke(app, ["archives", "search", *arguments, "--dir", str(tmp_path / "archives")])
        assert result.exit_code == status, (result.output, result.exception)
        return result.stdout

    return call


def test_all_sessions_the_best_place_first(run):
    output = run("needle")
    assert output.index("two  2026-01-01  user") < output.index("one  2026-01-01  user")
    assert "    the needle\n" in output
    assert "\x1b" not in output
    assert "needle \\x1b[31m needle" in output


def test_one_session_by_its_first_letters(run):
    assert "two" not in run("needle", "--session", "on")
    run("needle", "--session", "absent", status=3)


def test_limit_json_and_nothing(run):
    assert run("needle", "--limit", "1").count("2026-01-01") == 1
    found = json.loads(run("the", "needle", "--json"))
    assert [(hit["session_id"], hit["text"], hit["role"]) for hit in found] == [("one", "the needle", "user")]
    assert run("the needle").count("2026-01-01") == 1
    assert run("needle the") == "nothing found\n"
    assert run("needle", "the").count("2026-01-01") == 1
    assert run("absent") == "nothing found\n"
    assert run('"', "*") == "nothing found\n"
    run("needle", "--limit", "0", status=2)
