"""What a report reads from recordings: lines, compactions, marks, contributors, subagents, archives."""

import gzip
import io
import json
import pathlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.analysis.replay import replay
from mala_context.analysis.report import ReportOptions, build_report, gather, observe_transcript, sections, svg_chart
from mala_context.analysis.report.gather import MOST_SUBAGENTS
from mala_context.analysis.report.model import ContextReport, Points
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import RecordingNotFoundError
from tests.helpers.recordings import OTHER, SID, Rows, dump, plain

DATA = pathlib.Path(__file__).parents[2] / "data"


def tool(rows, identity, tokens, name, given, result):
    """A response that calls a tool, and the tool's result."""
    row = rows.response(identity, tokens)
    row["message"]["content"] = [{"type": "tool_use", "id": f"call-{identity}", "name": name, "input": given}]
    content = [{"type": "tool_result", "tool_use_id": f"call-{identity}", "content": result}]
    rows.row("user", message={"role": "user", "content": content}, toolUseResult={"stdout": result})


def one(path, **looking):
    (session,) = build_report([str(path)], ReportOptions(**looking)).sessions
    return session


@pytest.fixture
def session(tmp_path):
    """A session that reads two files, is compacted with a summary that names one of them, and goes on."""
    rows = Rows()
    rows.prompt("Keep vendor.lock as it is.")
    tool(rows, "a", 20_000, "Read", {"file_path": "/p/small.py"}, "short " * 50)
    tool(rows, "b", 20_200, "Read", {"file_path": "/p/large.py"}, "long words " * 4_000)
    tool(rows, "c", 45_000, "Bash", {"command": "make"}, "done")
    rows.response("d", 45_100)
    rows.boundary(45_600, 900)
    rows.summary()["message"]["content"] = "We read /p/large.py."
    rows.response("e", 21_000)
    return one(rows.write(tmp_path / f"{SID}.jsonl"), big_result=5_000)


def test_the_line_has_a_point_a_response_and_two_a_compaction(session):
    points = session.points
    assert points.x == [1, 2, 3, 4, 4.5, 4.5, 5]
    assert [t for t, exact in zip(points.tokens, points.exact, strict=True) if exact] == [
        20_000,
        20_200,
        45_000,
        45_100,
        21_000,
    ]
    assert points.tokens[4] > 45_100 > points.tokens[5]
    assert (session.peak_tokens, session.responses, session.window) == (45_100, 5, 200_000)


def test_a_compaction_says_what_it_replaced_and_what_its_summary_leaves_out(session):
    (entry,) = session.compactions
    assert (entry.after, entry.after_exact, entry.trigger, entry.cli_before) == (21_000, True, "auto", 45_600)
    assert (entry.discarded.responses, entry.discarded.prompts, entry.discarded.results) == (4, 1, 3)
    assert entry.discarded.largest[0].name == "Read"
    assert entry.lost["read"] == {"total": 2, "named": 1, "missing": ["/p/small.py"]}
    assert entry.lost["instruction"]["missing"] == ["Keep vendor.lock as it is."]
    assert session.missing == 2


def test_contributors_are_ordered_and_their_shares_are_of_everything(session):
    names = [each.name for each in session.contributors]
    assert {"Read", "Bash", "prompts", "answers of the model"} <= set(names)
    assert sum(each.share for each in session.contributors) == pytest.approx(1)
    sizes = [each.tokens for each in session.contributors]
    assert sizes == sorted(sizes, reverse=True)
    assert [(each.name, each.count) for each in session.files] == [("/p/large.py", 1), ("/p/small.py", 1)]
    assert sum(each.tokens for each in session.files) == next(
        e.tokens for e in session.contributors if e.name == "Read"
    )


def test_a_big_result_is_marked_with_its_file(session):
    (mark,) = [mark for mark in session.marks if mark.kind == "big_result"]
    assert (mark.words, mark.x, mark.tokens) == ("Read /p/large.py", 2, 20_200)
    assert 5_000 <= mark.size <= 40_000


def warned(tmp_path, sizes, **looking):
    rows = Rows()
    rows.prompt()
    for number, size in enumerate(sizes):
        rows.response(f"r{number}", size)
    found = one(rows.write(tmp_path / f"{SID}.jsonl"), **looking)
    return [mark.x for mark in found.marks if mark.kind == "warning"]


def test_a_warning_stands_where_the_share_is_reached_and_again_after_a_drop(tmp_path):
    sizes = [100_000, 139_000, 140_000, 160_000, 20_000, 150_000]
    assert warned(tmp_path, sizes) == [3, 6]
    assert warned(tmp_path, sizes, warn_at=0.8) == [4]
    assert warned(tmp_path, sizes, warn_at=None) == []
    assert warned(tmp_path, sizes, window=1_000_000) == []


@pytest.mark.parametrize(("model", "mark"), [("claude-sonnet-4-5", ""), ("claude-opus-4-6", "?")])
def test_a_warning_says_that_its_window_is_a_guess(tmp_path, model, mark):
    rows = Rows()
    rows.prompt()
    rows.response("a", 150_000, model=model)
    (warning,) = [mark for mark in one(rows.write(tmp_path / "a.jsonl")).marks if mark.kind == "warning"]
    assert warning.words == f"75.0%{mark} of the window"


def test_the_threshold_is_where_it_would_be_unless_it_is_known_to_act(tmp_path):
    path = plain().write(tmp_path / f"{SID}.jsonl")
    assert (one(path).threshold, one(path).threshold_acts) == (167_000, False)
    known = one(path, auto_compact_window=150_000)
    assert (known.threshold, known.threshold_acts) == (117_000, True)


def test_a_fresh_conversation_in_the_file_breaks_the_line(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 50_000)
    rows.row("progress", None, data={"type": "hook_progress", "hookName": "SessionStart:clear"})
    rows.prompt()
    rows.response("b", 20_000)
    found = one(rows.write(tmp_path / f"{SID}.jsonl"))
    assert found.points.tokens == [50_000, None, 20_000]
    assert [(mark.kind, mark.x) for mark in found.marks] == [("clear", 1.5)]


def test_a_session_that_goes_on_from_a_checkpoint_says_so(tmp_path):
    rows = Rows()
    rows.prompt("Continue from checkpoint:\n\nhalf of it is done")
    rows.response("a", 20_000)
    found = one(rows.write(tmp_path / f"{SID}.jsonl"))
    assert [(mark.kind, mark.x) for mark in found.marks] == [("restart", 1)]


def test_subagents_beside_the_transcript_have_lines_between_the_responses(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000, timestamp="2026-05-01T10:00:00.000Z")
    rows.response("b", 22_000, timestamp="2026-05-01T11:00:00.000Z")
    path = rows.write(tmp_path / f"{SID}.jsonl")
    sub = Rows(agent="a1")
    sub.prompt()
    sub.response("s", 7_000, timestamp="2026-05-01T10:10:00.000Z")
    sub.response("t", 9_000, timestamp="2026-05-01T10:20:00.000Z")
    sub.write(tmp_path / SID / "subagents" / "agent-a1.jsonl")
    (agent,) = one(path).subagents
    assert (agent.agent_id, agent.responses, agent.peak_tokens) == ("a1", 2, 9_000)
    assert agent.points.tokens == [7_000, 9_000]
    assert 1 < agent.points.x[0] < agent.points.x[1] < 2


def test_the_newest_sessions_are_read_and_the_rest_is_named(tmp_path):
    import os

    for number, name in enumerate((SID, OTHER)):
        path = plain(name).write(tmp_path / f"{name}.jsonl")
        os.utime(path, (number, number))
    found = build_report([str(tmp_path)], newest=1)
    assert [each.session_id for each in found.sessions] == [OTHER]
    assert found.notes == ["the newest 1 of 2 sessions; --newest 2 shows all"]
    assert build_report([str(tmp_path)]).notes == []
    assert len(build_report([str(tmp_path)], jobs=1).sessions) == 2


def test_an_archive_tells_of_its_last_compaction_too(tmp_path):
    rows = Rows()
    rows.prompt("Never touch vendor.lock.")
    tool(rows, "a", 20_000, "Read", {"file_path": "/p/a.py"}, "text")
    rows.response("b", 21_000)
    path = rows.write(tmp_path / f"{SID}.jsonl")
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(path, SID, trigger="auto", agent="main")
    archive.record_outcome(SID, "compacted", trigger="auto", tokens_before=21_500, tokens_after=9_000, summary="a.py")
    (found,) = build_report([], archived=[(archive.location, SID)]).sessions
    (entry,) = found.compactions
    assert (entry.before, entry.after, entry.row, entry.trigger) == (21_500, 9_000, None, "auto")
    assert entry.lost["instruction"]["missing"] == ["Never touch vendor.lock."]
    assert found.points.tokens[-1] == 9_000
    assert [each.session_id for each in build_report([archive.location]).sessions] == [SID]


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RecordingNotFoundError):
        build_report([str(tmp_path / "none.jsonl")])


def test_the_data_is_json_with_the_same_keys_for_every_session(session):
    found = json.loads(json.dumps(session.as_dict()))
    assert found["peak_ratio"] == round(45_100 / 200_000, 6)
    assert set(found["points"]) == {"x", "time", "tokens", "exact", "row"}
    assert found["compactions"][0]["discarded"]["responses"] == 4


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**6)), min_size=1, max_size=400), st.integers(8, 60))
def test_thinned_lines_keep_their_ends_gaps_peaks_and_order(sizes, most):
    points = Points()
    for number, size in enumerate(sizes):
        points.add(float(number), None, size, number, exact=size is not None)
    kept = points.downsampled(most)
    known = [size for size in sizes if size is not None]
    assert kept.x == sorted(kept.x)
    assert sum(size is not None for size in kept.tokens) <= max(len(sizes) if len(sizes) <= most else 0, most + 8)
    assert sum(size is None for size in kept.tokens) == sum(size is None for size in sizes)
    if known:
        assert max(size for size in kept.tokens if size is not None) == max(known)


def test_a_compaction_that_only_the_archive_knows_and_that_it_does_not_describe(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    path = rows.write(tmp_path / f"{SID}.jsonl")
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(path, SID, trigger="auto", agent="main")
    archive.record_outcome(SID, "compacted", trigger="auto", lost={"files": {"missing": ["/p/a.py"]}})
    archive.record_outcome(SID, "compacted", trigger="auto", piece="gone", summary="x")
    found = build_report([], archived=[(archive.location, SID)]).sessions[0].compactions
    assert [each.lost for each in found] == [{"files": {"missing": ["/p/a.py"]}}, None]
    assert [(each.before, each.after) for each in found] == [(None, None), (None, None)]


def test_a_window_that_nothing_tells_is_said_to_be_a_guess(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000, model="model-of-nobody")
    path = rows.write(tmp_path / "a.jsonl")
    assert any("The window is a guess" in note for note in one(path).notes)
    assert not any("guess" in note for note in one(path, window=300_000).notes)


def test_of_very_many_big_results_the_rest_is_counted(tmp_path):
    rows = Rows()
    rows.prompt()
    for number in range(130):
        tool(rows, f"r{number}", 20_000 + number, "Bash", {"command": "x"}, "long words " * 300)
    session = one(rows.write(tmp_path / "a.jsonl"), big_result=100)
    (note,) = [note for note in session.notes if "big tool results" in note]
    assert int(note.split()[0]) + session.count("big_result") == 130


def test_attachments_and_results_of_unknown_calls_have_a_name_of_their_own(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    rows.row("attachment", attachment={"type": "file", "filename": "/p/notes.md", "content": "note " * 200})
    rows.row("attachment", attachment={"type": "todo", "content": "todo " * 200})
    rows.row(
        "user", message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "w " * 99}]}
    )
    rows.row("user", message={"role": "user", "content": [{"type": "text", "text": "go on " * 50}]})
    rows.response("b", 23_000)
    session = one(rows.write(tmp_path / "a.jsonl"))
    names = {each.name for each in session.contributors}
    assert {"attachment: file", "a tool of unknown name"} <= names
    assert "/p/notes.md" in {each.name for each in session.files}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([{"type": "text", "text": "We read"}, {"type": "text", "text": "/p/small.py and /p/large.py."}], 2),
        ([{"type": "image"}, {"type": "text", "text": "We read /p/large.py."}], 1),
        ([{"type": "text", "text": 7}], 0),
    ],
)
def test_a_summary_may_come_in_blocks(tmp_path, content, named):
    rows = Rows()
    rows.prompt()
    for identity, name in (("a", "small"), ("b", "large")):
        tool(rows, identity, 20_000, "Read", {"file_path": f"/p/{name}.py"}, "text")
    rows.boundary(45_600, 900)
    rows.summary()["message"]["content"] = content
    rows.response("e", 21_000)
    (entry,) = one(rows.write(tmp_path / f"{SID}.jsonl")).compactions
    assert (entry.lost["read"]["total"], entry.lost["read"]["named"]) == (2, named)


def test_a_summary_that_is_written_again_is_compared_once(tmp_path):
    rows = Rows()
    rows.prompt()
    tool(rows, "a", 20_000, "Read", {"file_path": "/p/a.py"}, "text")
    rows.boundary(45_600, 900)
    rows.summary()["message"]["content"] = "Nothing of it."
    rows.summary()["message"]["content"] = "We read /p/a.py."
    rows.response("b", 21_000)
    first, *_ = one(rows.write(tmp_path / f"{SID}.jsonl")).compactions
    assert first.lost["read"]["missing"] == ["/p/a.py"]


def test_a_request_that_was_refused_is_marked_with_what_the_api_said(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 190_000)
    words = "API Error: 400 prompt is too long: 203,114 tokens > 200,000 maximum"
    rows.response("b", 0, model="<synthetic>", isApiErrorMessage=True, errorDetails=words)
    (mark,) = [each for each in one(rows.write(tmp_path / "a.jsonl")).marks if each.kind == "refusal"]
    assert (mark.x, mark.tokens) == (1.0, 203_114)
    assert mark.words == "the API refused the request: 203,114 tokens, at most 200,000"


def test_one_file_may_hold_more_sessions_than_are_asked_for(tmp_path):
    first, second = plain(SID), plain(OTHER)
    path = tmp_path / "both.jsonl"
    path.write_bytes(dump([*first.rows, *second.rows]))
    found = build_report([str(path)], newest=1)
    assert len(found.sessions) == 1
    assert found.notes == ["1 more sessions in the same files are left out"]
    assert {each.session_id for each in build_report([str(path)]).sessions} == {SID, OTHER}


def test_a_session_may_come_through_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(dump(plain().rows))))
    (found,) = build_report(["-"]).sessions
    assert (found.session_id, found.responses) == (SID, 3)


def test_of_very_many_subagents_the_largest_have_a_line(tmp_path):
    path = plain().write(tmp_path / f"{SID}.jsonl")
    for number in range(MOST_SUBAGENTS + 3):
        sub = Rows(agent=f"a{number}")
        sub.prompt()
        sub.response(f"s{number}", 7_000 + number)
        sub.write(tmp_path / SID / "subagents" / f"agent-a{number}.jsonl")
    found = one(path)
    assert "3 more subagents, with smaller contexts, have no line." in found.notes
    drawn = {each.peak_tokens for each in found.subagents if len(each.points)}
    assert drawn == set(range(7_003, 7_000 + MOST_SUBAGENTS + 3))
    assert len(found.subagents) == MOST_SUBAGENTS + 3


def test_a_subagent_whose_rows_have_no_times_is_drawn_by_its_responses(tmp_path):
    path = plain().write(tmp_path / f"{SID}.jsonl")
    sub = Rows(agent="a1")
    sub.prompt(timestamp=None)
    for number in (1, 2, 3):
        sub.response(f"s{number}", 7_000 + number, timestamp=None)
    sub.write(tmp_path / SID / "subagents" / "agent-a1.jsonl")
    (agent,) = one(path).subagents
    assert (agent.points.x, agent.points.tokens) == ([1, 2, 3], [7_001, 7_002, 7_003])


@pytest.mark.parametrize("outcome", ["piece", "summary"])
def test_an_archive_whose_piece_is_gone_tells_what_it_still_can(tmp_path, outcome):
    rows = Rows()
    rows.prompt("Never touch vendor.lock.")
    rows.response("b", 21_000)
    path = rows.write(tmp_path / f"{SID}.jsonl")
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(path, SID, trigger="auto", agent="main")
    known = {"piece": f"{SID}_20260101T000000000000Z_transcript.jsonl"} if outcome == "piece" else {}
    archive.record_outcome(SID, "compacted", trigger="auto", tokens_before=21_500, summary="x", **known)
    if outcome == "summary":
        archive.record_outcome(SID, "failed", trigger="auto")
    (entry,) = build_report([], archived=[(archive.location, SID)]).sessions[0].compactions
    assert entry.before == 21_500
    assert (entry.lost is None) is (outcome == "piece")


def test_the_later_rows_of_a_response_are_the_same_point(tmp_path):
    """The last counts count, of the main agent and of a subagent."""
    rows, sub = Rows(), Rows(agent="a1")
    for each, size in ((rows, 20_000), (sub, 7_000)):
        each.prompt()
        for tokens in (size, size + 300):
            each.response("a", tokens, output=40)
            each.rows[-1]["requestId"] = "req-a"
    path = rows.write(tmp_path / f"{SID}.jsonl")
    sub.write(tmp_path / SID / "subagents" / "agent-a1.jsonl")
    found = one(path)
    assert found.points.tokens == [20_300]
    assert found.subagents[0].points.tokens == [7_300]


def test_an_archive_tells_what_a_compaction_of_the_transcript_lost(tmp_path):
    path = plain().write(tmp_path / f"{SID}.jsonl")
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(path, SID, trigger="session_end", agent="main")
    lost = {"read": {"total": 2, "named": 1, "missing": ["/p/a.py"]}}
    archive.record_outcome(SID, "compacted", trigger="auto", tokens_before=1, tokens_after=1, lost=lost)
    (entry,) = build_report([], archived=[(archive.location, SID)]).sessions[0].compactions
    assert (entry.lost, entry.cli_before, entry.after) == (lost, 21_240, 20_900)


def test_of_very_many_points_it_is_said_how_many_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "MOST_POINTS", 20)
    monkeypatch.setattr(Points.downsampled, "__defaults__", (20,))
    rows = Rows()
    rows.prompt()
    for number in range(60):
        rows.response(f"r{number}", 20_000 + number)
    found = one(rows.write(tmp_path / "a.jsonl"))
    assert "60 points are drawn as 20: peaks and drops are all there." in found.notes
    assert len(found.points) < 60
    assert found.peak_tokens == 20_059


@pytest.mark.parametrize(("model", "unsure"), [("claude-sonnet-4-5", ""), ("claude-opus-4-6", "?")])
def test_shares_of_a_guessed_window_are_marked(tmp_path, model, unsure):
    rows = Rows()
    rows.prompt()
    rows.response("a", 100_000, model=model)
    found = one(rows.write(tmp_path / "a.jsonl"))
    assert found.unsure == unsure
    assert one(rows.write(tmp_path / "a.jsonl"), window=200_000).unsure == ""
    assert f"50.0% of 200k{unsure})" in svg_chart.title(found)
    assert f"50.0%{unsure}" in sections.index(ContextReport([found]))
    assert found.as_dict()["window_doubtful"] is False


def test_a_microcompaction_is_marked_and_is_no_compaction(tmp_path):
    """Case people-22: the size falls from 135,883 to 77,063, and the CLI says why."""
    rows = Rows()
    rows.prompt("Fix the cart", cwd="/home/dev/web-shop")
    rows.response("a", 135_883)
    rows.row("system", subtype="microcompact_boundary", microcompactMetadata={"preTokens": 99})
    rows.response("b", 77_063)
    found = one(rows.write(tmp_path / "a.jsonl"))
    assert (found.compactions, found.count("microcompaction")) == ([], 1)
    (mark,) = [mark for mark in found.marks if mark.kind == "microcompaction"]
    assert (mark.tokens, mark.x) == (135_883, 1.0)
    assert (found.project, found.first_prompt) == ("web-shop", "Fix the cart")


@pytest.mark.parametrize("details", ["prompt is too long: 203,114 tokens > 200,000 maximum", "what is this", None])
def test_a_refusal_counts_whether_it_says_the_size_or_not(tmp_path, details):
    """Case people-23."""
    rows = Rows()
    rows.prompt()
    rows.response("a", 180_000)
    message = {"model": "<synthetic>", "role": "assistant", "content": [{"type": "text", "text": "Prompt is too long"}]}
    rows.row("assistant", message=message, isApiErrorMessage=True, **({"errorDetails": details} if details else {}))
    path = rows.write(tmp_path / "a.jsonl")
    assert one(path).count("refusal") == 1
    (session,) = replay([str(path)])
    assert session.overflows == 1


def test_what_the_context_holds_now(tmp_path):
    path = tmp_path / "a.jsonl"
    plain().write(path)
    parts = observe_transcript(str(path)).parts
    session = one(path)
    assert parts == session.parts == json.loads(json.dumps(session.as_dict()))["parts"]
    assert sum(each["tokens"] for each in parts) == session.tokens
    path.write_text("")
    assert observe_transcript(str(path)).parts == []


def test_the_beginning_is_divided_where_the_recording_tells_its_parts(tmp_path):
    rows = Rows()
    rows.prompt("hello there")
    memory = {"type": "instructions", "files": [{"path": "/w/CLAUDE.md", "content": "word " * 3_000}]}
    rows.row("attachment", attachment=memory)
    rows.response("a", 20_000)
    tools = [{"name": "Bash", "schema": {"description": "d " * 3_000}}]
    rows.row("attachment", attachment={"type": "prompt_snapshot", "systemPrompt": ["p " * 3_000], "tools": tools})
    rows.response("b", 20_040)
    session = one(rows.write(tmp_path / "a.jsonl"))
    starts = {each.name: each.tokens for each in session.contributors if each.kind == "start"}
    assert set(starts) == {"the beginning: system prompt", "the beginning: tools", "the beginning: /w/CLAUDE.md"}
    assert {each["group"] for each in session.parts} >= {"system", "tools", "memory"}


def test_a_request_that_is_not_as_projected_is_marked(tmp_path):
    """Case core-34."""
    rows = Rows()
    rows.prompt()
    rows.response("a", 102_000)
    rows.prompt()
    rows.response("b", 60_000)
    (mark,) = [mark for mark in one(rows.write(tmp_path / "a.jsonl")).marks if mark.kind == "silent_change"]
    assert (mark.row, mark.tokens, mark.x) == (4, 60_000, 2.0)
    assert "tokens fewer than projected" in mark.words


def test_a_compaction_by_reference_is_named_and_its_kept_words_are_looked_into(tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(gzip.decompress((DATA / "by_reference/manual.jsonl.gz").read_bytes()))
    first, second = one(path).compactions
    assert [each.by_reference for each in (first, second)] == [True, True]
    assert first.lost["instruction"] == {"total": 12, "named": 12, "missing": []}
    assert second.lost["instruction"] == {"total": 14, "named": 14, "missing": []}
    assert "summaries of compactions" in [each.name for each in one(path).contributors]


def test_the_size_after_one_that_no_response_followed_counts_the_kept_words(tmp_path):
    path = tmp_path / "session.jsonl"
    lines = gzip.decompress((DATA / "by_reference/manual.jsonl.gz").read_bytes()).splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if b'"compact_boundary"' in line)
    path.write_bytes(b"".join(lines[: place + 3]))
    (entry,) = one(path).compactions
    assert entry.after == pytest.approx(23_488, rel=0.05)
    assert not entry.after_exact
