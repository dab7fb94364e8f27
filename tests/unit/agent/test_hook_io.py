"""What a hook is told."""

import io
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context._util.safe_open import reader_of
from mala_context.agent import hook_io
from mala_context.agent.claude_code import command_hooks
from mala_context.agent.hook_io import (
    MOST_INPUT,
    add_context,
    deny,
    object_from,
    replace_output,
    stop,
    text_in,
    texts_in,
)
from tests.helpers.slow_input import Trickle

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(JSON)
def test_a_text_is_one_or_nothing(value):
    assert text_in({"cwd": value}, "cwd") == (value if isinstance(value, str) and value != "" else None)


@pytest.mark.parametrize("given", [{}, {"cwd": None}, {"cwd": ""}, {"cwd": ["/x"]}])
def test_what_is_missing_empty_or_no_text_is_nothing(given):
    assert text_in(given, "cwd") is None


def test_several_come_in_their_order():
    assert texts_in({"cwd": "/x", "session_id": 3, "agent_id": "a"}, "agent_id", "session_id", "cwd") == [
        "a",
        None,
        "/x",
    ]


class InPieces:
    """Returns these bytes, at most so many at a time, in the given sizes over and over."""

    def __init__(self, data, sizes):
        self.data, self.sizes, self.calls = io.BytesIO(data), sizes, 0

    def __call__(self, size):
        self.calls += 1
        return self.data.read(min(size, self.sizes[self.calls % len(self.sizes)]))


@given(
    st.dictionaries(st.text(), JSON, max_size=3),
    st.lists(st.integers(1, 30), min_size=1),
    st.sampled_from(["utf-8", "utf-16"]),
)
def test_an_object_is_the_same_in_whatever_pieces_it_comes(value, sizes, encoding):
    data = json.dumps(value, ensure_ascii=False).encode(encoding, "surrogatepass")
    assert object_from(InPieces(data, sizes)) == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b'{"a": 1', "no JSON"),
        (b"\xff{}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
    ],
)
def test_what_is_no_object_is_said(data, words):
    with pytest.raises(ValueError, match=f"^{words}$"):
        object_from(io.BytesIO(data).read)


def test_what_cannot_be_read_is_for_the_caller():
    def fail(_size):
        raise IsADirectoryError(21, "Is a directory")

    with pytest.raises(IsADirectoryError):
        object_from(fail)


def test_no_more_is_read_than_is_wanted(monkeypatch):
    monkeypatch.setattr(hook_io, "MOST_INPUT", 10)
    exact, longer = io.BytesIO(b'{"a": 123}'), io.BytesIO(b'{"a": 1234}')
    assert object_from(exact.read) == {"a": 123}
    with pytest.raises(ValueError, match="no JSON"):
        object_from(longer.read)
    assert longer.tell() == 10


@pytest.mark.parametrize("size", [64 << 10, 4 << 10])
def test_an_endless_input_in_small_pieces_is_copied_a_few_times_at_most(size):
    with Trickle(size) as endless, pytest.raises(ValueError, match="no JSON"):
        object_from(endless)
    assert endless.given == MOST_INPUT
    assert endless.taken < 4 * MOST_INPUT


@pytest.fixture
def pipe():
    ours, theirs = os.pipe()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_number_of_any_size_hides_no_field_beside_it(sign, digits):
    found = object_from(io.BytesIO(b'{"n": [%s%s], "session_id": "s1"}' % (sign.encode(), b"9" * digits)).read)
    assert found["session_id"] == "s1"


@pytest.mark.parametrize("behind", [b"", b"\n", b" \r\n", b"\t", b"\n\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-be"])
def test_an_object_counts_once_it_is_whole_though_the_pipe_stays_open(pipe, encoding, behind):
    os.write(pipe[1], (json.dumps({"a": {"b": "}"}}) + behind.decode()).encode(encoding))
    assert object_from(*reader_of(pipe[0])) == {"a": {"b": "}"}}


def test_half_an_object_is_waited_for_no_longer_than_said(pipe, monkeypatch):
    monkeypatch.setattr(hook_io, "INPUT_SECONDS", 0.2)
    os.write(pipe[1], b'{"a": {"b": 1}')
    with pytest.raises(ValueError, match=r"^not whole$"):
        object_from(*reader_of(pipe[0]))


@pytest.mark.parametrize("given", [b"[1]", b'"words"', b"7"])
def test_what_is_whole_and_no_object_is_said_to_be_none(pipe, monkeypatch, given):
    monkeypatch.setattr(hook_io, "INPUT_SECONDS", 0.2)
    os.write(pipe[1], given)
    with pytest.raises(ValueError, match=r"^no JSON object$"):
        object_from(*reader_of(pipe[0]))


def test_an_input_is_given_up_before_any_hook_is():
    assert min(command_hooks.WARN_SECONDS, command_hooks.ANSWER_SECONDS) > hook_io.INPUT_SECONDS + 0.4


def test_an_object_that_seems_whole_again_and_again_is_not_decoded_each_time(monkeypatch):
    calls = []
    decoded = hook_io._decoded
    monkeypatch.setattr(hook_io, "_decoded", lambda data: calls.append(len(data)) or decoded(data))
    data = json.dumps({"a": [{"b": 1}] * 2_000}).encode()
    pieces = iter([part + b"}" for part in data.split(b"}")[:-1]])
    assert len(object_from(lambda _: next(pieces, b""), lambda seconds: seconds > 0)["a"]) == 2_000
    assert len(calls) < 20


def test_each_shape():
    assert add_context("Stop", "x") == {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x"}}
    assert deny("why") == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "why",
        }
    }
    assert replace_output([1]) == {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": [1]}}
    assert stop("why") == {"continue_": False, "stopReason": "why"}
