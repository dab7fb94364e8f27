"""Where the CLI compacts by itself, as its variable and its settings say."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.auto_compact import (
    AUTO_COMPACT_WINDOW,
    LEAST_AUTO_WINDOW,
    OFF_SWITCHES,
    auto_compact_threshold,
    auto_compact_window_of,
    read_auto_compact_window,
)


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("200000", 200_000),
        (" 200k ", 200_000),
        ("1.5M", 1_500_000),
        (200_000, 200_000),
        (150e3, 150_000),
        ("50000", 100_000),
        ("150K", 150_000),
        ("150 k", 150_000),
        (".15m", 150_000),
        ("+.15m", 150_000),
        ("1e5", 100_000),
        ("2e5", 200_000),
        ("15e1k", 150_000),
        ("150000.7", 150_000),
        ("150000abc", 150_000),
        ("150abck", 150_000),
        ("150mk", 150_000),
        ("150kb", 100_000),
        ("1g", 100_000),
        ("1..5m", 1_000_000),
        ("150_000", 150_000),
        ("150,000", 150_000),
        ("+150,000", 150_000),
        ("150 000", 150_000),
        ("150000,", 150_000),
        ("1,500,000", 1_500_000),
        ("150,000abc", 100_000),
        ("1500,000", 100_000),
        ("150,0000", 100_000),
        ("1,150_000", 100_000),
        ("150  000", 100_000),
        ("15_0k", 100_000),
        ("0,150k", None),
        ("1", 100_000),
        ("1e-1m", 100_000),
        ("1e13", 10**12),
        ("1e400", None),
        ("0.99", None),
        ("0x24000", None),
        ("true", None),
        ("m150", None),
        ("$150000", None),
        ("\uff1150000", None),
        pytest.param("9" * 1_000_000, None, id="a million nines"),
        pytest.param(10**5000, 10**12, id="10**5000"),
        (float("inf"), None),
        (0.5, None),
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
    code = "import sys; old = {*sys.modules}; import mala_context.tracking.auto_compact; print(*{*sys.modules} - old)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "mala_context",
        "mala_context.tracking",
        "mala_context.tracking.auto_compact",
        "__future__",
    }


@pytest.mark.parametrize("name", OFF_SWITCHES)
@pytest.mark.parametrize(
    ("value", "window"),
    [("1", None), (" TRUE ", None), ("Yes", None), ("on", None), (True, None), (1, None)]
    + [(each, 150_000) for each in ("0", "", "off", "no", "false", "2", None, "x")],
)
def test_a_window_counts_unless_a_switch_is_on(name, value, window):
    assert auto_compact_window_of({AUTO_COMPACT_WINDOW: "150k", name: value}) == window
    assert auto_compact_window_of({name: value}) is None
