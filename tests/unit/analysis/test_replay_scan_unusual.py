"""Where the fast way gives up: a transcript for each reason, and that nothing is lost by it."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mala_context.analysis.replay import scan as scanning
from mala_context.analysis.replay.engine import read
from mala_context.analysis.replay.fast_rows import NeedsFullReader
from mala_context.analysis.replay.files import Recording, new_buffer
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.scan import Scanner
from tests.helpers.recordings import OTHER, SID, Rows, dump, plain

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


def nothing(rows):
    pass


class Case(NamedTuple):
    """A transcript, and what is said of it."""

    words: str
    add: Callable[[Rows], Any]
    """Adds what is unusual."""
    start: Callable[[], Rows] = begun
    """Makes what stands before it."""
    few: tuple[str, ...] = ()
    """Numbers that are to be small, since a transcript would have to be long."""


BACK = "goes back, or begins anew"
CASES = {
    "a row again": Case("a row that is there twice", again),
    "a row again, of an earlier generation": Case(
        "a row that is there twice", lambda rows: rows.rows.append(rows.rows[-2]), few=("scan.PLACES", "files.BLOCK")
    ),
    "a row without an id": Case("a row without an id", prompt(uuid=None)),
    "a link without an id": Case("a row without an id", row("progress", uuid="")),
    "stream-json: a result": Case("stream-json", raw(type="result", session_id=SID)),
    "stream-json: a result with an id": Case("stream-json", raw(type="result", uuid="r", session_id=SID)),
    "stream-json: a prompt": Case("stream-json", prompt(**STREAM)),
    "stream-json: a response": Case("stream-json", response(**STREAM)),
    "stream-json: a response that begins the file": Case("stream-json", response(**STREAM), Rows),
    "stream-json: a link": Case("stream-json", row("system", subtype="init", **STREAM)),
    "stream-json: another link": Case("stream-json", row("custom", **STREAM)),
    "stream-json: a boundary": Case("stream-json", boundary(**STREAM)),
    "a summary without a boundary": Case("a compaction without a boundary", lambda rows: rows.summary()),
    "a summary that begins a file": Case("a compaction without a boundary", lambda rows: rows.summary(), Rows),
    "a second summary": Case("a compaction without a boundary", lambda rows: rows.summary(), compacted),
    "a sidechain's prompt": Case("a sidechain without a name", prompt(isSidechain=True)),
    "a sidechain's attachment": Case("a sidechain without a name", row("attachment", isSidechain=True)),
    "a sidechain's response": Case("a sidechain without a name", response(isSidechain=True)),
    "a sidechain's boundary": Case("a sidechain without a name", boundary(isSidechain=True)),
    "a sidechain that begins a file": Case("a sidechain without a name", prompt(isSidechain=True), Rows),
    "a subagent's row in a session": Case("several agents", prompt(agentId="a1")),
    "a subagent's response in a session": Case("several agents", response(agentId="a1", isSidechain=True)),
    "a session's row in a subagent": Case("several agents", prompt(agentId=None, isSidechain=False), subagent),
    "a subagent's row in another": Case("several agents", response(agentId="a2"), subagent),
    "a subagent whose name is empty": Case("several agents", prompt(agentId=""), Rows),
    "another transcript behind this one": Case(
        "perhaps another session's transcript", prompt(sessionId=OTHER, parentUuid=None)
    ),
    "another transcript behind rows without a place": Case(
        "perhaps another session's transcript", prompt(sessionId=OTHER), lambda: named_by({"type": "x", "uuid": "x"})
    ),
    "another transcript behind rows without an id": Case(
        "perhaps another session's transcript", prompt(sessionId=OTHER), lambda: named_by({"type": "x"})
    ),
    "a prompt further up": Case(f"a prompt that {BACK}", prompt(parentUuid=FIRST)),
    "a prompt further up, without a message": Case(f"a prompt that {BACK}", row("user", FIRST)),
    "a prompt before the boundary": Case(f"a prompt that {BACK}", prompt(parentUuid=FIRST), compacted),
    "a prompt at the root": Case(f"a prompt that {BACK}", prompt(parentUuid=None)),
    "a prompt behind a link at the root": Case(f"a prompt that {BACK}", prompt(), at_a_link),
    "a subagent's prompt further up": Case(f"a prompt that {BACK}", prompt(parentUuid=f"{SID[-4:]}-a1-1"), subagent),
    "a response further up": Case(f"a response that {BACK}", response(parentUuid=FIRST)),
    "a response at the root": Case(f"a response that {BACK}", response(parentUuid=None)),
    "a response behind a link at the root": Case(f"a response that {BACK}", response(), at_a_link),
    "a /clear": Case("a /clear", row("progress", None, **CLEARED)),
    "a response without a message": Case("a response without a message", message()),
    "a response without an id": Case("a response without an id", message(model="claude-opus-4-8", id="")),
    "a response without any id": Case("a response without an id", message(model="claude-opus-4-8")),
    "an old response's row": Case("an earlier response's row behind a later one", response("a")),
    "an old response's id, of no request": Case("an earlier response's row", message(id="a", model="m")),
    "a response that may be forgotten": Case("the tracker may have forgotten", response("a"), few=("scan.IDS",)),
    "a model with a suffix": Case("a model with a suffix", response(model="claude-sonnet-4-5[1m]")),
    "a response without counts behind a boundary": Case(
        "a response without counts behind a compaction", without_counts_and_with, compacted
    ),
    "another session": Case("another session", response(sessionId=OTHER)),
    "a refusal": Case("a refusal", error(errorDetails=REFUSED)),
    "a refusal in the text": Case("a refusal", error(REFUSED)),
    "a refusal of a model with a name": Case("a refusal", response(isApiErrorMessage=True, errorDetails=REFUSED)),
    "an error further up": Case("an error elsewhere", error("Overloaded", FIRST)),
    "an error behind a link at the root": Case("an error elsewhere", error(), at_a_link),
    "an error at the root": Case("an error at a root", error("Overloaded", None)),
    "a compaction further up": Case("a compaction that goes back", boundary(logicalParentUuid=FIRST)),
    "a compaction long after": Case(
        "more rows than the tracker may remember", lambda rows: rows.boundary(21_000), few=("scan.NEAR",)
    ),
    "two compactions": Case("two compactions", lambda rows: rows.boundary(900), compacted),
    "a compaction on a line with its prompt": Case("two compactions", on_one_line),
    "a compaction at the end": Case("a compaction with nothing behind it", nothing, compacted),
    "a compaction with a response without counts": Case("nothing behind it", response("c", 0), compacted),
    "no session's id": Case("no session's id", prompt(sessionId=None), Rows),
    "an empty session's id": Case("no session's id", response(sessionId=""), Rows),
    "a link that begins a file, without a session's id": Case("no session's id", row("custom", sessionId=None), Rows),
    "rows without a place": Case("no session's id", raw(type="custom", sessionId=""), Rows),
    "no row": Case("no session's id", nothing, Rows),
    "a usage of which a count is missing": Case(
        "a usage without one of its counts", message(model="m", id="c", usage={"input_tokens": 20_400})
    ),
    "a call of which a count is missing": Case(
        "a usage without one of its counts",
        lambda rows: rows.response("c", 20_400)["message"]["usage"].update(iterations=[{"type": "message"}]),
    ),
}


def with_and_without(compiled=scanning.skim):
    """Do something with the compiled part, where there is one, and without."""
    for skim in {compiled, None}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scanning, "skim", skim)
            yield


def gives_up(path, words):
    """Hold that the fast way gives up with these words, and that the public way then gives all that there is."""
    for _ in with_and_without():
        with pytest.raises(NeedsFullReader) as caught:
            Scanner(recording(path)).run()
        assert words in str(caught.value)
        assert read(recording(path)) == RecordingReader(recording(path)).run()


@pytest.mark.parametrize("name", CASES)
def test_what_is_unusual_is_read_the_careful_way(tmp_path, monkeypatch, name):
    case = CASES[name]
    rows = case.start()
    case.add(rows)
    rows.write(tmp_path / "a.jsonl")
    for number in case.few:
        monkeypatch.setattr(f"mala_context.analysis.replay.{number}", 1)
    gives_up(tmp_path / "a.jsonl", case.words)


def test_a_file_that_is_not_there_is_a_problem_of_its_recording(tmp_path):
    gives_up(tmp_path / "gone.jsonl", "cannot be read: No such file")
    assert [each.row for each in read(recording(tmp_path / "gone.jsonl"))[0].problems] == [1]


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
def test_whatever_a_field_says_the_scan_is_right_or_gives_up(tmp_path, field, value):
    """In each row of a transcript, and in all of them."""
    path = tmp_path / "a.jsonl"
    for start in STARTS:
        rows = start().rows
        transcripts = [[*rows[:at], told(rows[at], field, value), *rows[at + 1 :]] for at in range(len(rows))]
        for transcript in (*transcripts, [told(row, field, value) for row in rows]):
            path.write_bytes(dump(transcript))
            careful = RecordingReader(recording(path)).run()
            for _ in with_and_without():
                with contextlib.suppress(NeedsFullReader):
                    assert Scanner(recording(path)).run(BUFFER) == careful
