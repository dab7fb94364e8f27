"""What text and things cost, by family of models."""

from __future__ import annotations

import pytest

from mala_context.tracking.projection import Interval, Ratios
from mala_context.tracking.text_counts import Countable, Counts, count_text
from mala_context.tracking.token_costs import (
    FAMILIES,
    UNITS,
    Family,
    family,
    fixed_tokens,
    text_tokens,
    thinking_tokens,
    thought_in,
    unit_tokens,
)


def interval(ratios: Ratios | None = None) -> Interval:
    return Interval(ratios or Ratios(), "claude-opus-4-5")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-opus-4-7", "dense"),
        ("claude-opus-4-10", "dense"),
        ("claude-sonnet-5", "dense"),
        ("claude-opus-4-6", "classic"),
        ("claude-opus-4-20250514", "classic"),
        ("claude-3-5-sonnet-20241022", "classic"),
        (None, "classic"),
    ],
)
def test_families(model: str | None, kind: str) -> None:
    assert family(model) == kind


def test_digits_and_punctuation_cost_more_than_letters() -> None:
    for table in FAMILIES.values():
        letters = text_tokens(Countable("", count_text("word " * 20)), table)
        for other in ("12, " * 25, "{}; " * 25, "字" * 100):
            assert letters < text_tokens(Countable("", count_text(other)), table)


@pytest.mark.parametrize(
    ("unit", "tokens"),
    [
        ("tool_reference:WebSearch", 340),
        ("tool_reference:Monitor", 2_550),
        ("tool_reference:TaskUpdate", 1_199),
        ("tool_reference:mcp__server__tool", 500),
        ("tool_reference:Another", 800),
        ("tool_reference", 800),
    ],
)
def test_a_reference_costs_what_its_tools_description_does(unit: str, tokens: int) -> None:
    """Case core-31."""
    assert unit_tokens(unit, "classic") == unit_tokens(unit, "dense") == tokens


def test_units() -> None:
    for kind, table in UNITS.items():
        assert unit_tokens("attachment:anything", kind) == table["attachment"]
        assert unit_tokens("unheard of", kind) == 0
    assert fixed_tokens(Countable("", Counts(), "image", (750, 100)), "claude-opus-5") == 100


def test_what_text_costs_by_the_table() -> None:
    """Each price is that of the count of its name."""
    assert Counts._fields[1:] == Family._fields
    for table in FAMILIES.values():
        for name in Family._fields:
            assert text_tokens(Countable("", Counts(**{name: 10})), table) == pytest.approx(10 * getattr(table, name))
    assert text_tokens(Countable("image", Counts(7)), FAMILIES["dense"]) == 0


def test_thinking_is_that_of_answers_alone() -> None:
    block = {"type": "thinking", "thinking": "", "signature": "x" * 1_000}
    once = thinking_tokens(1_000, "claude-sonnet-4-5")
    parts = [("response", [block, {"type": "text", "text": "yes"}]), ("user", [block]), ("answer", [block])]
    assert thought_in(parts, "claude-sonnet-4-5") == pytest.approx(2 * once)
    assert thought_in([("response", "words"), ("answer", None)], "claude-sonnet-4-5") == 0
