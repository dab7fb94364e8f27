"""From a reply to the wire: streams that build up exactly what the whole message says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.testing.messages import CHUNK, build_message, encode_event, error_body, stream_events
from mala_context.testing.replies import Failure, Reply, block, looped, text, thinking, tool
from mala_context.testing.token_counts import Size, TokenCounter

SIZE = Size(3, 20, 100)


def build(reply, usage_in="start", number=1):
    return build_message(reply, SIZE, TokenCounter(1.0), number=number, tag="ab", model="m", usage_in=usage_in)


def assembled(message):
    """Put a stream together again, as a client does."""
    whole, pieces = {}, {}
    for event, _ in stream_events(message):
        match event["type"]:
            case "message_start":
                whole = dict(event["message"])
            case "content_block_start":
                whole["content"] = [*whole["content"], dict(event["content_block"])]
            case "content_block_delta":
                one, delta = whole["content"][event["index"]], event["delta"]
                field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                    delta["type"]
                )
                if field:
                    one[field] += delta[field]
                else:
                    pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
            case "content_block_stop":
                if event["index"] in pieces:
                    whole["content"][event["index"]]["input"] = json.loads(pieces[event["index"]])
            case "message_delta":
                whole |= event["delta"]
                whole["usage"] = {**whole["usage"], **event["usage"]}
    return whole


REPLIES = st.lists(
    st.one_of(
        st.builds(text, st.text(max_size=3 * CHUNK)),
        st.builds(thinking, st.text(max_size=50)),
        st.builds(lambda words: tool("Bash", command=words), st.text(max_size=50)),
        st.just(block({"type": "redacted_thinking", "data": "x"})),
    ),
    max_size=4,
).map(lambda parts: sum(parts, Reply()))


@given(REPLIES, st.sampled_from(["start", "delta"]))
def test_a_stream_builds_up_the_whole_message(reply, usage_in):
    message = build(reply, usage_in)
    assert assembled(message) == message.as_json()


@given(REPLIES)
def test_a_held_stream_waits_once_and_before_its_last_block_ends(reply):
    events = list(stream_events(build(reply)))
    held = [place for place, (_, holds) in enumerate(events) if holds]
    assert len(held) == 1
    rest = [event["type"] for event, _ in events[held[0] + 1 :]]
    assert rest[-2:] == ["message_delta", "message_stop"]
    assert rest.count("content_block_stop") == (1 if reply.content else 0)


def test_a_stream_has_the_order_of_the_api():
    kinds = [event["type"] for event, _ in stream_events(build(text("hi")))]
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_ids_are_unique_within_and_between_messages():
    first, second = (build(tool("Bash") + tool("Bash"), number=number) for number in (1, 2))
    ids = [one["id"] for message in (first, second) for one in message.content] + [first.id, second.id]
    assert len(set(ids)) == 6


def test_a_tool_call_keeps_an_id_of_its_own():
    message = build(block({"type": "tool_use", "id": "mine", "name": "Bash", "input": {}}))
    assert message.content[0]["id"] == "mine"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (text("x"), "end_turn"),
        (text("x") + tool("Bash"), "tool_use"),
        (text("x").but(stop_reason="max_tokens"), "max_tokens"),
    ],
)
def test_the_stop_reason_follows_from_the_content_unless_it_is_given(reply, reason):
    assert build(reply).stop_reason == reason


def test_usage_carries_the_size_and_a_placeholder_at_the_start():
    message = build(text("four"))
    assert (message.usage["output_tokens"], message.first_usage["output_tokens"]) == (4, 1)
    for usage in (message.usage, message.first_usage):
        sizes = [usage[f"{name}input_tokens"] for name in ("", "cache_creation_", "cache_read_")]
        assert sizes == [3, 20, 100]
    assert message.tokens == 123


@pytest.mark.parametrize(("reply", "usage_in"), [(text("x"), "delta"), (text("x").but(usage_in="delta"), "start")])
def test_delta_alone_leaves_zeros_at_the_start(reply, usage_in):
    message = build(reply, usage_in)
    assert {value for name, value in message.first_usage.items() if name.endswith("tokens")} == {0}
    assert message.usage["cache_read_input_tokens"] == 100


def test_a_reply_decides_over_the_api():
    assert build(text("x").but(usage_in="start"), "delta").first_usage["cache_read_input_tokens"] == 100


def test_output_and_usage_can_be_given():
    message = build(text("x").but(output_tokens=99, usage={"service_tier": "batch", "extra": None}))
    assert (message.usage["output_tokens"], message.usage["service_tier"], message.usage["extra"]) == (
        99,
        "batch",
        None,
    )
    assert message.usage["cache_read_input_tokens"] == 100


def test_a_loop_reports_a_row_for_each_call_and_the_sums_on_top():
    message = build(looped(text("12345"), text("123"), text("1")))
    rows = message.usage["iterations"]
    sizes = [row["input_tokens"] + row["cache_creation_input_tokens"] + row["cache_read_input_tokens"] for row in rows]
    assert sizes == [123, 128, 131]
    assert [row["output_tokens"] for row in rows] == [5, 3, 1]
    assert {row["type"] for row in rows} == {"message"}
    for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"):
        assert message.usage[name] == sum(row[name] for row in rows)
    assert message.tokens == 131
    assert "iterations" not in message.first_usage


def test_events_and_errors_are_encoded_as_the_api_does():
    assert encode_event({"type": "ping", "é": 1}) == 'event: ping\ndata: {"type": "ping", "é": 1}\n\n'.encode()
    body = error_body(Failure(status=529, type="overloaded_error", message="busy"), "req_1")
    assert body == {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}, "request_id": "req_1"}
