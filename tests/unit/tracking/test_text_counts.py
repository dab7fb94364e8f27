"""Characters by kind, of every shape of content."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from claude_agent_sdk import TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.text_counts import (
    Counts,
    Length,
    all_text,
    count_text,
    is_result,
    is_summary,
    kind_of,
    pieces,
    text_length,
)


def test_kinds() -> None:
    assert count_text("ab 12,\n字é") == Counts(9, 2, 1, 2, 1, 1)
    assert count_text("") == Counts()


@given(st.text(max_size=200))
def test_kinds_are_parts_of_the_whole(text: str) -> None:
    counts = count_text(text)
    assert counts.chars == len(text)
    assert min(counts) >= 0
    assert sum(counts[1:]) <= counts.chars


def test_a_long_text_is_sampled() -> None:
    text = "value = 12, " * 20_000
    counts = count_text(text)
    assert counts.chars == len(text)
    assert counts.digits == pytest.approx(40_000, rel=0.02)
    assert counts.punctuation == pytest.approx(40_000, rel=0.02)
    assert counts.space == pytest.approx(60_000, rel=0.02)


def test_a_lone_surrogate_is_no_error() -> None:
    assert count_text("a\ud800b").chars == 3


BLOCKS: list[tuple[Any, Any]] = [
    ({"type": "text", "text": "hello"}, TextBlock("hello")),
    ({"type": "thinking", "thinking": "hmm", "signature": "s"}, ThinkingBlock("hmm", "s")),
    ({"type": "tool_use", "id": "t", "name": "Read", "input": {"a": "b"}}, ToolUseBlock("t", "Read", {"a": "b"})),
    ({"type": "tool_result", "tool_use_id": "t", "content": "text"}, ToolResultBlock("t", "text")),
]


@pytest.mark.parametrize(("raw", "made"), BLOCKS)
@pytest.mark.parametrize("kind", ["response", "user"])
def test_dicts_and_objects_measure_the_same(raw: Any, made: Any, kind: str) -> None:
    found = pieces(kind, [raw], {})
    assert found == pieces(kind, [made], {})
    assert len(found) == 1
    assert text_length([raw["content"]] if kind == "user" and "content" in raw else [made]) > 0


def test_a_result_is_known_by_its_tool() -> None:
    names: dict[str, str] = {}
    pieces("response", [{"type": "tool_use", "id": "t", "name": "Grep", "input": {}}], names)
    content = [{"type": "text", "text": "abc"}, {"type": "image"}, {"type": "tool_reference"}, {"type": "odd"}, 7]
    found = pieces("user", [{"type": "tool_result", "tool_use_id": "t", "content": content}], names)
    assert [(piece.key, piece.counts.chars, piece.unit) for piece in found] == [
        ("Grep", 0, "result"),
        ("Grep", 3, ""),
        ("Grep", 0, "image"),
        ("Grep", 0, "tool_reference"),
    ]


@pytest.mark.parametrize("content", [None, 7, {}, [None], [[]], ["x"], [{"type": "text", "text": 7}], object()])
def test_content_of_an_unknown_shape_has_no_characters(content: Any) -> None:
    assert sum(piece.counts.chars for piece in pieces("user", content, {})) == 0


@pytest.mark.parametrize(
    ("attachment", "chars"),
    [
        ({"type": "queued_command", "prompt": "abc"}, 3),
        ({"type": "skill_listing", "content": "abc", "rendered": "abcde"}, 5),
        ({"type": "unheard_of", "content": "abcd"}, 4),
        ({"type": "task_reminder", "content": []}, 0),
    ],
)
def test_attachments(attachment: Any, chars: int) -> None:
    (piece,) = pieces("attachment", attachment, {})
    assert piece.counts.chars == chars
    assert piece.unit == f"attachment:{attachment['type']}"


@pytest.mark.parametrize("attachment", [None, {}, {"type": "hook_success", "content": ""}, {"type": 3}])
def test_attachments_that_the_model_does_not_get(attachment: Any) -> None:
    assert pieces("attachment", attachment, {}) == []


def test_all_text() -> None:
    assert all_text({"a": ["b", 1, None, True, {"c": "d"}]}) == "a b 1   c d"
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    assert all_text(deep) == ""


def test_text_within_a_mapping_of_any_kind() -> None:
    assert all_text(MappingProxyType({"a": ("b", 2.5)})) == "a b 2.5"
    deep: Any = {"k": "x"}
    for _ in range(500):
        deep = {"k": deep}
    assert "x" not in all_text(deep)


@given(st.text(max_size=50), st.text(max_size=50))
def test_counts_add_up(one: str, other: str) -> None:
    both = zip(count_text(one), count_text(other), strict=True)
    assert count_text(one + other) == Counts(*map(sum, both))


SUMMARY = "This session is being continued from a previous conversation that ran out of context."


@pytest.mark.parametrize(
    ("content", "summary"),
    [
        (SUMMARY, True),
        ([{"type": "text", "text": SUMMARY}], True),
        ([TextBlock(SUMMARY)], True),
        ([{"type": "text", "text": "hello"}, {"type": "text", "text": SUMMARY}], False),
        (f"You said: {SUMMARY}", False),
        ([], False),
        ([None], False),
        (None, False),
    ],
)
def test_the_summary_is_known_by_how_it_begins(content: Any, *, summary: bool) -> None:
    assert is_summary(content) is summary


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ([{"type": "tool_result", "tool_use_id": "t"}], True),
        ([{"type": "text", "text": "x"}, ToolResultBlock("t", "text")], True),
        ([{"type": "text", "text": "x"}], False),
        ([ToolUseBlock("t", "Read", {})], False),
        ("tool_use_id", False),
        ([], False),
        (None, False),
    ],
)
def test_a_tools_result_is_known_by_the_call_that_it_names(content: Any, *, result: bool) -> None:
    assert is_result(content) is result


@pytest.mark.parametrize("kind", ["response", "user"])
def test_of_text_that_was_let_go_the_length_is_counted(kind: str) -> None:
    (piece,) = pieces(kind, Length(1_000), {})
    assert piece.counts == Counts(1_000)
    assert piece.key == ("response" if kind == "response" else "tool")


@pytest.mark.parametrize("kind", ["image", "document", "tool_reference"])
def test_what_has_no_text_is_counted_by_the_piece(kind: str) -> None:
    (piece,) = pieces("user", [{"type": kind, "source": {"data": "x" * 10_000}}], {})
    assert (piece.unit, piece.counts) == (kind, Counts())


def test_fields_and_kinds_of_any_mapping() -> None:
    block = MappingProxyType({"type": "text", "text": "abc"})
    assert kind_of(block) == "text"
    assert kind_of(MappingProxyType({"type": ["text"]})) is None
    (piece,) = pieces("attachment", MappingProxyType({"type": "queued_command", "prompt": "abc"}), {})
    assert piece.counts.chars == 3


@pytest.mark.parametrize(
    ("content", "chars"),
    [
        ("abc", 3),
        (["ab", ["c", ("d",)]], 4),
        ({"type": "ab", "text": "cde"}, 5),
        ([ToolUseBlock("t", "Read", {"a": "bc", "n": 7})], 2),
        ([ThinkingBlock("hmm", "signature")], 3),
        (ToolResultBlock("t", [{"text": "abc"}]), 3),
        (None, 0),
        (object(), 0),
    ],
)
def test_the_length_of_content_however_it_is_nested(content: Any, chars: int) -> None:
    assert text_length(content) == chars


def test_of_text_that_is_gone_the_length_counts() -> None:
    assert text_length(Length(1_000)) == 1_000
    assert text_length([Length(7), "four"]) == 11
