"""The words of the log lines."""

from types import SimpleNamespace

import pytest

from mala_context.agent.log_lines import compaction_line, context_line, log_values
from mala_context.tracking.events import Compaction
from mala_context.tracking.tracker import ContextTracker


def snapshot(**values):
    known = {"estimate": 126_812, "window": 200_000, "ratio": 0.63406, "exact": True, "window_source": "table"}
    return SimpleNamespace(**{**known, "model": "claude-sonnet-4-5", **values})


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "Context: 63.4% (126,812 of 200,000 tokens), main, claude-sonnet-4-5"),
        ({"exact": False}, "Context: about 63.4% (126,812 of 200,000 tokens), main, claude-sonnet-4-5"),
        ({"window_source": "guess"}, "Context: 63.4% (126,812 of 200,000 (a guess) tokens), main, claude-sonnet-4-5"),
        ({"estimate": None, "ratio": None}, "Context: unknown (of 200,000 tokens), main, claude-sonnet-4-5"),
        ({"model": None}, "Context: 63.4% (126,812 of 200,000 tokens), main, model unknown"),
        ({"ratio": 1.5}, "Context: 150.0% (126,812 of 200,000 tokens), main, claude-sonnet-4-5"),
    ],
)
def test_the_gauge_in_one_line(values, line):
    assert context_line(snapshot(**values)) == line


def test_the_key_values_behind_it_are_of_the_snapshot():
    tracker = ContextTracker(window=1_000, model="m")
    values = log_values(tracker.snapshot())
    assert (values["window"], values["model"], values["source"]) == (1_000, "m", "config")
    assert {name: value for name, value in values.items() if value is None}.keys() == {
        "session",
        "agent",
        "tokens",
        "ratio",
    }


def test_a_subagent_is_named():
    assert ", toolu_1, " in context_line(snapshot(), "toolu_1")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((183_021, 183_021, "auto", 3_200), "Compaction: 183,021 → 24,310 tokens (trigger=auto, 3.2 s)"),
        ((183_021, None, None, None), "Compaction: 183,021 → 24,310 tokens (trigger=unknown)"),
        ((None, None, None, None), "Compaction: unknown → 24,310 tokens (trigger=unknown)"),
        ((None, 190_400, "auto", None), "Compaction: 190,400 → 24,310 tokens (trigger=auto)"),
        (
            (30_029, 190_400, "auto", None),
            "Compaction: 30,029 → 24,310 tokens (trigger=auto), 190,400 by the CLI's own count",
        ),
    ],
)
def test_a_compaction_in_one_line(values, line):
    """Case core-33: the measured size comes first, and the CLI's own estimate beside it."""
    measured, estimated, trigger, milliseconds = values
    before = None if measured is None else snapshot(tokens=measured)
    event = Compaction(None, "s1", trigger, estimated, 9_000, milliseconds)
    assert compaction_line(event, snapshot(tokens=24_310, before=before)) == line
