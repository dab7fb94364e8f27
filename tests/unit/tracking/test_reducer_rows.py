"""Rows of transcripts, and what must hold after each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mala_context.tracking.events import Compaction, Event, Reset, Summary, WindowReport
from mala_context.tracking.readers import read_row
from mala_context.tracking.tracker import ContextSnapshot, ContextTracker

DATA = Path(__file__).parents[2] / "data" / "core"
CASES: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())["cases"]


def rows(line: bytes) -> list[Any]:
    """Decode the objects on a line."""
    decoder, found, text = json.JSONDecoder(), [], line.decode().strip()
    while text:
        row, end = decoder.raw_decode(text)
        found.append(row)
        text = text[end:].lstrip()
    return found


def play(tracker: ContextTracker, name: str) -> list[tuple[list[Event], ContextSnapshot]]:
    """Feed a file and return, by row, its events and the snapshot after it."""
    steps = []
    for line in (DATA / name).read_bytes().splitlines():
        events = [event for row in rows(line) for event in read_row(row)]
        for event in events:
            tracker.apply(event)
        steps.append((events, tracker.snapshot()))
    return steps


@pytest.fixture(params=CASES, ids=[case["rows"] for case in CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


def test_the_sizes_after_each_row(case: dict[str, Any]) -> None:
    tracker = ContextTracker()
    after = case["after"]
    for number, line in enumerate((DATA / case["rows"]).read_bytes().splitlines(), 1):
        for row in rows(line):
            for event in read_row(row):
                tracker.apply(event)
        wanted = dict(after.get(str(number), {}))
        if "subagents" in wanted:
            assert [each.tokens for each in tracker.agents().values()] == wanted.pop("subagents")
        snapshot = tracker.snapshot()
        assert {key: getattr(snapshot, key) for key in wanted} == wanted
        assert snapshot.tokens != 0
        assert snapshot.exact is (snapshot.tokens is not None)


def test_what_is_counted_in_all(case: dict[str, Any]) -> None:
    tracker = ContextTracker()
    steps = play(tracker, case["rows"])
    snapshot = tracker.snapshot()
    assert snapshot.responses == case["responses"]
    assert snapshot.compactions == len(case["compactions"])
    assert snapshot.resets == len(case["resets"])
    assert tracker.sessions_seen == 1
    if "window" in case:
        assert snapshot.window == case["window"]
    for wanted in case["compactions"]:
        found = [e for e in steps[wanted["row"] - 1][0] if isinstance(e, Compaction | Summary)]
        assert found
        if isinstance(found[0], Compaction):
            assert [found[0].trigger, found[0].pre_tokens, found[0].post_tokens] == [
                wanted["trigger"],
                wanted["pre_tokens"],
                wanted["post_tokens"],
            ]
    for row in case["resets"]:
        assert any(isinstance(event, Reset) for event in steps[row - 1][0])
    for row, (tokens, window) in case.get("reports", {}).items():
        assert any(
            isinstance(event, WindowReport) and (event.tokens, event.window) == (tokens, window)
            for event in steps[int(row) - 1][0]
        )


def test_rows_fed_twice_change_nothing(case: dict[str, Any]) -> None:
    tracker = ContextTracker()
    play(tracker, case["rows"])
    once = tracker.snapshot().as_dict()
    play(tracker, case["rows"])
    twice = tracker.snapshot().as_dict()
    for key in ("tokens", "responses", "compactions", "resets", "projected"):
        assert twice[key] == once[key]


def late(tracker: ContextTracker, *, timed: bool) -> list[int | None]:
    """Play two responses and rows of a hook that come late and carry the chain; return the sizes after each row."""
    counts = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 100}

    def answer(uuid: str, parent: str, tokens: int) -> dict[str, Any]:
        content = [{"type": "tool_use", "id": f"call-{uuid}", "name": "Bash", "input": {}}]
        usage = {**counts, "input_tokens": tokens}
        message = {"id": f"msg-{uuid}", "model": "claude-opus-4-6", "usage": usage, "content": content}
        return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message}

    def user(uuid: str, parent: str | None, content: Any) -> dict[str, Any]:
        return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"role": "user", "content": content}}

    def given(uuid: str, parent: str, call: str, words: int) -> dict[str, Any]:
        return user(uuid, parent, [{"type": "tool_result", "tool_use_id": f"call-{call}", "content": "word " * words}])

    told = [
        (1, user("u1", None, "begin")),
        (2, answer("a1", "u1", 30_000)),
        (2, {"type": "progress", "uuid": "p1", "parentUuid": "a1"}),
        (4, given("u2", "a1", "a1", 3_000)),
        (5, answer("a2", "u2", 34_466)),
        (3, {"type": "progress", "uuid": "p2", "parentUuid": "p1"}),
        (6, given("u3", "p2", "a2", 900)),
    ]
    if timed:  # a local command's rows, written late too, and the prompt that goes on from them
        told += [(3, user("u4", "a1", "a command's own words")), (7, user("u5", "u4", "and now"))]
    sizes = []
    for second, row in told:
        when = {"timestamp": f"2026-05-01T10:00:0{second}.000Z"} if timed else {}
        for event in read_row({**row, "sessionId": "s", **when}):
            tracker.apply(event)
        sizes.append(tracker.snapshot().tokens)
    return sizes


@pytest.mark.parametrize("timed", [False, True])
def test_rows_that_come_late_do_not_take_the_conversation_back(timed: bool) -> None:
    """Case core-27: a progress row of an earlier response carries the chain, and nobody went back."""
    tracker = ContextTracker()
    sizes = late(tracker, timed=timed)
    assert sizes[4:] == [34_466] * (len(sizes) - 4)
    projected = tracker.snapshot().projected
    assert projected is not None
    assert 35_400 < projected < 36_400


def test_a_rewind_is_newer_than_what_it_leaves() -> None:
    tracker = ContextTracker()
    late(tracker, timed=True)
    row = {"type": "user", "uuid": "u9", "parentUuid": "u2", "message": {"content": "another way"}, "sessionId": "s"}
    for event in read_row({**row, "timestamp": "2026-05-01T10:00:09.000Z"}):
        tracker.apply(event)
    assert tracker.snapshot().tokens == 30_000
