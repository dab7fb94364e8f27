"""Figures as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context._util.formatting import percent, plural, size_text, window_words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (plural(0, "session"), "0 sessions"),
        (plural(1, "session"), "1 session"),
        (plural(2_000, "session"), "2,000 sessions"),
        (plural(1, "copy", "copies"), "1 copy"),
        (plural(2, "copy", "copies"), "2 copies"),
        (percent(0.634), "63.4%"),
        (percent(1.05), "105.0%"),
        (size_text(0), "0 B"),
        (size_text(1023), "1023 B"),
        (size_text(12_595), "12.3 KB"),
        (size_text(1024**2), "1.0 MB"),
        (size_text(5 * 1024**3), "5.0 GB"),
        (size_text(1024**4), "1.0 TB"),
        (size_text(2048 * 1024**4), "2048.0 TB"),
    ],
)
def test_figures_read_well(words, said):
    assert words == said


UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}


@given(st.integers(0, 1 << 60))
def test_a_size_in_words_is_the_size_to_a_twentieth_of_its_unit(count):
    number, unit = size_text(count).split()
    assert abs(float(number) * UNITS[unit] - count) <= 0.051 * UNITS[unit]


def test_a_guessed_window_says_so():
    assert (window_words(200_000, "table"), window_words(1_000_000, "guess")) == ("200,000", "1,000,000 (a guess)")
