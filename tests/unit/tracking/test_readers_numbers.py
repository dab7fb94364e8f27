"""Numbers that come from text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.guard.overflow import overflow_of
from mala_context.tracking.events import Refusal, TurnEnd
from mala_context.tracking.readers.parts import number_in, parse_context_text, refusal

HUGE = ["9" * 400, "9" * 5_000, "1" + "0" * 400, "9," * 300 + "9", str(1 << 50), "9" * 19]


@pytest.mark.parametrize(
    ("words", "unit", "number"),
    [("27", "k", 27_000), ("1,234", "", 1_234), ("62.5", "K", 62_500), ("1", "m", 10**6), ("1_000", "", 1_000)],
)
def test_what_is_said_is_read(words, unit, number):
    assert number_in(words, unit) == number


@pytest.mark.parametrize("words", [*HUGE, "", ".", "1.2.3", ","])
def test_what_is_no_number_of_tokens_is_none(words):
    assert number_in(words) is None
    assert number_in(words, "m") is None


@given(st.text("0123456789,._", max_size=40), st.sampled_from(["", "k", "M"]))
def test_any_digits_are_a_bounded_number_or_none(words, unit):
    number = number_in(words, unit)
    assert number is None or 0 <= number < 1 << 50


@pytest.mark.parametrize("huge", HUGE)
def test_no_text_with_a_huge_number_stops_anything_or_becomes_a_window(huge):
    assert parse_context_text(f"{huge}/200k tokens (14%)") is None
    assert parse_context_text(f"27k/{huge} tokens (14%)") is None
    assert refusal(f"prompt is too long: {huge} tokens > {huge} maximum", None, "s") == ()
    assert refusal(f"prompt is too long: 200001 tokens > {huge} maximum", None, "s") == (
        Refusal(None, "s", 200_001, None),
    )
    words = f"prompt is too long: {huge} tokens > {huge} maximum"
    found = overflow_of(TurnEnd("s", None, is_error=True, result=words))
    assert found is None or (found.tokens, found.maximum) == (None, None)
