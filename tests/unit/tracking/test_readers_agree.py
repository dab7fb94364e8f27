"""One conversation, two ways: a line of stream-json, and the SDK's message that its parser makes of that line.

What is read of both is the same: the sizes that a live agent shows and those of its recorded stream cannot part.
"""

from __future__ import annotations

from typing import Any

import pytest
from claude_agent_sdk._internal.message_parser import parse_message
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.tracking.events import (
    Appended,
    Compaction,
    CompactionStatus,
    Events,
    Refusal,
    Reset,
    Response,
    SessionStart,
    SubagentStart,
    TurnEnd,
    UsageDelta,
)
from mala_context.tracking.readers import read_message, read_stream_json
from mala_context.tracking.text_counts import pieces
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage

COUNTS = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 900,
    "cache_read_input_tokens": 41_000,
    "output_tokens": 7,
}
SAID = Usage(3, 900, 41_000, 7)
REFUSED = "API Error: 400 prompt is too long: 203,114 tokens > 200,000 maximum"
RESULT = {"type": "result", "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False}
PROMPT = {"type": "user", "session_id": "s", "parent_tool_use_id": None, "uuid": "u1", "message": {"content": "hello"}}
BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hmm", "signature": "s"},
    {"type": "text", "text": "hello"},
    {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/a"}},
]
OUTPUT = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "abc"}]}]


def assistant(**message: Any) -> dict[str, Any]:
    told = {"id": "m1", "model": "claude-opus-4-8", "usage": COUNTS, "content": BLOCKS, "stop_reason": None, **message}
    return {"type": "assistant", "session_id": "s", "parent_tool_use_id": None, "uuid": "u2", "message": told}


def system(subtype: str, **fields: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, "session_id": "s", "uuid": "u3", **fields}


def streamed(event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "stream_event", "session_id": "s", "parent_tool_use_id": None, "uuid": "u4", "event": event}


def result(**fields: Any) -> dict[str, Any]:
    return {**RESULT, "session_id": "s", "num_turns": 2, **fields}


CASES: dict[str, tuple[dict[str, Any], Events]] = {
    "prompt": (PROMPT, (Appended(None, "s", "user", "hello", "u1"),)),
    "a subagent's tool result": (
        {**PROMPT, "parent_tool_use_id": "toolu_9", "message": {"content": OUTPUT}},
        (Appended("toolu_9", "s", "user", OUTPUT, "u1"),),
    ),
    "response": (assistant(), (Response(None, "s", "m1", "claude-opus-4-8", SAID, BLOCKS, None, "u2"),)),
    "a subagent's response": (
        {**assistant(stop_reason="end_turn"), "parent_tool_use_id": "toolu_9"},
        (Response("toolu_9", "s", "m1", "claude-opus-4-8", SAID, BLOCKS, "end_turn", "u2"),),
    ),
    "response of unknown size": (
        assistant(usage=dict.fromkeys(COUNTS, 0)),
        (Response(None, "s", "m1", "claude-opus-4-8", None, BLOCKS, None, "u2"),),
    ),
    "several calls behind one response": (
        assistant(usage={**COUNTS, "iterations": [{"type": "message", **COUNTS, "input_tokens": 1}, {"type": "x"}]}),
        (Response(None, "s", "m1", "claude-opus-4-8", SAID._replace(input_tokens=1), BLOCKS, None, "u2"),),
    ),
    "what the CLI says itself": (assistant(model="<synthetic>", content=[{"type": "text", "text": "No."}]), ()),
    "refusal": (
        assistant(model="<synthetic>", content=[{"type": "text", "text": "No."}, {"type": "text", "text": REFUSED}]),
        (Refusal(None, "s", 203_114, 200_000),),
    ),
    "start of a stream": (
        streamed({"type": "message_start", "message": {"id": "m1", "model": "claude-opus-4-8", "usage": COUNTS}}),
        (Response(None, "s", "m1", "claude-opus-4-8", SAID, source="stream"),),
    ),
    "end of a stream": (
        streamed({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 900}}),
        (UsageDelta(None, "s", Usage(output_tokens=900), "max_tokens"),),
    ),
    "end of a stream without a reason": (
        streamed({"type": "message_delta", "usage": COUNTS}),
        (UsageDelta(None, "s", SAID, None),),
    ),
    "middle of a stream": (streamed({"type": "content_block_delta", "delta": {"text": "x"}}), ()),
    "start": (
        system(
            "init",
            model="claude-opus-4-8[1m]",
            cwd="/w",
            betas=["context-1m-2025-08-07", 7],
            claude_code_version="2.1.257",
        ),
        (SessionStart("s", "init", "claude-opus-4-8[1m]", ("context-1m-2025-08-07",), "/w", "2.1.257"),),
    ),
    "start of no session": (system("init", model="m", session_id=None), ()),
    "subagent": (
        system("task_started", task_id="a1", tool_use_id="toolu_9", description="look"),
        (SubagentStart("s", "a1", "toolu_9"),),
    ),
    "compaction": (
        system(
            "compact_boundary",
            compact_metadata={
                "trigger": "auto",
                "pre_tokens": 183_500,
                "post_tokens": 0,
                "duration_ms": 1_200,
                "preserved_messages": {"uuids": ["u1", 3]},
            },
        ),
        (Compaction(None, "s", "auto", 183_500, 0, 1_200, "u3", None, frozenset({"u1"})),),
    ),
    "compaction of which nothing is said": (system("compact_boundary"), (Compaction(None, "s", uuid="u3"),)),
    "compacting": (system("status", status="compacting"), (CompactionStatus("s", "compacting"),)),
    "compaction failed": (
        system("status", status=None, compact_result="failed", compact_error="no"),
        (CompactionStatus("s", None, "failed", "no"),),
    ),
    "another status": (system("status", status="requesting"), ()),
    "end of a turn": (
        result(
            usage={**COUNTS, "iterations": [{"type": "message", **COUNTS}]},
            modelUsage={"claude-opus-4-8": {"contextWindow": 1_000_000}, "odd": {"contextWindow": -1}},
            terminal_reason="completed",
            origin={"kind": "task-notification"},
            user_message_uuids=["u1", "u9"],
        ),
        (
            TurnEnd(
                "s",
                SAID,
                SAID,
                2,
                {"claude-opus-4-8": 1_000_000},
                subtype="success",
                terminal_reason="completed",
                origin="task-notification",
                user_uuids=("u1", "u9"),
            ),
        ),
    ),
    "end of a turn on one prompt": (
        result(usage=COUNTS, user_message_uuid="u1"),
        (TurnEnd("s", SAID, None, 2, {}, subtype="success", user_uuids=("u1",)),),
    ),
    "end of a turn whose calls are of another kind": (
        result(usage={**COUNTS, "iterations": [{"type": "compaction", **COUNTS}]}),
        (TurnEnd("s", SAID, None, 2, {}, subtype="success"),),
    ),
    "conversation thrown away": (
        {"type": "conversation_reset", "session_id": "s", "uuid": "u", "new_conversation_id": "n"},
        (Reset("s"),),
    ),
}


def sized(events: Events) -> list[Any]:
    """Return events with what is counted of their content in its place, and without what only one source knows."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, Response):
            found.append(event._replace(content=pieces("response", event.content, {}), request_id=None))
        elif isinstance(event, Appended):
            found.append(event._replace(content=pieces(event.kind, event.content, {}), session_id=None))
        else:
            found.append(event)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_line_is_read_as_what_it_says(name: str) -> None:
    line, wanted = CASES[name]
    assert read_stream_json(line) == wanted


@pytest.mark.parametrize("name", CASES)
def test_the_message_that_is_made_of_it_says_the_same(name: str) -> None:
    line, wanted = CASES[name]
    assert sized(read_message(parse_message(line))) == sized(wanted)


NUMBERS = st.integers(0, 300_000) | st.none() | st.just(1.0) | st.just(-1)
USAGES = st.fixed_dictionaries({}, optional=dict.fromkeys((*COUNTS, "iterations"), NUMBERS)) | st.none()
NAMES = st.sampled_from(["m1", "m2", "m3"])
AGENTS = st.sampled_from([None, "toolu_1"])
TEXTS = st.text(max_size=30)
CONTENT = st.lists(st.sampled_from(BLOCKS) | TEXTS.map(lambda text: {"type": "text", "text": text}), max_size=3)
LINES = st.one_of(
    st.builds(
        lambda parent, **message: {**assistant(**message), "parent_tool_use_id": parent, "uuid": None},
        AGENTS,
        id=NAMES,
        usage=USAGES,
        content=CONTENT,
        stop_reason=st.sampled_from([None, "max_tokens", "end_turn"]),
    ),
    st.builds(
        lambda parent, content: {**PROMPT, "parent_tool_use_id": parent, "uuid": None, "message": {"content": content}},
        AGENTS,
        TEXTS | st.just(OUTPUT),
    ),
    st.builds(lambda used: streamed({"type": "message_delta", "usage": used}), USAGES),
    st.builds(
        lambda name, used: streamed({"type": "message_start", "message": {"id": name, "usage": used}}), NAMES, USAGES
    ),
    st.builds(lambda used: result(usage=used), USAGES),
    st.builds(
        lambda pre, post: system("compact_boundary", compact_metadata={"pre_tokens": pre, "post_tokens": post}),
        NUMBERS,
        NUMBERS,
    ),
    st.just(system("init", model="claude-opus-4-8")),
)


@settings(max_examples=40)
@given(st.lists(LINES, min_size=2, max_size=12))
def test_a_conversation_is_as_full_by_either_way(lines: list[dict[str, Any]]) -> None:
    recorded, live = ContextTracker(), ContextTracker()
    for line in lines:
        for event in read_stream_json(line):
            recorded.apply(event)
        for event in read_message(parse_message(line)):
            live.apply(event)
        assert live.snapshot().tokens == recorded.snapshot().tokens
    assert {key: each.as_dict() for key, each in live.agents().items()} == {
        key: each.as_dict() for key, each in recorded.agents().items()
    }
