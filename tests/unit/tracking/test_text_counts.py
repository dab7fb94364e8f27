"""What is counted in a text, and in every shape of content."""

from __future__ import annotations

import base64
import random
import re
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
    hidden_thinking,
    is_result,
    is_summary,
    kind_of,
    pieces,
    random_chars,
    text_length,
    typical,
)
from mala_context.tracking.thinking_blocks import signed_blocks
from mala_context.tracking.token_costs import FAMILIES, text_tokens


def test_what_is_in_a_text() -> None:
    """Words, letters, turns, capitals, numbers, digits, signs, punctuation, gaps, lines, CJK, others."""
    assert count_text("ab 12,\n字é") == Counts(9, 1, 2, 0, 0, 1, 2, 1, 1, 0, 1, 1, 1)
    assert count_text("getFooBar  ABC x1 --==\t\n") == Counts(24, 3, 13, 2, 1, 1, 1, 1, 4, 1, 1)
    assert count_text("") == Counts()


BY_HAND = {
    "words": r"[A-Za-z]+",
    "letters": r"[A-Za-z]",
    "turns": r"(?<=[a-z])[A-Z]",
    "capitals": r"[A-Z]{2,}",
    "numbers": r"[0-9]+",
    "digits": r"[0-9]",
    "signs": r"[!-/:-@\[-`{-~]+",
    "punctuation": r"[!-/:-@\[-`{-~]",
    "gaps": r"[ \t]{2,}",
    "lines": r"\n",
}


@given(st.text(st.characters(max_codepoint=127), max_size=200) | st.text(max_size=200))
def test_counts_are_what_a_search_finds(text: str) -> None:
    counts = count_text(text)
    assert counts.chars == len(text)
    assert {name: getattr(counts, name) for name in BY_HAND} == {
        name: len(re.findall(pattern, text)) for name, pattern in BY_HAND.items()
    }
    assert counts.cjk + counts.other == sum(ord(char) > 127 and not 0xD800 <= ord(char) < 0xE000 for char in text)


@given(st.text(max_size=80))
def test_a_piece_has_the_counts_of_its_text(text: str) -> None:
    (piece,) = pieces("user", text, {})
    assert piece.counts.chars == len(text)
    assert piece.counts == count_text(text)
    assert [piece.counts] == [piece.counts] == [pieces("response", text, {})[0].counts]
    assert tuple(piece.counts[1:]) == count_text(text)[1:]
    assert piece.counts.teaches == count_text(text).teaches


def test_a_long_text_is_sampled() -> None:
    text = "value = 12, " * 20_000
    counts = count_text(text)
    assert counts.chars == len(text)
    for number, wanted in ((counts.digits, 40_000), (counts.punctuation, 40_000), (counts.words, 20_000)):
        assert number == pytest.approx(wanted, rel=0.02)


def base64_of(size: int) -> str:
    return base64.b64encode(random.Random(7).randbytes(size)).decode()


@pytest.mark.parametrize("before", ["", "data:image/png;base64,", "word " * 9_000])
@pytest.mark.parametrize("size", [60, 30_000, 780_000])
def test_random_runs_are_found_wherever_they_stand(before: str, size: int) -> None:
    """Case core-26: random characters cost about a token each."""
    run = base64_of(size)
    counts = count_text(f"{before}{run}\nand more words")
    assert counts.random == pytest.approx(len(run), abs=12)  # a path before it may go over into it
    assert counts.chars == len(before) + len(run) + 15
    assert not counts.teaches
    assert random_chars(f'{before}"{run}"') == len(run)


RUNS = st.lists(
    st.sampled_from([" ", "\n", "é", "字", "\ud800", "a/", base64_of(60), base64_of(45)[:59], "A1" * 31, "ab3" * 21])
)


@given(RUNS.map("".join))
def test_random_runs_are_those_that_a_search_finds(text: str) -> None:
    def is_random(run: str) -> bool:
        shares = [len(re.findall(kind, run)) / len(run) for kind in ("[A-Z]", "[a-z]", "[0-9]")]
        return all(share >= least for share, least in zip(shares, (0.25, 0.2, 0.03), strict=True))

    runs = re.findall("[A-Za-z0-9+/=_-]{60,}", text)
    assert random_chars(text) == count_text(text).random == sum(len(run) for run in runs if is_random(run))


def test_wrapped_base64_is_random_too() -> None:
    run = base64_of(3_000)
    lines = "\n".join(run[place : place + 64] for place in range(0, len(run), 64))
    assert count_text(lines).random == pytest.approx(len(run), rel=0.03)


@pytest.mark.parametrize(
    "text",
    [
        "/usr/lib/python3/dist-packages/some_package/another/even_deeper/and/deeper/still/a_module_of_mine_2024.py",
        "AVeryLongNameOfAClassThatSomebodyWroteInJavaAndNobodyEverShortenedAbstractFactoryBeanProvider",
        "0123456789abcdef" * 8,
        "=" * 100,
        "x" * 500,
    ],
)
def test_long_names_and_rows_of_signs_are_not_random(text: str) -> None:
    assert count_text(text).random == 0


def test_minified_text_teaches_nothing() -> None:
    assert count_text("var a=1;" * 2_000).teaches
    assert not count_text("var a=1;" * 4_000).teaches
    assert count_text("var a=1;\n" * 4_000).teaches


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
    both = zip(count_text(one + "\n"), count_text("\n" + other), strict=True)
    assert count_text(f"{one}\n\n{other}") == Counts(*map(sum, both))


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
    assert piece.counts == typical(1_000)
    assert 300 < text_tokens(piece, FAMILIES["classic"]) < 400
    assert piece.key == ("response" if kind == "response" else "tool")


def test_a_reference_names_its_tool() -> None:
    (piece,) = pieces("user", [{"type": "tool_reference", "tool_name": "WebFetch"}], {})
    assert piece.unit == "tool_reference:WebFetch"


PNG = "iVBORw0KGgoAAAANSUhEUgAAAyAAAAJYCAYAAACadoJwAAAA"
"""The head of a picture of 800 x 600."""


@pytest.mark.parametrize(
    "attachment",
    [
        {
            "type": "queued_command",
            "prompt": [{"type": "text", "text": "see"}, {"type": "image", "source": {"data": PNG}}],
        },
        {"type": "file", "content": {"type": "image", "source": {"type": "base64", "data": PNG}}, "filename": "see"},
    ],
)
def test_a_picture_in_an_attachment_is_a_picture(attachment: Any) -> None:
    """Case core-25: its bytes counted as text, up to ten times the whole context."""
    text, image = pieces("attachment", attachment, {})
    assert text.counts.chars < 20
    assert (image.unit, image.size) == ("image", (800, 600))


def test_the_bytes_of_a_picture_are_no_text_of_a_tools_input() -> None:
    given_ = {"note": "see", "picture": {"type": "image", "source": {"type": "base64", "data": PNG * 1_000}}}
    (piece,) = pieces("response", [{"type": "tool_use", "id": "t", "name": "Show", "input": given_}], {})
    assert piece.counts.chars < 40


def test_thinking_counts_by_its_signature_and_else_by_its_text() -> None:
    """Case core-24: the stream says a placeholder and shows no text."""
    blocks = [{"type": "thinking", "thinking": "", "signature": "s" * 900}, ThinkingBlock("some thought", "")]
    signed, shown = pieces("response", blocks, {})
    assert (signed.unit, signed.size, signed.counts.chars) == ("thinking", (900, 0), 0)
    assert (shown.unit, shown.size, shown.counts.words) == ("thinking", (0, 0), 2)


def test_the_plan_is_in_a_request_once() -> None:
    """Case core-31: the CLI puts it into the call's input, and it stands in the result."""
    call = {"type": "tool_use", "id": "t", "name": "ExitPlanMode", "input": {"plan": "word " * 1_000}}
    (piece,) = pieces("response", [call], {})
    assert piece.counts.chars > 5_000
    assert text_tokens(piece, FAMILIES["classic"]) == 0


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


@pytest.mark.parametrize(
    ("content", "signed"),
    [
        ([{"type": "thinking", "thinking": "", "signature": "s" * 900}, {"type": "text", "text": "x"}], 900),
        ([ThinkingBlock("", "s" * 90), TextBlock("x")], 90),
        ([ThinkingBlock("shown", "s" * 90)], 0),
        ([None, 7, {"signature": 5}], 0),
        ("text", 0),
        (None, 0),
    ],
)
def test_hidden_thinking_is_known_by_its_signature(content: Any, signed: int) -> None:
    assert hidden_thinking(signed_blocks(content)) == signed
