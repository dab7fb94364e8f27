"""What text costs, and how a session teaches it."""

from __future__ import annotations

import pytest

from mala_context.measure import Counts, Piece
from mala_context.projection import (
    FAMILIES,
    PLACEHOLDER,
    UNITS,
    Interval,
    Ratios,
    family,
    text_tokens,
    unit_tokens,
)


def interval(ratios: Ratios | None = None) -> Interval:
    return Interval({}, ratios or Ratios(), "claude-opus-4-5", lambda: None)


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
        letters = text_tokens(Piece("", Counts(100)), table)
        assert letters < text_tokens(Piece("", Counts(100, digits=100)), table)
        assert letters < text_tokens(Piece("", Counts(100, punctuation=100)), table)
        assert letters < text_tokens(Piece("", Counts(100, cjk=100)), table)


def test_units() -> None:
    assert unit_tokens("attachment:anything") == UNITS["attachment"]
    assert unit_tokens("image") == UNITS["image"]
    assert unit_tokens("unheard of") == 0


def test_the_answer_counts_by_its_output_unless_that_is_a_placeholder() -> None:
    one = interval()
    one.add("response", "word " * 400)
    base = 10_000 + UNITS["request"]
    assert one.projected(10_000, 900, cut=False, parts=1) == base + 900
    assert one.projected(10_000, 1, cut=False, parts=1) > base + 300
    assert one.projected(10_000, 900, cut=True, parts=1) == base
    assert one.projected(10_000, PLACEHOLDER, cut=False, parts=0) == base + PLACEHOLDER


def test_parts_that_came_later_do_not_count_for_an_earlier_look() -> None:
    one = interval()
    one.add("user", "word " * 100)
    before = one.projected(1_000, 100, cut=False, parts=1)
    one.add("user", "word " * 100)
    assert one.projected(1_000, 100, cut=False, parts=1) == before
    assert one.projected(1_000, 100, cut=False, parts=2) > before
    assert one.chars(2) == 1_000


def test_a_later_answer_without_counts_is_text() -> None:
    one = interval()
    one.add("answer", "word " * 100)
    assert one.projected(1_000, 500, cut=False, parts=1) > 1_500 + 100
    new = one.split(0, "claude-opus-4-5")
    assert new.projected(1_000, 500, cut=False, parts=1) == 1_500 + UNITS["request"]
    assert len(one) == 1


def test_length_is_what_counting_says() -> None:
    one = interval()
    one.add("user", [{"type": "tool_result", "content": "abc"}])
    one.add("user", "de")
    assert one.length(2) >= 5
    assert one.chars(1) == 3


def test_closing_teaches_and_lets_the_text_go() -> None:
    ratios = Ratios()
    one = interval(ratios)
    one.add("user", "word " * 20_000)
    expected = one.projected(10_000, 500, cut=False, parts=1)
    grown = round((expected - 10_000) * 1.5)
    assert one.close(grown, 500, cut=False, parts=1) == 100_000
    assert 1.2 < ratios.get("prompt") < 1.5
    assert 1.2 < ratios.get("a tool not seen yet") < 1.5
    assert one.projected(10_000, 500, cut=False, parts=1) == expected


def test_context_that_no_row_shows_teaches_nothing() -> None:
    ratios = Ratios()
    ratios.learn({"Bash": 1_000.0}, 50_000, 4_000)
    ratios.learn({"Bash": 1_000.0}, 10, 4_000)
    ratios.learn({}, 10, 0)
    assert ratios.get("Bash") == 1.0
    assert ratios.chars_per_token("claude-opus-4-5") == 3.0


def test_characters_a_token_come_to_what_the_session_shows() -> None:
    ratios = Ratios()
    ratios.learn({"Bash": 50_000.0}, 50_000, 200_000)
    assert ratios.chars_per_token("claude-opus-4-5") == pytest.approx(4.0, abs=0.03)
    assert ratios.get("Bash") == 1.0


def test_a_prefix_is_an_interval_of_its_own() -> None:
    one = interval()
    one.add("user", "abc")
    one.add("user", "defg")
    new = one.prefix(1)
    new.add("user", "x")
    assert (len(new), new.chars(2)) == (2, 4)
    assert (len(one), one.chars(2)) == (2, 7)
