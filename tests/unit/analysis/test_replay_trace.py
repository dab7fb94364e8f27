"""Line by line, on rows that real transcripts have."""

import json
import pathlib

import pytest

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.trace import trace
from tests.helpers.recordings import Rows

CORE = pathlib.Path(__file__).parents[2] / "data" / "core"
CASES = json.loads((CORE / "expected.json").read_text())["cases"]


def run(path):
    records = []
    stretches = trace(Recording(str(path), (str(path),), 0), records.append)
    return records, stretches


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["rows"])
def test_each_case_holds_after_each_row(case):
    records, stretches = run(CORE / case["rows"])
    main = {record["row"]: record for record in records if record["agent_id"] is None}
    for row, wanted in case["after"].items():
        found = main[int(row)]
        for name in ("tokens", "output_tokens"):
            if name in wanted:
                assert found[name] == wanted[name], (row, name)
    last = stretches[-1].main
    assert last.responses == case["responses"]
    compactions = [compaction.as_dict() for compaction in stretches[-1].compactions]
    for found, wanted in zip(compactions, case["compactions"], strict=True):
        assert {name: found[name] for name in wanted} == wanted
    assert stretches[-1].resets == len(case["resets"])
    windows = [wanted["window"] for wanted in case["after"].values() if "window" in wanted]
    assert not windows or last.window == windows[-1]


def test_a_sidechain_in_the_main_file_has_a_record_of_its_own_before_the_main_agents():
    records, _ = run(CORE / "warmup-sidechain.jsonl")
    fourth = [record for record in records if record["row"] == 4]
    assert [(record["agent_id"] is None, record["tokens"]) for record in fourth] == [(False, 622), (True, None)]


def test_a_subagents_own_file_has_one_record_a_line(tmp_path):
    rows = Rows(agent="a1")
    rows.prompt()
    rows.response("m1", 5_000)
    rows.prompt("more")
    records, _ = run(rows.write(tmp_path / "agent-a1.jsonl"))
    assert [(record["row"], record["agent_id"]) for record in records] == [(1, "a1"), (2, "a1"), (3, "a1")]
    assert [record["tokens"] for record in records] == [None, 5_000, 5_000]


def test_records_have_the_documented_keys_and_grow_with_what_is_appended(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("m1", 20_000)
    rows.prompt("word " * 600)
    records, _ = run(rows.write(tmp_path / "a.jsonl"))
    assert list(records[0]) == ["row", "tokens", "projected", "output_tokens", "exact", "agent_id"]
    assert records[0]["projected"] is None
    assert records[2]["projected"] > records[1]["projected"] + 500
    assert records[2]["exact"]
