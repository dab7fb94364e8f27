"""One recording through the core, the careful way."""

import json

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.recording_reader import RecordingReader
from tests.helpers.recordings import OTHER, SID, Rows, dump, plain


def follow(path, rows):
    path.write_bytes(rows if isinstance(rows, bytes) else dump(rows))
    return RecordingReader(Recording(str(path), (str(path),), 0)).run()


def test_a_session_with_a_compaction(tmp_path):
    (stretch,) = follow(tmp_path / "a.jsonl", plain().rows)
    assert stretch.session_id == SID
    main = stretch.main
    assert (main.responses, main.tokens, main.peak_tokens, main.compactions) == (3, 20_900, 20_900, 1)
    assert (main.window, main.window_source) == (200_000, "table")
    (compaction,) = stretch.compactions
    assert (compaction.row, compaction.trigger, compaction.pre_tokens, compaction.post_tokens) == (
        6,
        "auto",
        21_240,
        900,
    )
    assert compaction.cli_estimate == 20_180 + 60 + 1_000
    assert compaction.error == 0
    assert compaction.parent_missing is False
    assert (stretch.started_at, stretch.ended_at) == ("2026-05-01T10:00:01.000Z", "2026-05-01T10:00:08.000Z")


def test_the_parent_of_a_boundary_may_not_be_there(tmp_path):
    rows = plain().rows
    rows[5]["logicalParentUuid"] = "gone"
    assert follow(tmp_path / "a.jsonl", rows)[0].compactions[0].parent_missing is True
    del rows[5]["logicalParentUuid"]
    assert follow(tmp_path / "a.jsonl", rows)[0].compactions[0].parent_missing is None


def test_each_session_of_a_stream_is_a_stretch(tmp_path):
    def init(session_id):
        return {"type": "system", "subtype": "init", "session_id": session_id, "model": "claude-sonnet-4-5[1m]"}

    def answer(session_id, identity, tokens):
        message = {"id": identity, "model": "claude-sonnet-4-5", "usage": {"input_tokens": tokens, "output_tokens": 9}}
        return {"type": "assistant", "session_id": session_id, "message": message, "parent_tool_use_id": None}

    rows = [init(SID), answer(SID, "a", 1_000), answer(SID, "b", 2_000)]
    rows += [{"type": "conversation_reset", "session_id": SID}, init(OTHER), answer(OTHER, "c", 1_500)]
    first, second = follow(tmp_path / "a.jsonl", rows)
    assert (first.session_id, first.main.responses, first.main.tokens, first.main.peak_tokens) == (SID, 2, None, 2_000)
    assert first.resets == 1
    assert (second.session_id, second.main.responses, second.main.tokens) == (OTHER, 1, 1_500)
    assert (second.main.window, second.main.window_source) == (1_000_000, "suffix")


def test_a_clear_inside_a_session_keeps_its_counts(tmp_path):
    rows = [{"type": "system", "subtype": "init", "session_id": SID}]
    for identity in "ab":
        message = {"id": identity, "model": "claude-sonnet-4-5", "usage": {"input_tokens": 900, "output_tokens": 9}}
        rows.append({"type": "assistant", "session_id": SID, "message": message})
        rows.append({"type": "conversation_reset", "session_id": SID})
    (stretch,) = follow(tmp_path / "a.jsonl", rows)
    assert (stretch.main.responses, stretch.resets, stretch.main.tokens) == (2, 2, None)


def test_a_refusal_is_an_overflow_and_says_the_window(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 13_000)
    error = {"model": "<synthetic>", "content": [], "usage": {}}
    details = "prompt is too long: 15093 tokens > 14000 maximum"
    rows.row("assistant", message=error, isApiErrorMessage=True, errorDetails=details)
    (stretch,) = follow(tmp_path / "a.jsonl", rows.rows)
    assert (stretch.overflows, stretch.main.window, stretch.main.window_source) == (1, 14_000, "api_error")


def test_the_totals_count_all_calls_behind_a_response_and_the_largest_output(tmp_path):
    rows = Rows()
    rows.prompt()
    for output in (1, 40, 3):
        rows.response("a", 1_000, output=output)
    rows.rows[-1]["message"]["usage"]["iterations"] = [{"type": "message", "input_tokens": 300}]
    (stretch,) = follow(tmp_path / "a.jsonl", rows.rows)
    assert list(stretch.main.counts) == [3, 0, 997, 40]
    assert stretch.main.tokens == 300


def test_bad_rows_are_problems_and_end_nothing(tmp_path):
    data = b"bad\n" + dump(plain().rows) + b'{"type":"assist'
    (stretch,) = follow(tmp_path / "a.jsonl", data)
    assert [(each.row, each.problem) for each in stretch.problems] == [
        (1, "no whole JSON object"),
        (10, "no whole JSON object"),
    ]
    assert stretch.main.responses == 3


def test_rows_of_any_shape_do_not_raise(tmp_path):
    shapes = [{}, {"type": []}, {"type": "assistant"}, {"type": "assistant", "message": 7}, {"type": "user", "uuid": 3}]
    shapes += [{"type": "system", "subtype": "compact_boundary", "compactMetadata": []}, {"timestamp": 5}]
    shapes += [{"type": "assistant", "message": {"usage": [], "id": {}}, "sessionId": 4}]
    (stretch,) = follow(tmp_path / "a.jsonl", [json.dumps(each).encode() for each in shapes])
    assert stretch.problems == []


def test_transcripts_put_together_are_sessions_of_their_own(tmp_path):
    first, second = follow(tmp_path / "a.jsonl", plain().rows + plain(OTHER).rows)
    assert [first.session_id, second.session_id] == [SID, OTHER]
    assert [each.main.responses for each in (first, second)] == [3, 3]
    assert [each.resets for each in (first, second)] == [0, 0]
    assert second.compactions[0].row == 14


def test_a_recording_shows_its_window_at_its_first_automatic_compaction(tmp_path):
    """Case core-22: until then, and after a manual one, `claude-opus-4-6` may have had either window."""

    def session(trigger, pre_tokens):
        rows = Rows()
        rows.prompt()
        rows.response("a", 160_000, model="claude-opus-4-6")
        rows.boundary(pre_tokens, 900, trigger)
        rows.summary()
        rows.response("b", 30_000, model="claude-opus-4-6")
        main = follow(tmp_path / "a.jsonl", rows.rows)[0].main
        return main.window, main.window_source, main.window_doubtful

    assert session("manual", 167_181) == (200_000, "guess", False)
    assert session("auto", 167_181) == (200_000, "compaction", False)
    assert session("auto", 67_000) == (200_000, "guess", True)
