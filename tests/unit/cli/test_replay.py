"""`mala-context replay`: formats, filters and exit status."""

import csv
import io
import json
import pathlib
import sys
import types

import pytest
from click.testing import CliRunner

from mala_context.cli.app import app
from mala_context.cli.replay import replay
from tests.helpers.recordings import OTHER, SID, Rows, dump, plain
from tests.helpers.watch_sessions import Terminal

RECORDED = str(pathlib.Path(__file__).parents[2] / "data" / "recorded")


@pytest.fixture
def folder(tmp_path):
    plain().write(tmp_path / f"{SID}.jsonl")
    sub = Rows(agent="a1")
    sub.prompt()
    sub.response("s", 7_000)
    sub.write(tmp_path / SID / "subagents" / "agent-a1.jsonl")
    rows = Rows(OTHER)
    rows.prompt()
    rows.response("o", 12_000, timestamp="2026-06-02T10:00:00.000Z")
    rows.write(tmp_path / f"{OTHER}.jsonl")
    return str(tmp_path)


def run(*arguments, status=0, **options):
    result = CliRunner().invoke(replay, [str(each) for each in arguments], **options)
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status == 0 else result.stderr


def test_json_is_one_array_with_a_session_on_each_line(folder):
    text = run(folder, "--format", "json")
    sessions = json.loads(text)
    assert [each["session_id"] for each in sessions] == [SID, OTHER]
    assert sessions[0]["subagents"] == [
        {
            "agent_id": "a1",
            "model": "claude-sonnet-4-5",
            "responses": 1,
            "tokens": 7_000,
            "accuracy": "exact",
            "peak_tokens": 7_000,
            "compactions": 0,
        }
    ]
    assert len(text.splitlines()) == 4


def test_ndjson_is_a_session_a_line(folder):
    lines = run(folder, "--format", "ndjson").splitlines()
    assert [json.loads(line)["responses"] for line in lines] == [3, 1]


def test_csv_has_plain_values_and_lists_as_json(folder):
    rows = list(csv.DictReader(io.StringIO(run(folder, "--format", "csv"))))
    assert [row["tokens"] for row in rows] == ["20900", "12000"]
    assert rows[0]["compactions"] == "1"
    assert json.loads(rows[0]["compactions_json"])[0]["row"] == 6


def test_the_table_names_sessions_and_totals(folder):
    text = run(folder)
    assert "20,900" in text
    assert "2 sessions, 5 responses" in text
    assert max(map(len, text.splitlines())) <= 80


def test_trace_prints_a_line_a_row_and_then_the_session(folder):
    lines = [json.loads(line) for line in run("--trace", f"{folder}/{SID}.jsonl").splitlines()]
    assert [line["row"] for line in lines[:-1]] == list(range(1, 9))
    assert lines[3]["tokens"] == 20_180
    assert lines[-1]["session_id"] == SID
    same = run("--trace", "--format", "json", f"{folder}/{SID}.jsonl").splitlines()
    assert [json.loads(line) for line in same] == lines


@pytest.mark.parametrize("path", [f"{SID}.jsonl", f"*{SID[-2:]}.jsonl"])
def test_a_transcript_is_read_with_its_subagents(folder, path):
    (session,) = json.loads(run(f"{folder}/{path}", "--format", "json"))
    (both, _) = json.loads(run(folder, "--format", "json"))
    assert session == both
    assert [each["agent_id"] for each in session["subagents"]] == ["a1"]
    assert json.loads(run(f"{folder}/{path}", "--totals"))["responses"] == 4
    *_, last = run("--trace", f"{folder}/{path}").splitlines()
    assert json.loads(last) == session


def test_a_subagents_own_file_is_read_alone(folder):
    (session,) = json.loads(run(f"{folder}/{SID}/subagents/agent-a1.jsonl", "--format", "json"))
    assert (session["responses"], [each["agent_id"] for each in session["subagents"]]) == (0, ["a1"])


def test_standard_input_is_read(folder):
    data = dump(plain().rows)
    (session,) = json.loads(run("-", "--format", "json", input=data))
    assert (session["path"], session["responses"]) == ("-", 3)


@pytest.mark.parametrize(("since", "count"), [("2026-05-02", 1), ("2026-04-01T00:00", 2), ("2027-01-01", 0), ("5w", 0)])
def test_since_keeps_sessions_that_went_on_later(folder, since, count):
    if since == "5w":
        count = len(json.loads(run(folder, "--format", "json", "--since", "520w"))) - 2
    assert len(json.loads(run(folder, "--format", "json", "--since", since))) == count


def test_totals_are_one_object(folder):
    found = json.loads(run(folder, "--totals"))
    assert (found["sessions"], found["responses"], found["output_tokens"]) == (2, 5, 20 + 60 + 20 + 20 + 20)


def test_a_file_takes_the_output(folder, tmp_path):
    assert run(folder, "--format", "ndjson", "-o", tmp_path / "out.ndjson") == ""
    assert len((tmp_path / "out.ndjson").read_text().splitlines()) == 2


def test_parquet_gets_the_same_flat_rows(folder, tmp_path, monkeypatch):
    written = {}
    package, module = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    package.Table = types.SimpleNamespace(from_pylist=list)
    package.parquet = module
    module.write_table = lambda rows, path: written.update({path: rows})
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
    run(folder, "--format", "parquet", "-o", tmp_path / "out.parquet")
    (rows,) = written.values()
    assert [row["session_id"] for row in rows] == [SID, OTHER]


def test_a_missing_package_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "mala-context[parquet]" in run(folder, "--format", "parquet", "-o", tmp_path / "x", status=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "--format", "csv"), "json or ndjson"),
        (("--format", "parquet"), "--output"),
        (("--since", "soon"), "is no time"),
    ],
)
def test_wrong_usage_says_what_would_be_right(folder, arguments, words):
    assert words in run(folder, *arguments, status=2)


def test_a_path_that_is_not_there_ends_with_three(tmp_path, capfd, monkeypatch):
    from mala_context.cli.app import run as run_app

    monkeypatch.setattr(sys, "argv", ["mala-context", "replay", str(tmp_path / "gone")])
    with pytest.raises(SystemExit) as ended:
        run_app()
    assert ended.value.code == 3
    assert "gone" in capfd.readouterr().err


def test_help_names_the_command():
    assert "replay" in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize(("model", "mark"), [("claude-sonnet-4-5", False), ("claude-opus-4-6", True)])
def test_a_share_of_a_guessed_window_is_marked(tmp_path, model, mark):
    rows = Rows()
    rows.prompt()
    rows.response("a", 100_000, model=model)
    text = run(rows.write(tmp_path / "a.jsonl"))
    assert ("50.0%?" in text, "a guess" in text) == (mark, mark)
    assert "50.0%" in text


def test_a_wide_terminal_says_which_session_is_which_and_a_pipe_names_no_prompt(tmp_path):
    rows = Rows()
    rows.prompt("Fix the rounding\nof prices", cwd="/home/dev/web-shop", timestamp="2026-05-01T10:00:00Z")
    rows.response("a", 20_000)
    path = rows.write(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text("")
    with Terminal(sys.executable, "-m", "mala_context.cli", "replay", str(path), columns=160) as screen:
        assert screen.ended() == 0
        assert "2026-05-01 10:00" in screen.text
        assert "web-shop Fix the rounding of prices" in screen.text
    with Terminal(sys.executable, "-m", "mala_context.cli", "replay", str(path), columns=80) as screen:
        assert screen.ended() == 0
        assert "Fix the rounding" not in screen.text
    assert "Fix the rounding" not in CliRunner().invoke(app, ["replay", str(path)]).output


def test_refused_requests_are_in_the_table(tmp_path):
    """Case people-23: 0 % to go, and the table said nothing."""
    rows = Rows()
    rows.prompt()
    rows.response("a", 180_000)
    message = {"model": "<synthetic>", "role": "assistant", "content": [{"type": "text", "text": "Prompt is too long"}]}
    rows.row("assistant", message=message, isApiErrorMessage=True)
    output = CliRunner().invoke(app, ["replay", str(rows.write(tmp_path / "a.jsonl"))]).output
    heading, row = [line for line in output.splitlines() if line.startswith(("session", rows.session_id[:8]))]
    assert row[heading.index("ref.") + 3] == "1"


def test_microcompactions_are_in_the_table_and_are_no_compactions(tmp_path):
    """Case people-22."""
    rows = Rows()
    rows.prompt()
    rows.response("a", 135_883)
    rows.row("system", subtype="microcompact_boundary", content="Context microcompacted")
    rows.prompt()
    rows.response("b", 77_063)
    path = rows.write(tmp_path / "a.jsonl")
    output = CliRunner().invoke(app, ["replay", str(path)]).output
    assert " 0+1 " in output
    assert "these are no compactions" in output
    found = json.loads(run(path, "--format", "json"))[0]
    assert (found["microcompactions"], found["compactions"], found["tokens"]) == (1, [], 77_063)
    assert [json.loads(line) for line in run(path, "--trace").splitlines()][-1]["microcompactions"] == 1


def test_the_cache_table_has_causes_and_the_dearest_rows():
    text = CliRunner().invoke(replay, [RECORDED, "--cache"]).stdout
    assert "read from the cache    14,530,511" in text
    assert "the prefix changed" in text
    assert ".jsonl.gz:98: Cache: 1,836 tokens written again (the prefix changed)" in text


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_cache_json_has_an_object_for_each_agent(form):
    text = CliRunner().invoke(replay, [RECORDED, "--cache", "--format", form]).stdout
    rows = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
    assert sum(row["responses"] for row in rows) == 116
    assert {"written_5m", "written_1h", "read", "rewritten", "cost", "causes", "rewrites"} < set(rows[0])


@pytest.mark.parametrize("more", [("--cache", "--format", "csv"), ("--cache", "-o", "x"), ("--money",)])
def test_what_does_not_go_with_cache_is_said(more):
    assert CliRunner().invoke(replay, [RECORDED, *more]).exit_code == 2


def test_nothing_to_read_for_the_cache_is_a_missing_input(tmp_path):
    (tmp_path / "a.jsonl").write_text("no row")
    assert CliRunner().invoke(app, ["replay", str(tmp_path), "--cache"]).exit_code == 3


def test_money_without_the_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    error = CliRunner().invoke(replay, [RECORDED, "--cache", "--money"]).exception
    assert "mala-context[prices]" in str(error)
