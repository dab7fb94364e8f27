"""`mala-context map`: what it prints, of which session."""

import json
import os

import pytest
from click.testing import CliRunner

from mala_context.cli.map import map as command
from tests.helpers.recordings import SID, Rows, plain


def run(*arguments, status=0, **more):
    result = CliRunner().invoke(command, [str(each) for each in arguments], **more)
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_parts_sum_up_to_the_tokens(tmp_path):
    found = json.loads(run(plain().write(tmp_path / "a.jsonl"), "--json").stdout)
    assert found["tokens"] == 20_900 == sum(part["tokens"] for part in found["parts"])
    assert {part["group"] for part in found["parts"]} == {"start", "summary"}
    assert (found["session_id"], found["window"], found["alarms"]) == (SID, 200_000, [])


def test_the_table_names_the_size_and_each_part(tmp_path):
    text = run(plain().write(tmp_path / "a.jsonl")).stdout
    assert "Context 20,900 tokens, 10.4% of 200,000; free 179,100" in text
    assert "system prompt, tools and memory" in text
    assert "Not as projected" not in text


def test_requests_that_were_not_as_projected_are_listed(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 102_000)
    rows.prompt()
    rows.response("b", 60_000)
    path = rows.write(tmp_path / "a.jsonl")
    assert "row 4: Context: the request held 42,0" in run(path).stdout
    (alarm,) = json.loads(run(path, "--json").stdout)["alarms"]
    assert (alarm["row"], alarm["cause"], alarm["tokens"]) == (4, "unexplained", 60_000)


def test_the_smaller_parts_are_one_row(tmp_path):
    text = run(plain().write(tmp_path / "a.jsonl"), "--top", "1").stdout
    assert "1 smaller part" in text


@pytest.fixture
def projects(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "projects"


def test_a_session_by_its_first_letters_and_the_newest_without(tmp_path, projects, monkeypatch):
    old = plain().write(projects / "-w" / f"{SID}.jsonl")
    new = plain("1" + SID[1:]).write(projects / "-w" / f"1{SID[1:]}.jsonl")
    os.utime(old, (1, 1))
    monkeypatch.chdir(tmp_path)
    assert f"Session {SID}" in run(SID[:6]).stdout
    assert json.loads(run("--json").stdout)["path"] == new


def test_one_session_is_shown(tmp_path, projects):
    plain().write(projects / "-w" / f"{SID}.jsonl")
    assert "name no SESSION" in run(SID, "--project", tmp_path, status=2).stderr
    assert run("nobody", status=1).exception.args[0].startswith("no session nobody")
    plain().write(tmp_path / "two" / "a.jsonl")
    plain().write(tmp_path / "two" / "b.jsonl")
    assert "name one transcript" in str(run(tmp_path / "two", status=1).exception)


def test_a_transcript_without_a_response_is_said(tmp_path):
    rows = Rows()
    rows.prompt()
    assert "no response in" in str(run(rows.write(tmp_path / "a.jsonl"), status=1).exception)


def test_a_subagents_own_transcript(tmp_path):
    rows = Rows(agent="a7")
    rows.prompt(parent=None)
    rows.response("x", 9_000)
    found = json.loads(run(rows.write(tmp_path / "agent-a7.jsonl"), "--json").stdout)
    assert (found["agent_id"], found["tokens"]) == ("a7", 9_000)
