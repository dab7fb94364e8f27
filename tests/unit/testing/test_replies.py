"""Replies as data: how a test writes what the model says."""

import dataclasses
import threading

import pytest

from mala_context.testing.replies import (
    ERROR_TYPES,
    Failure,
    Reply,
    api_error,
    as_answer,
    block,
    looped,
    refuse,
    summary,
    text,
    thinking,
    too_long,
    tool,
)


def test_each_maker_gives_the_block_of_the_api():
    assert text("hi").content == ({"type": "text", "text": "hi"},)
    assert thinking("hm").content[0]["thinking"] == "hm"
    assert tool("Bash", command="ls", timeout=5).content == (
        {"type": "tool_use", "name": "Bash", "input": {"command": "ls", "timeout": 5}},
    )
    assert block({"type": "redacted_thinking", "data": "x"}).content == ({"type": "redacted_thinking", "data": "x"},)


def test_a_tool_may_have_an_argument_called_name():
    assert tool("Skill", name="deploy").content[0]["input"] == {"name": "deploy"}


def test_joining_keeps_the_order_and_the_left_ones_fields():
    joined = text("a").but(output_tokens=7) + tool("Bash", command="x") + tool("Read", file_path="y")
    assert [one["type"] for one in joined.content] == ["text", "tool_use", "tool_use"]
    assert joined.output_tokens == 7


def test_joining_with_anything_else_is_a_type_error():
    with pytest.raises(TypeError):
        text("a") + "b"  # type: ignore[operator]  # that is what is tested


def test_but_changes_a_copy():
    held = threading.Event()
    first = text("a")
    second = first.but(hold=held, delay=0.5, stop_reason="max_tokens")
    assert (first.hold, first.delay, first.stop_reason) == (None, 0.0, None)
    assert (second.hold, second.delay, second.stop_reason) == (held, 0.5, "max_tokens")
    with pytest.raises(TypeError):
        first.but(colour="red")


def test_replies_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        text("a").delay = 1.0  # type: ignore[misc]  # that is what is tested


def test_a_summary_is_what_the_cli_expects():
    words = summary("what stays", analysis="why").content[0]["text"]
    assert words == "<analysis>why</analysis>\n\n<summary>what stays</summary>"


@pytest.mark.parametrize("status", sorted(ERROR_TYPES))
def test_each_status_has_its_type(status):
    assert api_error(status) == Failure(status=status, type=ERROR_TYPES[status], message="scripted error")


def test_whether_to_retry_is_said_in_a_header():
    assert api_error(529, retry=False).headers == {"x-should-retry": "false"}
    assert api_error(529, retry=True).headers["x-should-retry"] == "true"


def test_refusals_use_the_apis_words():
    failure = too_long(210_000, 200_000)
    assert failure == refuse("prompt is too long: 210000 tokens > 200000 maximum")
    assert (failure.status, failure.type) == (400, "invalid_request_error")


def test_a_loop_keeps_what_each_earlier_call_said():
    reply = looped(text("a"), text("b"), text("c"))
    assert [one["text"] for one in reply.content] == ["a", "b", "c"]
    assert reply.iterations == (text("a").content, text("b").content)


def test_scripts_may_hold_strings_and_lists():
    assert as_answer("hi") == text("hi")
    assert as_answer([text("a"), tool("Bash", command="x")]) == text("a") + tool("Bash", command="x")
    failure = refuse("no")
    assert as_answer(failure) is failure
    assert as_answer(()) == Reply()


@pytest.mark.parametrize("wrong", [3, {"type": "text"}, [refuse("no")], [3]])
def test_anything_else_in_a_script_is_a_type_error(wrong):
    with pytest.raises(TypeError):
        as_answer(wrong)
