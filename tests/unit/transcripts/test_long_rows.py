"""Rows too long to be decoded are cut into tokens and shortened, and nothing of them is lost on the way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.transcripts.long_rows import CLOSE, KEPT, OPEN, OUTSIDE, TEXT, Shortening, Tokens, shortened, text_of

SECRET = "sk-ant-" + "k3" * 40


def parts(data, size):
    return [data[start : start + size] for start in range(0, len(data), size)]


def cut(data, size):
    tokens = Tokens()
    found = [token for part in parts(data, size) for token in tokens.feed(part)]
    return [*found, *tokens.finish()]


def split(row, size=50_000):
    """A row shortened, and the text that is not in it."""
    rest = bytearray()
    shortening = Shortening(rest.extend)
    for part in parts(row, size):
        shortening.take(part)
    return shortening.finish(), text_of(bytes(rest))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary() | st.text('ab"\\u20e\n😀é').map(str.encode), st.integers(1, 9))
def test_tokens_are_the_row(data, size):
    assert b"".join(each for _, each in cut(data, size)) == data


@given(values, st.booleans(), st.integers(1, 9))
def test_strings_are_told_from_what_is_outside(value, ascii_only, size):
    """However a row is cut: each token of text is decoded by itself, and joined they are the strings."""
    row = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found, outside = [], b""
    for kind, data in cut(row, size):
        if kind == OPEN:
            found.append("")
        elif kind == TEXT:
            found[-1] += text_of(data)
        elif kind == OUTSIDE:
            outside += data
    assert found == list(strings(value))
    assert b'"' not in outside
    assert sum(kind == CLOSE for kind, _ in cut(row, size)) == len(found)


def strings(value):
    if isinstance(value, str):
        yield value
    for each in value if isinstance(value, list) else ():
        yield from strings(each)
    for key, each in value.items() if isinstance(value, dict) else ():
        yield key
        yield from strings(each)


@given(values, st.integers(1, 9))
def test_a_row_that_fits_is_the_same(value, size):
    row = json.dumps(value).encode()
    assert shortened(parts(row, size)) == row


@given(st.binary())
def test_any_bytes_say_something(data):
    assert isinstance(text_of(data), str)


@pytest.mark.parametrize("unit", ["word ", "é", "😀", "\\", '"', "\n", '\\"', "\ud83d", "€uro,", "a"])
@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "as it is"])
def test_the_end_of_a_long_string_is_left_out(unit, ascii_only):
    long = unit * (200_000 // len(unit))
    value = {"type": "user", "message": {"content": [{"type": "text", "text": long}, {"n": 1}]}, "uuid": "u1"}
    kept, rest = split(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
    found = json.loads(kept.decode("utf-8", "replace"))
    beginning = found["message"]["content"][0].pop("text")
    value["message"]["content"][0].pop("text")
    assert found == value  # every other field is in its place
    assert len(kept) < KEPT + 200
    assert KEPT // 12 - 1_000 <= len(beginning) < len(long)
    if unit != "\ud83d" or ascii_only:  # half a character is no UTF-8
        assert long.startswith(beginning)
        assert rest.endswith(long[len(beginning) + 1_000 :] + "\n")


@pytest.mark.parametrize("place", [KEPT - 300, KEPT - 40, KEPT - 3, KEPT + 2])
@pytest.mark.parametrize("before", [" ", "=", '"', "\n", "é", "\\"])
@pytest.mark.parametrize("size", [1_000, 1 << 18])
def test_no_word_is_cut(place, before, size):
    """Half a secret is not known for one, and half a word is not found: it is in one of the two, whole."""
    text = "x " * (place // 2) + before + SECRET + before + " y" * KEPT
    kept, rest = split(json.dumps({"text": text}).encode(), size)
    beginning = json.loads(kept)["text"]
    assert SECRET in beginning or "sk-ant" not in beginning
    assert SECRET in beginning or SECRET in rest


def test_of_many_long_strings_few_words_are_kept():
    kept, rest = split(json.dumps([f"{n} needle{n} " + "x " * 40_000 for n in range(60)]).encode())
    assert len(kept) < 700_000
    found = json.loads(kept)
    assert [each.split()[0] for each in found] == [str(n) for n in range(60)]
    assert len(rest) + len(kept) > 60 * 80_000


@pytest.mark.parametrize(
    "row",
    [
        b'{"x":[' + b"[]," * 400_000 + b'0],"t":"needle"}',
        b'{"x":[' + b'"ab",' * 220_000 + b'0],"t":"needle"}',
        b'{"x":' * 220_000 + b'"needle"',
    ],
    ids=["lists", "words", "depth"],
)
def test_a_row_of_very_many_values_is_not_kept(row):
    kept, rest = split(row)
    assert kept == b""
    assert "needle" in rest


@pytest.mark.parametrize(("before", "after"), [(5_000_000, 0), (0, 5_000_000), (5_000_000, 5_000_000)])
def test_nul_bytes_around_a_row_are_none_of_it(before, after):
    """A crash of the machine leaves them; the row after them is read, however many they are."""
    row = b'{"uuid":"u1","text":"words"}'
    assert shortened(parts(b"\0" * before + row + b"\0" * after, 50_000)) == row
    assert shortened([b"\0" * (before + after)]) == b""
