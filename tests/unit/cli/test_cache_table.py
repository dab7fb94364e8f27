"""What `mala-context replay --cache` prints."""

import json
import pathlib
import sys

import pytest
from click.testing import CliRunner

from mala_context.cli.app import app
from mala_context.cli.replay import replay

RECORDED = str(pathlib.Path(__file__).parents[2] / "data" / "recorded")


def test_the_table_has_causes_and_the_dearest_rows():
    text = CliRunner().invoke(replay, [RECORDED, "--cache"]).stdout
    assert "read from the cache    14,530,511" in text
    assert "the prefix changed" in text
    assert ".jsonl.gz:98: Cache: 1,836 tokens written again (the prefix changed)" in text


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_json_has_an_object_for_each_agent(form):
    text = CliRunner().invoke(replay, [RECORDED, "--cache", "--format", form]).stdout
    rows = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
    assert sum(row["responses"] for row in rows) == 116
    assert {"written_5m", "written_1h", "read", "rewritten", "cost", "causes", "rewrites"} < set(rows[0])


@pytest.mark.parametrize("more", [("--cache", "--format", "csv"), ("--cache", "-o", "x"), ("--money",)])
def test_what_does_not_go_together_is_said(more):
    assert CliRunner().invoke(replay, [RECORDED, *more]).exit_code == 2


def test_nothing_to_read_is_a_missing_input(tmp_path):
    (tmp_path / "a.jsonl").write_text("no row")
    assert CliRunner().invoke(app, ["replay", str(tmp_path), "--cache"]).exit_code == 3


def test_money_without_the_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    error = CliRunner().invoke(replay, [RECORDED, "--cache", "--money"]).exception
    assert "mala-context[prices]" in str(error)
