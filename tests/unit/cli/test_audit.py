"""`mala-context audit`: what it prints."""

import json

import pytest
from click.testing import CliRunner

from mala_context.cli.audit import audit
from tests.helpers.recordings import dump, plain


@pytest.fixture
def path(tmp_path):
    return plain().write(tmp_path / "a.jsonl")


def run(*arguments):
    result = CliRunner().invoke(audit, [str(each) for each in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_json_has_fractions(path):
    report = json.loads(run(path, "--json"))
    assert report["truths"]["pre_tokens"]["estimators"]["cli_estimate"]["median"] == 0
    assert report["truths"]["pre_tokens"]["n"] == 1


def test_tables_name_truths_and_worst_cases_in_percent(path):
    text = run(path)
    assert "preTokens" in text
    assert "parent in file" in text
    assert f"{path}:6: +0.00% of 21,240" in text
    assert "/context" not in text


@pytest.mark.parametrize(
    ("key", "words"),
    [("model", "claude-sonnet-4-5"), ("version", "2.1.222"), ("cli", "2.1.90 and later"), ("parent", "present")],
)
def test_figures_by_a_key(path, key, words):
    assert words in run(path, "--by", key)


def test_no_worst_cases_where_none_are_wanted(path):
    assert "Worst" not in run(path, "--worst", "0")


def test_problems_are_listed_with_file_and_row(tmp_path):
    plain().write(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"bad\n")
    assert f"{tmp_path / 'b.jsonl'}:1: no whole JSON object" in run(tmp_path)


def test_the_table_of_characters_is_fitted_and_held_against_other_sessions(tmp_path):
    for number in range(8):
        rows = plain()
        rows.rows[0]["message"]["content"] = f"prompt {number}"
        (tmp_path / f"{number}.jsonl").write_bytes(dump([{**row, "sessionId": f"s{number}"} for row in rows.rows]))
    assert "held_out" in json.loads(run(tmp_path, "--json", "--held-out"))
    assert "Held out: " in run(tmp_path, "--held-out")


def test_the_spread_is_drawn_into_a_file(path, tmp_path):
    run(path, "--plot", tmp_path / "errors.svg")
    assert (tmp_path / "errors.svg").read_text().startswith("<svg")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.jsonl", "errors.svg"]


def test_every_truth_is_a_row_of_a_parquet_file(path, tmp_path, monkeypatch):
    written = {}
    monkeypatch.setattr("mala_context.cli.audit.write_parquet", lambda rows, place: written.update({place: rows}))
    run(path, "--parquet", tmp_path / "a.parquet")
    (rows,) = written.values()
    truths = {row["truth"]: (row["true_tokens"], row["tokens"]) for row in rows}
    assert truths["pre_tokens"] == (21_240, 20_180)  # what the CLI recorded, and what the API had counted
    assert {"next_prompt", "after_compaction"} <= truths.keys()
    assert {"projected", "cli_estimate", "file", "row"} <= rows[0].keys()


def test_as_live_is_said_in_the_json(path):
    assert json.loads(run(path, "--json", "--as-live"))["as_live"] is True
    assert json.loads(run(path, "--json"))["as_live"] is False


def test_boundaries_that_measure_nothing_have_a_line_of_their_own(tmp_path):
    rows = plain()
    rows.rows[5]["compactMetadata"]["preTokens"] = 190_400
    assert "no measure" in run(rows.write(tmp_path / "b.jsonl"))
