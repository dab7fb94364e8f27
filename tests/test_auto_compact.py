"""Where the CLI compacts by itself, as its variable and its settings say."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.auto_compact import LEAST_AUTO_WINDOW, auto_compact_threshold, read_auto_compact_window


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("200000", 200_000),
        (" 200k ", 200_000),
        ("1.5M", 1_500_000),
        (200_000, 200_000),
        (150e3, 150_000),
        ("50000", 100_000),
        ("auto", None),
        ("", None),
        ("k", None),
        (None, None),
        (True, None),
        ("-1", None),
        ("0", None),
        ("inf", None),
        ("nan", None),
        (["200k"], None),
    ],
)
def test_reads_windows_as_the_cli_does(value, tokens):
    assert read_auto_compact_window(value) == tokens


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans()))
def test_whatever_is_set_gives_a_window_of_the_clis_or_none(value):
    tokens = read_auto_compact_window(value)
    assert tokens is None or tokens >= LEAST_AUTO_WINDOW


@pytest.mark.parametrize(
    ("window", "auto", "threshold"),
    [(200_000, 200_000, 167_000), (1_000_000, 150_000, 117_000), (200_000, None, None), (20_000, 200_000, None)],
)
def test_the_threshold_is_what_the_cli_keeps_free_below_the_smaller_window(window, auto, threshold):
    assert auto_compact_threshold(window, auto) == threshold


def test_it_imports_nothing():
    code = "import sys; before = set(sys.modules); import mala_context.auto_compact; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"mala_context", "mala_context.auto_compact", "__future__"}
