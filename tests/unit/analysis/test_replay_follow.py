"""A transcript for each thing that is more than a response after another, and that the fast way follows it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mala_context.analysis.replay.files import Recording, new_buffer
from mala_context.analysis.replay.follow import NeedsRatio
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.row_runs import NeedsFullReader
from mala_context.analysis.replay.scan import Scanner, read
from tests.helpers.recordings import OTHER, SID, Rows, dump, plain
from tests.unit.analysis.test_replay_scan import both, scan

FIRST = f"{SID[-4:]}-m-1"
"""The first row that `Rows` makes; no later context is its own."""
STREAM = {"sessionId": None, "session_id": SID}
REFUSED = "prompt is too long: 210,000 tokens > 200,000 maximum"
CLEARED = {"data": {"hookName": "SessionStart:clear"}}


def recording(path):
    return Recording(str(path), (str(path),), 0)


def begun(agent=None):
    """A session that goes on: two responses, and a prompt behind each."""
    rows = Rows(agent=agent)
    for identity, tokens in (("a", 20_000), ("b", 20_180)):
        rows.prompt()
        rows.response(identity, tokens)
    rows.prompt("and then?")
    return rows


def compacted():
    """A session just behind a compaction."""
    rows = begun()
    rows.boundary(21_000, 900)
    rows.summary()
    return rows


def at_a_link():
    """A session at a row of the CLI's own from which a new conversation may begin."""
    rows = begun()
    rows.row("system", None, subtype="turn_duration")
    return rows


def named_by(row):
    """A transcript whose first row, which no other goes on from, names the session."""
    rows = Rows()
    rows.rows.append(row | {"sessionId": SID})
    return rows


def beside():
    """A session whose last response called two tools; the results follow both calls."""
    rows = begun()
    calls = [rows.response("c", 20_400)["uuid"] for _ in range(2)]
    for call in calls:
        rows.prompt([{"type": "tool_result", "tool_use_id": "t", "content": "x" * 99}], parentUuid=call)
    return rows


def link_and_filler(rows):
    """A link that goes back, and a row without a place."""
    rows.row("system", FIRST, subtype="turn_duration")
    rows.rows.append({"type": "x", "sessionId": SID})


def copied():
    """A transcript with rows of earlier responses, before any has counts."""
    rows = Rows()
    rows.prompt()
    for identity in ("a", "b", "a", "c", "b"):
        rows.response(identity, 0)
    return rows


def subagent():
    return begun("a1")


def again(rows):
    rows.rows.append(rows.rows[0])


def raw(**row):
    """What adds a row with these fields and no others."""
    return lambda rows: rows.rows.append(row)


def row(kind, *parent, **fields):
    return lambda rows: rows.row(kind, *parent, **fields)


def prompt(text="back", **fields):
    return lambda rows: rows.prompt(text, **fields)


def response(identity="c", tokens=20_400, **fields):
    return lambda rows: rows.response(identity, tokens, **fields)


def message(**fields):
    """What adds a response of which only these fields of its message are there."""
    return row("assistant", message=fields or None)


def error(text="Overloaded", *parent, **fields):
    content = {"model": "<synthetic>", "content": [{"type": "text", "text": text}]}
    return row("assistant", *parent, message=content, **fields)


def boundary(**fields):
    return row("system", None, **{"subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}} | fields)


def on_one_line(rows):
    rows.boundary(21_000)
    rows.rows[-2:] = [dump(rows.rows[-2:]).replace(b"\n", b"")]


def without_counts_and_with(rows):
    rows.response("c", 0)
    rows.response("d", 9_000)


def cleared_aside(rows):
    """A /clear between two rows of a response, and a compaction."""
    rows.response("c", 20_400)
    first = rows.parent
    rows.row("progress", None, isSidechain=True, **CLEARED)
    rows.response("c", 20_400, parentUuid=first)
    rows.boundary(21_000)


def sidechain_without_id(rows):
    """A sidechain whose response's second row has no id, and more output."""
    rows.prompt(isSidechain=True, parentUuid=None)
    rows.response("s", 9_000, isSidechain=True)
    rows.response("s", 9_000, output=90, isSidechain=True, uuid=None)


def bare(*identities, then=0, identity="z", model="claude-sonnet-4-5", **fields):
    """What adds responses without counts, with a prompt after each; at last one that has them."""

    def add(rows):
        for each in identities:
            content = {"id": each, "model": model, "content": [{"type": "text", "text": "words " * 9}]}
            rows.row("assistant", message=content, requestId=f"req-{each}", **fields)
            rows.prompt()
        if then:
            rows.response(identity, then)

    return add


def nothing(rows):
    pass


class Case(NamedTuple):
    """A transcript."""

    add: Callable[[Rows], Any]
    """Adds what is unusual."""
    start: Callable[[], Rows] = begun
    """Makes what stands before it."""
    few: tuple[str, ...] = ()
    """Numbers that are to be small, since a transcript would have to be long."""


CASES = {
    "a row again": Case(again),
    "a row again, of an earlier generation": Case(
        lambda rows: rows.rows.append(rows.rows[-2]), few=("follow.PLACES", "files.BLOCK")
    ),
    "results of tools side by side": Case(response("d", 21_000), beside),
    "a response after the first of two results": Case(response("d", 21_000, parentUuid=f"{SID[-4:]}-m-8"), beside),
    "a prompt at one of two calls": Case(prompt(parentUuid=f"{SID[-4:]}-m-6"), beside),
    "a compaction after results side by side": Case(lambda rows: rows.boundary(21_000), beside),
    "a link that goes back, then a row without a place": Case(link_and_filler),
    "a row without an id": Case(prompt(uuid=None)),
    "a link without an id": Case(row("progress", uuid="")),
    "stream-json: a result": Case(raw(type="result", session_id=SID)),
    "stream-json: a result with an id": Case(raw(type="result", uuid="r", session_id=SID)),
    "stream-json: a prompt": Case(prompt(**STREAM)),
    "stream-json: a response": Case(response(**STREAM)),
    "stream-json: a response that begins the file": Case(response(**STREAM), Rows),
    "stream-json: a link": Case(row("system", subtype="init", **STREAM)),
    "stream-json: another link": Case(row("custom", **STREAM)),
    "stream-json: a boundary": Case(boundary(**STREAM)),
    "a summary without a boundary": Case(lambda rows: rows.summary()),
    "a summary that begins a file": Case(lambda rows: rows.summary(), Rows),
    "a second summary": Case(lambda rows: rows.summary(), compacted),
    "a sidechain's prompt": Case(prompt(isSidechain=True)),
    "a sidechain's attachment": Case(row("attachment", isSidechain=True)),
    "a sidechain's response": Case(response(isSidechain=True)),
    "a sidechain's boundary": Case(boundary(isSidechain=True)),
    "a sidechain that begins a file": Case(prompt(isSidechain=True), Rows),
    "a subagent's row in a session": Case(prompt(agentId="a1")),
    "a subagent's response in a session": Case(response(agentId="a1", isSidechain=True)),
    "a session's row in a subagent": Case(prompt(agentId=None, isSidechain=False), subagent),
    "a subagent's row in another": Case(response(agentId="a2"), subagent),
    "a subagent whose name is empty": Case(prompt(agentId=""), Rows),
    "another transcript behind this one": Case(prompt(sessionId=OTHER, parentUuid=None)),
    "another transcript behind rows without a place": Case(
        prompt(sessionId=OTHER), lambda: named_by({"type": "x", "uuid": "x"})
    ),
    "another transcript behind rows without an id": Case(prompt(sessionId=OTHER), lambda: named_by({"type": "x"})),
    "a prompt further up": Case(prompt(parentUuid=FIRST)),
    "a prompt further up, without a message": Case(row("user", FIRST)),
    "a prompt before the boundary": Case(prompt(parentUuid=FIRST), compacted),
    "a prompt at the root": Case(prompt(parentUuid=None)),
    "a prompt behind a link at the root": Case(prompt(), at_a_link),
    "a subagent's prompt further up": Case(prompt(parentUuid=f"{SID[-4:]}-a1-1"), subagent),
    "a response further up": Case(response(parentUuid=FIRST)),
    "a response at the root": Case(response(parentUuid=None)),
    "a response behind a link at the root": Case(response(), at_a_link),
    "a /clear": Case(row("progress", None, **CLEARED)),
    "a sidechain's response whose second row has no id": Case(sidechain_without_id),
    "a /clear in a sidechain's place": Case(cleared_aside),
    "responses without counts, in two rows": Case(bare("c", "c", "d")),
    "responses without counts, then one with": Case(bare("c", "d", then=20_400)),
    "a response whose counts come late": Case(bare("c", "c", then=20_400, identity="c")),
    "a response whose counts come late, after one that followed a prompt that goes back": Case(
        lambda rows: (prompt(parentUuid=FIRST)(rows), response()(rows), bare("d", then=20_500, identity="d")(rows))
    ),
    "a response whose counts come after another's": Case(bare("c", "d", then=20_400, identity="c")),
    "a response without counts, of another model": Case(bare("c", model="m", then=20_400)),
    "a response without counts, further up": Case(bare("c", parentUuid=FIRST, then=20_400)),
    "a response whose last row has no counts": Case(bare("b", then=20_400)),
    "responses without counts, then a compaction": Case(lambda rows: (bare("c", "d")(rows), rows.boundary(21_000))),
    "responses without counts that come again": Case(bare("c", "d", "c", then=20_400)),
    "a row without counts that comes again": Case(
        lambda rows: (bare("c", "d", then=20_400)(rows), rows.rows.append(rows.rows[5]))
    ),
    "responses without counts, then a subagent's": Case(lambda rows: (bare("c")(rows), rows.prompt(agentId="a1"))),
    "a response without a message": Case(message()),
    "a response without an id": Case(message(model="claude-opus-4-8", id="")),
    "a response without any id": Case(message(model="claude-opus-4-8")),
    "an old response's row": Case(response("a")),
    "an old response's id, of no request": Case(message(id="a", model="m")),
    "a response that may be forgotten": Case(response("a")),
    "a model with a suffix": Case(response(model="claude-sonnet-4-5[1m]")),
    "a response without counts behind a boundary": Case(without_counts_and_with, compacted),
    "another session": Case(response(sessionId=OTHER)),
    "another session and back": Case(
        lambda rows: (rows.response("c", 20_400, sessionId=OTHER), rows.prompt(), rows.response("d", 20_500))
    ),
    "a refusal": Case(error(errorDetails=REFUSED)),
    "a refusal in the text": Case(error(REFUSED)),
    "a refusal of a model with a name": Case(response(isApiErrorMessage=True, errorDetails=REFUSED)),
    "an error further up": Case(error("Overloaded", FIRST)),
    "an error behind a link at the root": Case(error(), at_a_link),
    "an error at the root": Case(error("Overloaded", None)),
    "a compaction further up": Case(boundary(logicalParentUuid=FIRST)),
    "a compaction long after": Case(lambda rows: rows.boundary(21_000)),
    "two compactions": Case(lambda rows: rows.boundary(900), compacted),
    "a compaction on a line with its prompt": Case(on_one_line),
    "a compaction at the end": Case(nothing, compacted),
    "a compaction with a response without counts": Case(response("c", 0), compacted),
    "no session's id": Case(prompt(sessionId=None), Rows),
    "an empty session's id": Case(response(sessionId=""), Rows),
    "a link that begins a file, without a session's id": Case(row("custom", sessionId=None), Rows),
    "rows without a place": Case(raw(type="custom", sessionId=""), Rows),
    "no row": Case(nothing, Rows),
    "a usage of which a count is missing": Case(message(model="m", id="c", usage={"input_tokens": 20_400})),
    "a call of which a count is missing": Case(
        lambda rows: rows.response("c", 20_400)["message"]["usage"].update(iterations=[{"type": "message"}]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_unusual_is_followed(tmp_path, monkeypatch, name):
    case = CASES[name]
    rows = case.start()
    case.add(rows)
    rows.write(tmp_path / "a.jsonl")
    for number in case.few:
        monkeypatch.setattr(f"mala_context.analysis.replay.{number}", 1)
    careful = RecordingReader(recording(tmp_path / "a.jsonl")).run()
    assert scan(tmp_path / "a.jsonl") == careful
    assert read(recording(tmp_path / "a.jsonl")) == careful


@pytest.mark.parametrize("add", [nothing, response("c", 0)])
def test_a_compaction_at_the_end_is_read_twice_since_its_estimate_asks_what_text_costs(tmp_path, add):
    rows = compacted()
    add(rows)
    rows.write(tmp_path / "a.jsonl")
    with pytest.raises(NeedsRatio):
        Scanner(recording(tmp_path / "a.jsonl")).run()
    (told,) = Scanner(recording(tmp_path / "a.jsonl"), learns=True).run()
    assert told.main.tokens is not None
    assert [told] == RecordingReader(recording(tmp_path / "a.jsonl")).run()


def test_a_file_that_is_not_there_is_a_problem_of_its_recording(tmp_path):
    gone = recording(tmp_path / "gone.jsonl")
    with pytest.raises(NeedsFullReader, match="cannot be read: No such file"):
        Scanner(gone).run()
    assert [each.row for each in read(gone)[0].problems] == [1]


FIELDS = (
    "type",
    "uuid",
    "parentUuid",
    "sessionId",
    "agentId",
    "requestId",
    "timestamp",
    "subtype",
    "logicalParentUuid",
)
STARTS = (plain, copied, subagent)
BUFFER = new_buffer()


def told(row, field, value):
    """A row with another value in a field; without the field where that is `...`."""
    return {**row, field: value} if value is not ... else {key: row[key] for key in row if key != field}


@pytest.mark.parametrize("value", ["", None, OTHER, ...], ids=["empty", "null", "another", "missing"])
@pytest.mark.parametrize("field", FIELDS)
def test_whatever_a_field_says_the_scan_is_right(tmp_path, field, value):
    """In each row of a transcript, and in all of them."""
    path = tmp_path / "a.jsonl"
    for start in STARTS:
        rows = start().rows
        transcripts = [[*rows[:at], told(rows[at], field, value), *rows[at + 1 :]] for at in range(len(rows))]
        for transcript in (*transcripts, [told(row, field, value) for row in rows]):
            fast, careful = both(path, dump(transcript), BUFFER)
            assert fast == careful
