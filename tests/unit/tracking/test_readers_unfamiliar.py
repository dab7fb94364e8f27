"""What is new to us is named once, what is known is not, and nothing raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import claude_agent_sdk
import pytest
from claude_agent_sdk import AssistantMessage, SystemMessage
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.readers.unfamiliar import BLOCKS, LINES, MESSAGES, News, unfamiliar
from mala_context.tracking.text_counts import pieces
from tests.helpers.sdk_stream import (
    MODEL,
    assistant,
    boundary,
    init,
    result,
    stream,
    task_started,
    tool_result,
    tool_use,
    usage,
)

RENAMED = {"input_tokens": 3, "cached_input_tokens": 90_000, "output_tokens": 5}


@pytest.mark.parametrize(
    "message",
    [
        init(),
        assistant("m1", 5000, content=[tool_use()]),
        tool_result([{"type": "text", "text": "found"}]),
        boundary(5000, 800),
        result(usage(5000)),
        result(None),
        task_started("a1", "toolu_1"),
        stream({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
        stream({"type": "message_delta", "usage": {"output_tokens": 5}}),
        {"type": "user", "message": {"content": "hi"}},
        {"type": "rate_limit_event", "rate_limit_info": {}},
    ],
    ids=repr,
)
def test_what_is_known(message: Any) -> None:
    assert unfamiliar(message) == ()


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        (SimpleNamespace(content="hm"), ["message class SimpleNamespace"]),
        (SystemMessage("folded", {}), ["system message folded"]),
        (SystemMessage(["folded"], {}), ["system message of type list"]),  # type: ignore[arg-type] # of another type
        (SystemMessage("compact_boundary", {"compact_metadata": {"before": 1}}), [
            "compact_boundary without pre_tokens, with before"
        ]),
        (SystemMessage("compact_boundary", {}), ["compact_boundary without pre_tokens, with nothing"]),
        (AssistantMessage([SimpleNamespace(), SimpleNamespace()], MODEL), ["content block SimpleNamespace"]),  # type: ignore[list-item] # newer
        (result(RENAMED), ["usage with cached_input_tokens in place of a count"]),
        (stream({"type": "message_start", "message": {"usage": RENAMED}}), [
            "usage with cached_input_tokens in place of a count"
        ]),
        (stream({"type": "message_delta", "usage": RENAMED}), ["usage with cached_input_tokens in place of a count"]),
        ({"type": "thought"}, ["type thought"]),
        ({}, ["type of type NoneType"]),
        ({"type": "system", "subtype": "folded"}, ["system message folded"]),
        ({"type": "result", "usage": RENAMED}, ["usage with cached_input_tokens in place of a count"]),
        ({"type": "assistant", "message": {"content": [{"type": "hologram"}, "text"], "usage": RENAMED}}, [
            "content block hologram",
            "content block str",
            "usage with cached_input_tokens in place of a count",
        ]),
        ({"type": "x" * 1000}, ["type " + "x" * 80]),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_new(source: Any, kinds: list[str]) -> None:
    assert list(unfamiliar(source)) == kinds


def test_each_kind_is_told_once_and_of_many_not_all() -> None:
    news = News()
    assert news.of({"type": "thought"}) == ["type thought"]
    assert news.of({"type": "thought"}) == []
    assert sum(len(news.of({"type": f"kind {number}"})) for number in range(1_000)) == 99


def test_what_cannot_be_looked_at_is_nothing_new() -> None:
    class Broken:
        content = property(lambda self: 1 / 0)

    Broken.__name__ = "AssistantMessage"
    assert unfamiliar(Broken()) == ()


KEYS = st.sampled_from(["type", "subtype", "message", "usage", "content"])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


@given(VALUES | st.fixed_dictionaries({"type": st.sampled_from(sorted(LINES)), "message": VALUES, "usage": VALUES}))
def test_nothing_raises_and_names_are_short(source: Any) -> None:
    assert all(len(kind) < 1_000 for kind in unfamiliar(source))


def test_the_sdks_own_classes_are_known() -> None:
    assert {cls.__name__ for cls in get_args(claude_agent_sdk.Message)} <= MESSAGES
    assert {cls.__name__ for cls in get_args(claude_agent_sdk.ContentBlock)} <= BLOCKS


def test_what_is_known_of_blocks_is_counted() -> None:
    blocks = [
        {"type": kind, "text": "x", "thinking": "x", "input": {}, "content": "x"} for kind in BLOCKS if kind.islower()
    ]
    uncounted = {block["type"] for block in blocks if not pieces("response", [block], {})}
    assert uncounted == {"redacted_thinking"}
