"""What text and things cost, by family of models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.projection import Interval, Ratios
from mala_context.tracking.text_counts import Countable, Counts, Length, count_text
from mala_context.tracking.token_costs import (
    FAMILIES,
    UNITS,
    Family,
    family,
    fixed_tokens,
    is_measured,
    rough_tokens,
    text_tokens,
    thinking_tokens,
    thought_in,
    unit_tokens,
)
from tests.helpers.redacted import redacted


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


@pytest.mark.parametrize(
    ("model", "measured"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("claude-sonnet-4-5", True),
        ("us.anthropic.claude-opus-4-8-v1:0", True),
        ("claude-fable-5[1m]", True),
        ("claude-opus-6", False),
        ("claude-opus-50", False),
        ("glm-5.2", False),
        ("opus", False),
        ("", False),
        (None, False),
    ],
)
def test_a_newer_model_and_one_of_others_is_not_measured(model, measured):
    assert is_measured(model) is measured


LONG_TEXTS = [
    "word " * 2_000,
    "x = [1, 2, 3]\n" * 900,
    "1 2 3 " * 900,
    "+-" * 2_000,
    "字" * 3_000,
    "é" * 1_500,
    "a",
    "",
]


PARTS = {
    "user": lambda text: [{"type": "tool_result", "tool_use_id": "t", "content": text}],
    "response": lambda text: [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": text}}],
    "attachment": lambda text: {"type": "edited_text_file", "filename": "a", "snippet": text},
    "thought": lambda text: [redacted(len(text)), {"type": "thinking", "thinking": text, "signature": text}],
}


@given(
    st.sampled_from(["claude-sonnet-4-5", "claude-opus-5"]),
    st.lists(
        st.tuples(st.sampled_from(list(PARTS)), st.sampled_from(LONG_TEXTS)),
        max_size=4,
    ),
)
def test_a_glance_at_text_has_its_price_within_its_bounds(model, given):
    parts = [("response" if kind == "thought" else kind, PARTS[kind](text)) for kind, text in given]
    for answers in (True, False):
        least, most = rough_tokens(parts, model, answers=answers)
        held = [(kind, content) for kind, content in parts if answers or kind != "response"]
        price = Interval(Ratios(), model, held).projected(0, 1, cut=False, parts=len(held))
        assert least <= price <= most + 1


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image", "source": {"data": "aGVsbG8" * 900}}],
        [{"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "Monitor"}]}],
        [{"type": "tool_use", "id": "t", "name": "ExitPlanMode", "input": {"plan": "word " * 2_000}}],
        Length(4_000),
    ],
)
def test_a_glance_does_not_do_where_the_cost_is_not_the_text(content):
    assert rough_tokens([("response", content)], "claude-opus-5", answers=True) == (0, float("inf"))
    assert rough_tokens([("user", "word")], "glm-5.2", answers=True) == (0, float("inf"))
