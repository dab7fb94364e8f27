"""Figures as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context._util.text import (
    percent,
    plural,
    size_bytes,
    size_text,
    utc_seconds,
    utc_text,
    version_numbers,
    window_words,
)


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
        (size_text(999), "999 B"),
        (size_text(12_595), "12.6 KB"),
        (size_text(999_949), "999.9 KB"),
        (size_text(999_950), "1.0 MB"),
        (size_text(5 * 10**9), "5.0 GB"),
        (size_text(10**12), "1.0 TB"),
        (size_text(2048 * 10**12), "2048.0 TB"),
    ],
)
def test_figures_read_well(words, said):
    assert words == said


UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@given(st.integers(0, 1 << 60))
def test_a_size_in_words_is_the_size_to_a_twentieth_of_its_unit(count):
    number, unit = size_text(count).split()
    assert abs(float(number) * UNITS[unit] - count) <= 0.051 * UNITS[unit]


def test_a_guessed_window_says_so():
    assert (window_words(200_000, "table"), window_words(1_000_000, "guess")) == ("200,000", "1,000,000 (a guess)")


@given(st.integers(1, 1 << 60))
def test_a_printed_size_is_read_back_as_about_the_same_size(count):
    assert abs(size_bytes(size_text(count)) - count) <= max(0, 0.06 * count)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("5GB", 5 * 10**9),
        ("5 GiB", 5 * 2**30),
        ("1.5 kb", 1500),
        ("1.5KiB", 1536),
        ("7", 7),
        ("7B", 7),
        ("2tb", 2 * 10**12),
        ("3k", 3000),
        ("1_000", 1000),
    ],
)
def test_sizes_have_one_unit_everywhere(text, count):
    assert size_bytes(text) == count


NO_SIZES = ["", "GB", "-1", "0", "0.1", "5XB", "5 GB more", "nan", "inf", "infGB", "1e9", "KBMB", "5iB", "9999999999TB"]


@pytest.mark.parametrize("text", [*NO_SIZES, "9" * 5000, "\N{ARABIC-INDIC DIGIT FIVE}GB"])
def test_a_text_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        size_bytes(text)


def test_a_time_in_seconds_and_back():
    assert utc_text(60.0) == "1970-01-01T00:01:00Z"
    assert utc_seconds("1970-01-01T00:01:00Z") == utc_seconds("1970-01-01T01:01:00+01:00") == 60.0
    assert utc_seconds("1970-01-01T00:01:00") == 60.0  # without a zone it is UTC, wherever this runs
    assert [utc_seconds(each) for each in ("", "yesterday", None, 60)] == [None] * 4


def test_versions_compare():
    assert version_numbers("2.1.332") > version_numbers("2.1.99") > version_numbers("2.0")
    assert version_numbers("2.x.1") == (2, 0, 1)
    assert version_numbers("1.0rc2") == (1, 0)
    assert version_numbers(f"\N{ARABIC-INDIC DIGIT FIVE}.{'9' * 5000}.1") == (0, 999_999_999, 1)
    assert not any(version_numbers(""))
