"""Text that shows itself and does nothing else."""

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context._util.text import ODD, blanked, printable

SURROGATES = st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, categories=("Cs",))
CODES = st.sampled_from([chr(code) for first, last in ODD for code in (first, last)]) | SURROGATES
TEXTS = st.lists(st.text() | CODES).map("".join)
ACTING = {*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}


def acts(letter):
    return ord(letter) in ACTING or unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\nb\tc\r", "a\\x0ab\\x09c\\x0d"),
        ("\x7f\x85\x9b31m", "\\x7f\\x85\\x9b31m"),
        ("gnp\u202e.exe\u2066\u2069\u200f", "gnp\\u202e.exe\\u2066\\u2069\\u200f"),
        ("\u2028\u2029\ud800\udcff", "\\u2028\\u2029\\ud800\\udcff"),
        ("hid\U000e0041den\ufeff\xad", "hid\\U000e0041den\\ufeff\\xad"),
        (OSError("\x1b"), "\\x1b"),
        (7, "7"),
    ],
)
def test_what_acts_is_spelt_out(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text", ["", "plain", "naïve 漢字 →✓", "👩\u200d💻", "\u0645\u06cc\u200c\u062e", "\xa0\u3000", "\ue0b0", "C:\\x1b"]
)
def test_what_is_read_stays(text):
    assert printable(text) == text
    assert blanked(text) == text


def test_lines_stay_where_they_are_wanted():
    assert printable("a\n\tb\r\x1b", lines=True) == "a\n\tb\\x0d\\x1b"
    assert printable("a\n") == "a\\x0a"


@given(TEXTS)
def test_nothing_that_acts_is_left(text):
    shown = printable(text)
    assert not any(map(acts, shown))
    shown.encode()
    assert printable(shown) == shown


@given(TEXTS)
def test_lines_are_the_only_exception(text):
    parts = text.replace("\t", "\n").split("\n")
    assert printable(text.replace("\t", "\n"), lines=True) == "\n".join(map(printable, parts))


@given(TEXTS)
def test_blanks_take_as_much_room(text):
    assert len(blanked(text)) == len(text)
    assert not any(map(acts, blanked(text)))
    assert all(new in {old, " "} for old, new in zip(text, blanked(text), strict=True))


@given(TEXTS)
def test_other_letters_stay_in_order(text):
    kept = [letter for letter in text if letter != "\\" and printable(letter) == letter]
    left = iter(printable(text))
    assert all(letter in left for letter in kept)


def test_it_costs_a_hook_nothing():
    code = "import __future__, sys; old = {*sys.modules}; import mala_context._util.text; print({*sys.modules} - old)"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.strip("{}\n").replace("'", "").split(", ")) <= {
        "mala_context",
        "mala_context._util",
        "mala_context._util.text",
    }
