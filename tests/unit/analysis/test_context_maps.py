"""What a recording tells of its map: its last session's parts, its alarms, the MCP servers that were called."""

from mala_context.analysis.context_maps import MapReader
from mala_context.analysis.replay.files import Recording
from tests.helpers.recordings import Rows


def read(path):
    return MapReader(Recording(path, (path,), 1)).read()


def test_servers_that_were_called(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    call = {"type": "tool_use", "id": "t1", "name": "mcp__wiki__find", "input": {}}
    rows.rows[-1]["message"]["content"].append(call)
    rows.prompt([{"type": "tool_result", "tool_use_id": "t1", "content": "found " * 500}])
    rows.response("b", 21_020)
    found = read(rows.write(tmp_path / "a.jsonl"))
    assert found.servers_called == {"wiki"}
    assert ("results", "mcp__wiki__find") in {(part.group, part.name) for part in found.snapshot.parts}


def test_an_alarm_has_its_row_and_time(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 102_000)
    rows.row("system", subtype="microcompact_boundary")
    rows.response("b", 60_000)
    rows.rows[-1]["timestamp"] = None
    found = read(rows.write(tmp_path / "a.jsonl"))
    (alarm,) = found.as_dict()["alarms"]
    assert (alarm["row"], alarm["cause"], alarm["time"]) == (4, "microcompaction", rows.rows[-2]["timestamp"])


def test_what_cannot_be_read_is_a_problem(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{broken\n")
    found = read(str(path))
    assert found.snapshot.tokens is None
    assert found.as_dict()["problems"]
