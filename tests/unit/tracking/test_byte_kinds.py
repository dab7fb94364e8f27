"""A text's bytes by kind: the compiled part counts as Python does, whatever the text."""

import importlib
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mala_context.tracking import byte_kinds
from mala_context.tracking.byte_kinds import BASE64, BITS, runs_slowly, tally_slowly

compiled = pytest.importorskip(
    "mala_context.tracking._byte_kinds", reason="there was no compiler where this was installed"
)

TEXTS = st.one_of(
    st.text(st.characters()),  # half surrogate pairs too
    st.lists(st.sampled_from(["a", "A", "9", ",", " ", "\t", "\n", "\0", "é", "字", "😀", "\ud800"])).map("".join),
    st.lists(st.tuples(st.sampled_from(["a", "A/", "é", " ", "\ud800", "字"]), st.integers(0, 130))).map(
        lambda parts: "".join(text * count for text, count in parts)
    ),
)


@given(TEXTS)
@example("A" * 25_000)
@example("x" * 254 + "AB" + "  ")  # a run over the end of what is added up at once
@example("aB" * 128 + "é\ud800" * 200)
def test_a_tally_is_the_same_compiled(text):
    assert compiled.tally(text, BITS) == tally_slowly(text, BITS)


def test_a_tally_says_how_many_there_are_of_each_kind():
    words, letters, turns, capitals, numbers, digits, signs, punctuation, gaps, lines, cjk, other = tally_slowly(
        "camelCase HTTP  12 - (3)\n字é", BITS
    )
    assert (words, letters, turns, capitals) == (2, 13, 1, 1)
    assert (numbers, digits, signs, punctuation) == (2, 3, 3, 3)
    assert (gaps, lines, cjk, other) == (1, 1, 1, 1)


@given(TEXTS, st.sampled_from([1, 2, 7, 60]))
@example("a" * 59 + " " + "b" * 60 + "é" + "c" * 61, 60)
@example("é" * 70 + "A" * 60, 60)
@example("", 1)
def test_runs_are_the_same_compiled(text, least):
    found = compiled.runs(text, BASE64, least)
    assert found == runs_slowly(text, BASE64, least)
    for start, stop in found:
        assert stop - start >= least
        assert text[start:stop].isascii()


def test_the_compiled_part_is_used():
    assert (byte_kinds.tally, byte_kinds.runs) == (compiled.tally, compiled.runs)


def test_without_it_python_counts(monkeypatch):
    monkeypatch.setitem(sys.modules, "mala_context.tracking._byte_kinds", None)
    spec = importlib.util.find_spec("mala_context.tracking.byte_kinds")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tally is module.tally_slowly
    assert module.runs is module.runs_slowly


@pytest.mark.parametrize(
    "given",
    [
        lambda: compiled.tally(b"bytes", BITS),
        lambda: compiled.tally("text", BITS[:255]),
        lambda: compiled.tally("text"),
        lambda: compiled.runs("text", bytearray(BASE64), 60),
        lambda: compiled.runs("text", BASE64, 6.5),
        lambda: compiled.runs(None, BASE64, 60),
        compiled.runs,
    ],
)
def test_what_is_no_text_or_no_table_is_refused(given):
    with pytest.raises(TypeError):
        given()


@pytest.mark.parametrize("least", [0, -1])
def test_a_run_of_nothing_is_refused(least):
    with pytest.raises(ValueError, match="a run has a byte or more"):
        compiled.runs("text", BASE64, least)
