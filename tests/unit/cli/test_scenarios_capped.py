"""The scenarios `big-tool` and `lost`, played on the real CLI; and that their checks can fail."""

import os

import pytest

from mala_context.agent import wiring
from mala_context.cli.scenarios import big_tool, lost
from mala_context.cli.scenarios.report import Stage


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.delenv("MALA_RUNS_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = tmp_path / "stage"
    place.mkdir(mode=0o700)
    return Stage(str(place), turns=3)


def failed(report):
    return {check.name for check in report.checks if not check.ok}


async def test_big_tool(stage, tmp_path):
    report = await big_tool.play(stage)
    assert report.ok, failed(report)
    assert report.data["without"]["terminal_reason"] == "prompt_too_long"
    assert report.data["with_guard"]["refused"] == 0
    assert report.data["full_text"]["path"].startswith(stage.directory)
    assert "MALA_RUNS_DIR" not in os.environ
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stage"]


@pytest.mark.long
async def test_big_tool_without_a_cap_is_seen(stage, monkeypatch):
    monkeypatch.setattr(wiring, "_tool_cap", lambda *_: None)
    monkeypatch.setenv("MALA_RUNS_DIR", "/given")
    report = await big_tool.play(stage)
    assert failed(report) == {"finishes_with", "nothing_refused", "cut", "kept", "private", "read_back"}
    assert os.environ["MALA_RUNS_DIR"] == "/given"


async def test_lost(stage, tmp_path):
    report = await lost.play(stage)
    assert report.ok, failed(report)
    assert report.data["line"].endswith(lost.EXPECTED)
    assert report.data["next_request_tokens"]["with"] > report.data["next_request_tokens"]["without"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stage"]


@pytest.mark.long
async def test_lost_without_a_pin_is_seen(stage, monkeypatch):
    monkeypatch.setattr(wiring, "_pin", lambda *_: None)
    assert failed(await lost.play(stage)) == {"put_back"}


@pytest.mark.long
async def test_lost_with_a_better_summary_is_seen(stage, monkeypatch):
    monkeypatch.setattr(lost, "SUMMARY", f"{lost.INSTRUCTION} parser.py, lexer.py, tables.py; {lost.COMMAND} fails.")
    assert failed(await lost.play(stage)) >= {"counted", "found", "put_back"}
