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
