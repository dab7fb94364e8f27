"""The arithmetic of a snapshot, and its keys."""

from __future__ import annotations

import json

import pytest

from mala_context.tracking.snapshot import ContextSnapshot
from mala_context.tracking.tracker import ContextTracker
from tests.helpers.sdk_stream import assistant, feed, tool_result


@pytest.fixture
def snapshot() -> ContextSnapshot:
    tracker = ContextTracker(window=100_000)
    feed(tracker, assistant("m", 60_000, output=100))
    return tracker.snapshot()


def test_unknown_stays_unknown() -> None:
    empty = ContextTracker().snapshot()
    for name in ("tokens", "ratio", "usable_ratio", "tokens_left", "output_tokens"):
        assert getattr(empty, name) is None
    assert (empty.projected, empty.projected_by_table, empty.cli_estimate) == (None, None, None)
    assert (empty.exact, empty.accuracy) == (False, "unknown")


def test_ratios(snapshot: ContextSnapshot) -> None:
    assert (snapshot.ratio, snapshot.tokens_left) == (0.6, 40_000)
    full = snapshot._replace(tokens=120_000, estimate=120_000)
    assert (full.ratio, full.tokens_left) == (1.2, 0)
    usable = snapshot._replace(auto_compact_threshold=80_000)
    assert (usable.usable_ratio, usable.tokens_left) == (0.75, 20_000)


def test_it_is_frozen(snapshot: ContextSnapshot) -> None:
    with pytest.raises(AttributeError):
        snapshot.tokens = 1  # type: ignore[misc]


def test_its_dict_is_json_and_has_every_number(snapshot: ContextSnapshot) -> None:
    values = json.loads(json.dumps(snapshot.as_dict()))
    assert values["projected"] == snapshot.projected
    assert values["cli_estimate"] == 60_100
    assert {"ratio", "usable_ratio", "tokens_left", "window_source", "event", "estimator"} <= set(values)
    assert "interval" not in values
    assert "60000" in repr(snapshot)


def test_by_the_table_a_request_is_what_it_is_where_the_session_taught_nothing() -> None:
    tracker = ContextTracker()
    feed(tracker, assistant("m1", 20_000, output=400, model="claude-opus-6"), tool_result("word " * 2_000))
    fresh = tracker.snapshot()
    assert fresh.projected_by_table == fresh.projected
    feed(tracker, assistant("m2", 26_000, output=400, model="claude-opus-6"), tool_result("word " * 2_000))
    taught = tracker.snapshot()
    assert fresh.projected is not None
    assert taught.projected_by_table == 26_000 + fresh.projected - 20_000
    assert taught.projected is not None
    assert taught.projected > taught.projected_by_table
