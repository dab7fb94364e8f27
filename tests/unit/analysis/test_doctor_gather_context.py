"""What fills the contexts of a machine's newest sessions, as the doctor gathers it."""

import os

import pytest

from mala_context.analysis.doctor.checks.settings import context
from mala_context.analysis.doctor.gather.transcripts import WITH_MAPS, NewestTranscripts, maps
from tests.helpers.recordings import Rows

TOOLS = [
    {"name": "mcp__wiki__find", "schema": {"description": "d " * 9_000}},
    {"name": "mcp__files__list", "schema": {"description": "d " * 9_000}},
    {"name": "Bash", "schema": {"description": "d " * 3_000}},
]


def transcript(path, called):
    rows = Rows()
    rows.prompt()
    rows.row(
        "attachment",
        attachment={"type": "instructions", "files": [{"path": "/w/CLAUDE.md", "content": "word " * 30_000}]},
    )
    rows.response("a", 90_000)
    rows.rows[-1]["message"]["content"].append({"type": "tool_use", "id": "t1", "name": called, "input": {}})
    rows.row("attachment", attachment={"type": "prompt_snapshot", "systemPrompt": ["p " * 3_000], "tools": TOOLS})
    rows.response("b", 90_060)
    return rows.write(path)


def newest(*paths):
    return NewestTranscripts({path: os.path.getsize(path) for path in paths}, len(paths))


def test_a_large_memory_file_and_a_server_that_no_agent_calls(tmp_path):
    one, two = transcript(tmp_path / "a.jsonl", "Bash"), transcript(tmp_path / "b.jsonl", "mcp__wiki__find")
    found = maps(newest(one, two))
    assert found.sessions == 2
    assert found.memory["/w/CLAUDE.md"] == pytest.approx(0.25, abs=0.02)
    assert set(found.idle_servers) == {"files"}
    *findings, words = context(found)
    assert [each.where for each in findings] == ["/w/CLAUDE.md", "files"]
    assert words == "memory files and MCP servers of 2 sessions"


def test_few_transcripts_are_read_and_none_must_be_whole(tmp_path):
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(b"{broken\n")
    many = [transcript(tmp_path / f"{number}.jsonl", "Bash") for number in range(WITH_MAPS)]
    assert maps(newest(str(odd), *many)).sessions == WITH_MAPS - 1
    assert maps(newest()) == maps(newest(str(odd)))
