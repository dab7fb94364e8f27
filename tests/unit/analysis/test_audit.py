"""Estimates against what recordings know to be true."""

from mala_context.analysis.audit import as_streamed, audit, collect
from mala_context.analysis.error_stats import summarise
from mala_context.analysis.ground_truth import NAMES
from tests.benchmarks import corpus
from tests.helpers.recordings import OTHER, Rows, dump, plain


def by_truth(findings, truth):
    return [each for each in findings.observations if each.truth == truth]


def said(observation):
    return dict(zip(NAMES, observation.estimates, strict=True))


def test_a_boundary_is_held_against_what_was_known_before_it(tmp_path):
    found = collect([plain().write(tmp_path / "a.jsonl")])
    (one,) = by_truth(found, "pre_tokens")
    assert (one.tokens, one.row, one.model, one.version) == (21_240, 6, "claude-sonnet-4-5", "2.1.222")
    assert one.parent_missing is False
    assert said(one)["tokens"] == 20_180
    assert said(one)["cli_estimate"] == 21_240
    assert said(one)["cumulative"] == 6 + 80
    assert said(one)["max_cache_read"] == 20_177 + 6 + 80
    assert said(one)["total_tokens"] == 20_240


def test_each_next_request_is_held_against_what_was_projected(tmp_path):
    found = collect([plain().write(tmp_path / "a.jsonl")])
    (one,) = by_truth(found, "next_prompt")
    assert (one.tokens, one.row) == (20_180, 4)
    assert said(one)["tokens"] == 20_000
    assert said(one)["characters"] == -(-(len("hello there") + len("an answer") + 400) // 4)
    assert 20_050 < said(one)["projected"] < 20_250


def test_the_first_request_after_a_compaction_is_no_growth_but_a_truth_of_its_own(tmp_path):
    rows = plain().rows
    rows.insert(0, dict(rows[0], type="attachment", uuid="r", parentUuid=None, attachment={"type": "x"}))
    rows[1]["parentUuid"] = "r"
    path = tmp_path / "a.jsonl"
    path.write_bytes(dump(rows))
    (one,) = by_truth(collect([str(path)]), "after_compaction")
    assert one.tokens == 20_900
    assert 20_000 < said(one)["projected"] < 22_000


def test_a_drop_is_left_out_and_counted(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 50_000)
    rows.prompt()
    rows.response("b", 40_000)
    found = collect([rows.write(tmp_path / "a.jsonl")])
    assert (by_truth(found, "next_prompt"), found.left_out) == ([], 1)


def context_command(rows, words="27k/200k tokens (14%)"):
    content = f"<local-command-stdout>## Context Usage\n**Tokens:** {words}"
    rows.row("system", subtype="local_command", content=content)


def test_the_context_command_is_held_against_tokens(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 27_020)
    context_command(rows)
    (one,) = by_truth(collect([rows.write(tmp_path / "a.jsonl")]), "context_command")
    assert (one.tokens, said(one)["tokens"]) == (27_000, 27_020)


def test_truths_before_which_nothing_was_known_are_problems(tmp_path):
    rows = Rows()
    rows.prompt()
    context_command(rows)
    rows.boundary(100_000)
    rows.summary()
    found = collect([rows.write(tmp_path / "a.jsonl")])
    assert found.observations == []
    assert [each.row for each in found.problems] == [2, 3]


def test_copies_of_a_truth_count_once_in_any_order(tmp_path):
    one = plain().write(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "a.jsonl").read_bytes())
    other = plain(OTHER).write(tmp_path / "c.jsonl")
    found = collect([other, str(tmp_path / "b.jsonl"), one])
    assert len(by_truth(found, "pre_tokens")) == 2
    assert found == collect([str(tmp_path)])


def test_any_number_of_jobs_gives_the_same_report(tmp_path):
    corpus.write(str(tmp_path), 2, seed=3)
    one = audit([str(tmp_path)], jobs=1)
    assert one["truths"]["next_prompt"]["n"] > 50
    assert one == audit([str(tmp_path)], jobs=2)


def test_the_report_has_the_documented_keys(tmp_path):
    report = summarise(collect([plain().write(tmp_path / "a.jsonl")]), worst=1)
    assert list(report) == ["truths", "by_model", "by_version", "by_cli", "by_parent", "worst", "problems"]
    assert list(report["truths"]) == ["pre_tokens", "context_command", "next_prompt", "after_compaction"]
    table = report["truths"]["pre_tokens"]
    assert list(table["estimators"]) == list(NAMES)
    assert list(table["estimators"]["projected"]) == ["n", "median", "p90", "p99", "max", "bias"]
    assert table["parent_there"]["n"] == 1
    assert report["truths"]["context_command"]["estimators"]["tokens"]["median"] is None
    (worst,) = report["worst"]["next_prompt"]
    assert (worst["row"], worst["truth"]) == (4, 20_180)
    assert list(report["by_model"]["pre_tokens"]) == ["claude-sonnet-4-5"]
    assert list(report["by_version"]["pre_tokens"]) == ["2.1.222"]


def test_as_live_hides_what_a_stream_does_not_show(tmp_path):
    rows = Rows()
    rows.prompt()
    row = rows.response("a", 30_000, output=6_060, model="claude-opus-5")
    row["message"]["content"] = [
        {"type": "thinking", "thinking": "long thoughts", "signature": "s" * 20_000},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "make"}},
    ]
    row["message"]["usage"]["iterations"] = [{"type": "message", **row["message"]["usage"]}]
    rows.row("user", message={"content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]})
    rows.response("b", 36_080, model="claude-opus-5")
    path = rows.write(tmp_path / "a.jsonl")
    shown = [by_truth(collect([path], as_live=as_live), "next_prompt") for as_live in (False, True)]
    (replayed,), (live,) = shown
    assert said(replayed)["projected"] == 30_000 + 6_060 + 9
    assert said(live)["total_tokens"] == 30_001
    assert abs(said(live)["projected"] - live.tokens) < 0.02 * live.tokens
    assert audit([path], as_live=True)["truths"]["next_prompt"]["n"] == 1


def test_rows_of_any_shape_are_shown_as_a_stream_does():
    for row in ({}, {"type": "assistant"}, {"type": "assistant", "message": {"usage": 3, "content": "text"}}):
        streamed = as_streamed(row)
        assert streamed.get("type") == row.get("type")
    assert as_streamed({"type": "user", "message": {}}) == {"type": "user", "message": {}}
