"""Blocks of thinking, and how much of a redacted one is the thought."""

from __future__ import annotations

from typing import Any

import pytest
from claude_agent_sdk import TextBlock, ThinkingBlock
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.thinking_blocks import is_signed, redacted_data, signed_blocks, thought_chars
from mala_context.tracking.token_costs import thinking_in, thinking_tokens
from tests.helpers.redacted import HEADERS, data_of, redacted

STREAMED = (12, 16, 7, 7, 7, 19, 10, 8, 7, 7, 13, 3, 31, 12, 5, 22, 4, 11, 0)
"""Bytes of the thoughts of a recorded answer's 19 blocks; its usage says that they are 47 tokens."""


class RedactedThinkingBlock:
    """What the SDK may once call such a block."""

    def __init__(self, data: Any) -> None:
        self.data = data


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("thought", [0, 1, 111, 112, 384, 16_384, 100_000])
def test_a_thought_is_told_from_its_envelope(thought: int, header: int) -> None:
    assert thought_chars(data_of(thought, header)) == round(thought * 4 / 3)


@pytest.mark.parametrize("data", ["", "x", "ENC", "é" * 400, "=" * 400, "EoICCg==", None, 7, [], {"a": 1}])
def test_data_of_another_build_is_at_most_itself_without_an_envelope(data: Any) -> None:
    assert 0 <= thought_chars(data) <= max(0, len(data) - 256 if isinstance(data, str) else 0)


@given(st.text("EoAqB/+9=kz", max_size=1_500))
def test_a_thought_is_no_longer_than_its_data(text: str) -> None:
    assert 0 <= thought_chars(text) <= len(text)
    assert 0 <= thought_chars("Eo" + text) <= len(text) + 2


def test_streamed_blocks_cost_what_the_api_counted() -> None:
    blocks = [redacted(size, header=155) for size in STREAMED]
    assert thinking_in(blocks, "claude-sonnet-4-5-20250929") == pytest.approx(47, abs=2)
    assert sum(thinking_tokens(len(block["data"]), "claude-sonnet-4-5-20250929") for block in blocks) > 800


@pytest.mark.parametrize(
    ("block", "data"),
    [
        ({"type": "redacted_thinking", "data": "EnC"}, "EnC"),
        (RedactedThinkingBlock("EnC"), "EnC"),
        (RedactedThinkingBlock(7), ""),
        ({"type": "redacted_thinking", "data": ["EnC"]}, ""),
        ({"type": "redacted_thinking"}, ""),
        ({"type": ["redacted_thinking"], "data": "EnC"}, ""),
        ({"type": "image", "data": "EnC"}, ""),
        (TextBlock("EnC"), ""),
        ("EnC", ""),
        (None, ""),
    ],
)
def test_data_is_that_of_redacted_thinking_alone(block: Any, data: str) -> None:
    assert redacted_data(block) == data
    assert is_signed(block) is bool(data)
    assert signed_blocks([TextBlock("x"), block]) == ([block] if data else [])


@pytest.mark.parametrize(
    ("block", "signed"),
    [
        ({"type": "thinking", "thinking": "", "signature": "s"}, True),
        (ThinkingBlock("shown", "s"), True),
        (ThinkingBlock("shown", ""), False),
        ({"type": "thinking", "thinking": "shown", "signature": 7}, False),
    ],
)
def test_thinking_is_signed_or_not(block: Any, signed: bool) -> None:
    assert is_signed(block) is signed


@pytest.mark.parametrize("content", ["text", None, 7, {"type": "redacted_thinking", "data": "EnC"}, ()])
def test_content_that_is_no_list_has_none(content: Any) -> None:
    assert signed_blocks(content) == []
