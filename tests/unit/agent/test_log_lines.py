"""The words of the log lines."""

from types import SimpleNamespace

import pytest

from mala_context.agent.log_lines import compaction_line, context_line, log_values
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
        ((183_021, 24_310, "auto", 3_200), "Compaction: 183,021 → 24,310 tokens (trigger=auto, 3.2 s)"),
        ((None, 0, None, None), "Compaction: unknown → 0 tokens (trigger=unknown)"),
    ],
)
def test_a_compaction_in_one_line(values, line):
    assert compaction_line(*values) == line
