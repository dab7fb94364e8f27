"""What a compaction lost, from an archive."""

import json

import pytest

from mala_context.archive.losses import dropped, history_path, read_loss, read_subagent_loss
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import InvalidSessionIdError

BOUNDARY = {"type": "system", "subtype": "compact_boundary", "uuid": "b"}


def said(words, **more):
    return {"type": "user", "uuid": words, "message": {"role": "user", "content": words}, **more}


def summarised(words):
    return said(words, isCompactSummary=True)


def todo(*items):
    todos = [{"content": item, "status": "pending"} for item in items]
    block = {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": todos}}
    return {"type": "assistant", "uuid": "todo", "message": {"role": "assistant", "content": [block]}}


class Bench:
    def __init__(self, folder, **archive):
        self.archive = TranscriptArchive(folder / "archives", **archive)
        self.folder, self.path = folder, folder / "s1.jsonl"

    def write(self, *rows):
        with self.path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def keep(self, trigger="auto", outcome=None):
        self.archive.archive(str(self.path), "s1", trigger=trigger)
        if outcome is not None:
            self.archive.record_outcome("s1", outcome)

    def missing(self, summary, **more):
        return [item.text for item in read_loss(self.archive, "s1", summary, **more).missing]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_only_what_the_last_compaction_dropped(tmp_path, mode):
    bench = Bench(tmp_path, mode=mode)
    bench.write(said("never touch the lexer"), todo("write release notes"))
    bench.keep(outcome="compacted")
    bench.write(BOUNDARY, summarised("about the lexer"), said("always test the parser"))
    bench.keep()
    assert bench.missing("nothing to see") == ["always test the parser", "write release notes"]
    bench.archive.record_outcome("s1", "compacted")
    bench.write(BOUNDARY, summarised("about the parser"), said("third instruction stands here"))
    bench.keep()
    assert bench.missing("nothing to see")[0] == "third instruction stands here"
    assert "never touch the lexer" not in bench.missing("nothing to see")


def test_a_failed_compaction_drops_nothing_so_its_rows_count_for_the_next(bench):
    bench.write(said("never touch the lexer"))
    bench.keep(outcome="failed")
    bench.write(said("always test the parser"))
    bench.keep()
    assert bench.missing("x") == ["never touch the lexer", "always test the parser"]
    assert bench.missing("you must never touch the lexer") == ["always test the parser"]


def test_rows_that_came_between_hook_and_boundary(bench):
    bench.write(said("never touch the lexer"))
    bench.keep()
    bench.write(said("the newest prompt of all"), BOUNDARY, summarised("x"), said("a later prompt stands here"))
    assert bench.missing("x", transcript=str(bench.path)) == ["never touch the lexer", "the newest prompt of all"]
    assert bench.missing("x") == ["never touch the lexer"]
    assert bench.missing("x", transcript="/nowhere.jsonl") == ["never touch the lexer"]
    with bench.path.open("a") as file:
        file.write('{"type":"user","torn')
    assert len(bench.missing("x", transcript=str(bench.path))) == 2


def test_an_old_cli_that_wrote_no_boundary(bench):
    bench.write(said("never touch the lexer"))
    bench.keep(outcome="compacted")
    bench.write(summarised("x"), said("always test the parser"))
    bench.keep()
    assert bench.missing("x") == ["always test the parser"]


def test_a_compaction_for_which_the_end_of_a_run_had_archived_everything(bench):
    bench.write(said("never touch the lexer"))
    bench.keep(outcome="compacted")
    bench.write(BOUNDARY, summarised("about the lexer"), said("always test the parser"))
    bench.keep("session_end")
    bench.keep()  # the PreCompact of a resumed session, which has nothing new
    bench.write(said("the newest prompt of all"))
    lost = ["always test the parser", "the newest prompt of all"]
    assert bench.missing("x", transcript=str(bench.path)) == lost
    bench.archive.record_outcome("s1", "compacted")
    bench.write(BOUNDARY, summarised("about the parser"), said("third instruction stands here"))
    assert bench.missing("x", transcript=str(bench.path)) == lost
    piece = bench.archive.manifest("s1").of_kind("outcome")[-1]["piece"]
    bench.keep()
    assert bench.missing("x", piece=piece) == ["always test the parser"]
    assert bench.missing("x") == ["third instruction stands here"]


def test_behind_a_piece_that_was_written_late(bench):
    bench.write(said("never touch the lexer"), BOUNDARY, summarised("x"), said("always test the parser"))
    bench.keep("boundary", outcome="hook_skipped")
    bench.write(said("third instruction stands here"))
    bench.keep()
    assert bench.missing("x") == ["always test the parser", "third instruction stands here"]


def test_a_piece_written_after_the_boundary_holds_the_summary(bench):
    bench.write(
        said("never touch the lexer"), BOUNDARY, summarised("nothing of it"), said("a later prompt stands here")
    )
    bench.keep("boundary")
    assert bench.missing(None) == ["never touch the lexer"]
    assert bench.missing("never touch the lexer") == []


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_piece_written_while_the_cli_still_wrote(bench, kept):
    rows = [said("never touch the lexer"), BOUNDARY, summarised("nothing of it"), said("a later prompt stands here")]
    bench.write(*rows[:kept])
    bench.keep("boundary")
    bench.write(*rows[kept:])
    assert bench.missing(None, transcript=str(bench.path)) == ["never touch the lexer"]


def test_an_earlier_compaction_by_its_piece(bench):
    bench.write(said("never touch the lexer"))
    bench.keep(outcome="compacted")
    bench.write(BOUNDARY, summarised("x"), said("always test the parser"))
    bench.keep(outcome="compacted")
    first, second = (each.plain for each in bench.archive.pieces("s1"))
    assert bench.missing("x", piece=first) == ["never touch the lexer"]
    assert bench.missing("x", piece=second) == ["always test the parser"]
    assert read_loss(bench.archive, "s1", "x", piece="other") is None


def test_a_summary_that_nobody_told_stands_behind_the_boundary(bench):
    bench.write(said("never touch the lexer"))
    bench.keep(outcome="compacted")
    first = bench.archive.pieces("s1")[0].plain
    assert read_loss(bench.archive, "s1", None, transcript=str(bench.path)) is None
    bench.write(BOUNDARY, summarised("nothing of it"), said("always test the parser"))
    assert bench.missing(None, transcript=str(bench.path)) == ["never touch the lexer"]
    assert read_loss(bench.archive, "s1", None, piece=first) is None
    bench.keep("session_end")
    assert bench.missing(None, piece=first) == ["never touch the lexer"]


def test_a_compaction_of_an_older_chain(bench):
    bench.write(said("never touch the lexer"))
    bench.keep(outcome="compacted")
    first = bench.archive.pieces("s1")[0].plain
    bench.path.write_text("")
    bench.write(said("always test the parser"))
    bench.keep()
    assert bench.missing("x", piece=first) == ["never touch the lexer"]
    assert bench.missing("x") == ["always test the parser"]


def test_what_stayed_in_the_context_is_not_lost(bench):
    bench.write(said("never touch the lexer"), said("always test the parser"))
    bench.keep()
    assert bench.missing("x", preserved={"always test the parser"}) == ["never touch the lexer"]


def test_nothing_known(bench):
    assert read_loss(bench.archive, "s1", "x") is None
    bench.write(said("never touch the lexer"))
    bench.keep()
    assert read_loss(bench.archive, "s1", None) is None
    assert dropped([], bench.archive.manifest("s1")) == []


def test_rows_that_are_no_json_are_passed_over(bench):
    bench.path.write_text('{"type":"user"\n[1]\n' + json.dumps(said("never touch the lexer")) + "\n")
    bench.keep()
    assert bench.missing("x") == ["never touch the lexer"]


def test_a_summary_in_blocks(bench):
    blocks = {"role": "user", "content": [{"type": "text", "text": "never touch the lexer"}]}
    bench.write(said("never touch the lexer"), BOUNDARY, {"type": "user", "isCompactSummary": True, "message": blocks})
    bench.keep("catch_up")
    assert bench.missing(None) == []


def test_a_subagents_rows(bench):
    folder = bench.folder / "s1" / "subagents"
    folder.mkdir(parents=True)
    rows = [said("never touch the lexer", isSidechain=True), said("always test the parser", isSidechain=True)]
    (folder / "agent-a1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    loss = read_subagent_loss(str(bench.path), "a1", "always test the parser")
    assert [item.text for item in loss.missing] == ["never touch the lexer"]
    assert read_subagent_loss(str(bench.path), "a2", "x") is None
    with pytest.raises(InvalidSessionIdError):
        read_subagent_loss(str(bench.path), "../../x", "x")


def test_where_the_history_is(bench):
    assert history_path(bench.archive, "s1") == f"{bench.archive.location}/s1_*"


def test_every_object_of_a_line_counts(bench):
    """The CLI has written two on one line, and a row that is torn ends it."""
    first, second = said("never touch the lexer"), said("always test the parser")
    with bench.path.open("w") as file:
        file.write(json.dumps(first) + json.dumps(second) + '{"torn\n[1]\n')
    bench.keep()
    with bench.path.open("a") as file:
        file.write(json.dumps(said("ask before each release")) + json.dumps(BOUNDARY) + "\n")
    assert bench.missing("nothing", transcript=str(bench.path)) == [
        "never touch the lexer",
        "always test the parser",
        "ask before each release",
    ]
