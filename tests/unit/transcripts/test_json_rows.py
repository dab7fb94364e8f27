"""The JSON objects on one row of a transcript."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.transcripts import json_rows
from mala_context.transcripts.json_rows import few_objects, objects


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b'{"a":1}{"b":2} {"c":3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        (b'{"a":1}{"b":', [{"a": 1}]),
        (b"[1]", []),
        (b"\xff\x00", []),
        (b"[" * 100_000, []),
        ('{"a":"\u2028"}'.encode(), [{"a": "\u2028"}]),
    ],
)
def test_objects_on_a_line(line, found):
    assert objects(line) == found


def sizes(value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(sizes, parts))


@pytest.mark.parametrize("part", [[], {}, "ab", [[]], {"a": []}], ids=str)
@pytest.mark.parametrize("number", [4_000, 40_000])
def test_of_a_row_of_values_alone_few_are_kept(part, number):
    """Kept in memory, an empty list takes thirty times the bytes that it was written in."""
    usage = {"input_tokens": 1, "output_tokens": 2}
    content = [{"type": "tool_use", "input": [part] * number}, [[part] * 300] * 300]
    row = {"type": "assistant", "message": {"content": content, "usage": usage}, "toolUseResult": [part] * number}
    (found,) = few_objects(json.dumps({**row, "uuid": "u1"}).encode())
    assert (found["type"], found["message"]["usage"], found["uuid"]) == ("assistant", usage, "u1")
    assert found["message"]["content"][0]["type"] == "tool_use"
    assert sizes(found) < 3_000


@pytest.mark.parametrize("text", ["word " * 10_000, '", ["' * 500, "x"])
def test_what_takes_no_more_than_its_bytes_is_kept(text):
    row = {"type": "user", "message": {"content": [{"type": "text", "text": text} for _ in range(20)]}, "n": [[]] * 20}
    assert few_objects(json.dumps(row).encode()) == [row]


def test_a_row_for_which_there_is_no_memory_has_none():
    class Huge(bytes):
        def decode(self, *_):
            raise MemoryError

    assert objects(Huge(b'{"a":1}{"b":2}')) == []  # two on a row: what decodes one alone refuses it


def test_a_row_after_nul_bytes_is_a_row():
    """A crash of the machine leaves them where a row was to stand."""
    assert objects(b"\0\0\0" + b'{"a":1}' + b"\0 \0" + b'{"b":2}\0') == [{"a": 1}, {"b": 2}]
    assert objects(b"\0\0") == []


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "msgspec._core":
            os.kill(os.getpid(), signal.SIGINT)
from mala_context.transcripts.json_rows import objects
sys.meta_path.insert(0, Finder())
try:
    for _ in range(1_500):
        objects(b"{}")
except KeyboardInterrupt:
    print("msgspec" in sys.modules)
"""


def test_ctrl_c_while_msgspec_is_loaded_waits_until_it_is():
    """It swallows what interrupts it there, and one Ctrl-C in twenty ended in a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@given(
    st.dictionaries(st.text(max_size=4), st.recursive(st.none() | st.floats() | st.text() | st.integers(), st.lists))
)
def test_both_decoders_give_the_same(value):
    line = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    msgspec = pytest.importorskip("msgspec")
    found = []
    for decode in (json_rows._slowly, msgspec.json.decode):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_rows, "_errors", (*json_rows._errors, msgspec.MsgspecError))
            patch.setattr(json_rows, "_decode", decode)
            found.append(repr(objects(line)))
    assert found[0] == found[1]
