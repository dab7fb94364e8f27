"""`mala-context simulate`: two policies side by side."""

import json
import pathlib
import re

import pytest
from click.testing import CliRunner

from mala_context.cli.simulate import simulate

ROOT = pathlib.Path(__file__).parents[3]
RECORDED = str(ROOT / "tests" / "data" / "recorded")
A, B = (str(ROOT / "docs" / "policies" / f"{name}.yaml") for name in "ab")


def run(*arguments, status=0):
    result = CliRunner().invoke(simulate, [RECORDED, *arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout


def test_the_table_has_a_column_for_each_policy():
    text = run("--policy", A, "--policy", B)
    head = next(line for line in text.splitlines() if line.split() == ["a", "b"])
    assert head
    saved = next(line for line in text.splitlines() if line.startswith("tokens saved"))
    assert len(saved.split()) == 4
    assert ".jsonl.gz:" in text


def test_each_compaction_by_reference_is_a_line_with_what_it_would_have_kept(tmp_path, monkeypatch):
    policy = tmp_path / "reference.yaml"
    policy.write_text("context:\n  compaction: reference\n")
    kept = [each for row in json.loads(run("--policy", str(policy), "--json")) for each in row["by_reference"]]
    text = run("--policy", str(policy))
    assert kept
    for each in kept:
        assert f":{each['row']}: by reference, {each['tokens']:,} of {each['before']:,} tokens stay" in text
    monkeypatch.setattr("mala_context.cli.simulate._MOST_LINES", 1)
    assert re.search(r"^ *\d+ more; --json has all$", run("--policy", str(policy)), re.MULTILINE)


def test_json_has_an_object_for_each_recording_and_policy():
    rows = json.loads(run("--policy", A, "--policy", B, "--json"))
    assert len(rows) == 6
    keys = "policy session_id path responses warnings compactions_asked restarts final_turns capped compactions"
    assert list(rows[0]) == [
        *keys.split(),
        "turns_until_first",
        "prompt_tokens",
        "tokens_saved",
        "idle_compactions",
        "cost",
        "by_reference",
    ]


def test_best_ranks_policies_against_what_happened():
    found = json.loads(run("--best", "--policy", A, "--json"))
    by_name = {each["policy"]: each for each in found["policies"]}
    assert found["sessions"] == 3
    assert by_name["as recorded"]["saved"] == 0
    assert by_name["as recorded"]["cost"] == found["recorded_cost"]
    assert {"a", "compact_idle: true", "compaction: reference"} < set(by_name)
    costs = [each["cost"] for each in found["policies"]]
    assert costs == sorted(costs)
    assert found["best"] == found["policies"][0]["policy"]


def test_best_says_which_was_cheapest_in_words():
    text = run("--best")
    assert "Cheapest here: compaction: reference, " in text


def test_policies_of_one_name_go_by_their_paths(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mala.yaml").write_text("context:\n  warn_at: 0.5\n")
    paths = [str(tmp_path / folder / "mala.yaml") for folder in ("one", "two")]
    rows = json.loads(run("--policy", paths[0], "--policy", paths[1], "--json"))
    assert {row["policy"] for row in rows} == set(paths)


@pytest.mark.parametrize("arguments", [(), ("--policy",)])
def test_a_policy_is_needed(arguments):
    run(*arguments, status=2)


def test_every_outcome_is_a_row_of_plain_values_in_a_parquet_file(tmp_path, monkeypatch):
    written = {}
    monkeypatch.setattr("mala_context.cli.simulate.write_parquet", lambda rows, place: written.update({place: rows}))
    run("--policy", A, "--parquet", str(tmp_path / "s.parquet"))
    (rows,) = written.values()
    outcomes = json.loads(run("--policy", A, "--json"))
    assert len(rows) == len(outcomes)
    assert all(isinstance(value, str | int | float | None) for row in rows for value in row.values())
    assert [len(json.loads(row["capped_json"])) for row in rows] == [row["capped"] for row in rows]
    assert [row["tokens_saved"] for row in rows] == [each["tokens_saved"] for each in outcomes]
