"""The count of a request and the cache, by themselves."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.testing import ScriptedClock
from mala_context.testing.token_counts import IMAGE_CHARACTERS, TokenCounter, block_text, count_characters, request_text
from tests.helpers.redacted import data_of

WORDS = st.text(max_size=40)
BLOCKS = st.one_of(
    st.builds(lambda words: {"type": "text", "text": words}, WORDS),
    st.builds(lambda words: {"type": "tool_result", "tool_use_id": "t", "content": words}, WORDS),
    st.builds(lambda words: {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": words}}, WORDS),
    st.builds(lambda words: {"type": "thinking", "thinking": words, "signature": "s"}, WORDS),
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        st.one_of(WORDS, st.lists(BLOCKS, max_size=3)),
    ),
    max_size=6,
)
RATES = st.floats(min_value=0.1, max_value=20)


def marked(body):
    """Put a cache mark on the last block of the last message, as the CLI does."""
    body = json.loads(json.dumps(body))
    for message in reversed(body["messages"]):
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        if message["content"]:
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
            return body
    return body


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        ({"type": "text", "text": "é\n"}, "é\n"),
        ({"type": "thinking", "thinking": "hm", "signature": "long"}, "hm"),
        ({"type": "tool_use", "id": "x", "name": "Bash", "input": {"command": "ls é"}}, 'Bash{"command":"ls é"}'),
        ({"type": "tool_result", "tool_use_id": "x", "content": "out"}, "out"),
        ({"type": "tool_result", "tool_use_id": "x"}, ""),
        ({"type": "tool_result", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"type": "redacted_thinking", "data": data_of(750)}, " " * 1_200),
        ({"type": "redacted_thinking"}, ""),
        ({"type": "odd", "data": 1, "cache_control": {}}, '{"type":"odd","data":1}'),
    ],
)
def test_a_block_counts_by_what_the_model_reads(one, shown):
    assert block_text(one) == shown


def test_an_image_counts_the_same_whatever_its_bytes():
    sizes = {len(block_text({"type": "image", "source": {"data": "A" * size}})) for size in (1, 100_000)}
    assert sizes == {IMAGE_CHARACTERS}


def test_tools_system_and_messages_count():
    body = {
        "tools": [{"name": "T", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
        "system": [{"type": "text", "text": "sys"}],
        "messages": [{"role": "user", "content": "abc"}, {"role": "assistant", "content": ["bare"]}],
    }
    assert request_text(body) == '{"name":"T","input_schema":{}}\nsys\nabc\nbare'
    assert count_characters(body) == len('{"name":"T","input_schema":{}}') + 10


def test_the_rate_is_settable_and_rounds_up():
    body = {"messages": [{"role": "user", "content": "x" * 9}]}
    assert [TokenCounter(rate).count(body) for rate in (4.0, 9.0, 0.5)] == [3, 1, 18]


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match="chars_per_token"):
        TokenCounter(rate)


@given(MESSAGES, MESSAGES, RATES)
def test_more_text_never_counts_less(messages, more, rate):
    counter = TokenCounter(rate)
    shorter = counter.count({"messages": messages})
    assert shorter == counter.count({"messages": messages}) <= counter.count({"messages": messages + more})


@given(st.lists(MESSAGES, min_size=1, max_size=5), RATES)
def test_the_three_numbers_always_add_up_to_the_count(requests, rate):
    counter = TokenCounter(rate)
    for messages in requests:
        body = marked({"model": "m", "messages": messages})
        size = counter.measure(body)
        assert size.tokens == counter.count(body)
        assert min(size.input_tokens, size.cache_creation_input_tokens, size.cache_read_input_tokens) >= 0


@given(MESSAGES, MESSAGES, RATES)
def test_a_conversation_that_goes_on_reads_what_it_wrote(messages, more, rate):
    counter = TokenCounter(rate)
    first = counter.measure(marked({"model": "m", "messages": messages}))
    second = counter.measure(marked({"model": "m", "messages": messages + more}))
    written = first.cache_creation_input_tokens + first.cache_read_input_tokens
    assert second.cache_read_input_tokens >= written


def test_another_model_or_another_beginning_reads_nothing():
    counter = TokenCounter(1.0)
    body = marked({"model": "a", "system": "sys", "messages": [{"role": "user", "content": "hello"}]})
    assert counter.measure(body).cache_creation_input_tokens == 8
    assert counter.measure(body).cache_read_input_tokens == 8
    assert counter.measure({**body, "model": "b"}).cache_read_input_tokens == 0
    assert counter.measure({**body, "system": "sys!"}).cache_read_input_tokens == 0


def test_without_a_mark_nothing_is_cached():
    counter = TokenCounter(1.0)
    body = {"model": "a", "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(2):
        size = counter.measure(body)
        assert (size.input_tokens, size.cache_creation_input_tokens, size.cache_read_input_tokens) == (5, 0, 0)


def test_counting_alone_writes_no_cache():
    counter = TokenCounter(1.0)
    body = marked({"model": "a", "messages": [{"role": "user", "content": "hello"}]})
    counter.count(body)
    assert counter.measure(body).cache_read_input_tokens == 0


def test_text_that_no_encoding_can_hold_is_counted():
    body = marked({"model": "a", "messages": [{"role": "user", "content": "\ud800"}]})
    assert TokenCounter(1.0).measure(body).tokens == 1


def request_of(*texts, ttl=None, model="m", system="s" * 400):
    """A request whose system prompt and last message are marked for the cache."""
    mark = {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})
    blocks = [{"type": "text", "text": text} for text in texts]
    blocks[-1] = blocks[-1] | {"cache_control": mark}
    system = [{"type": "text", "text": system, "cache_control": mark}]
    return {"model": model, "system": system, "messages": [{"role": "user", "content": blocks}]}


class TestTheCacheInTime:
    def make(self):
        clock = ScriptedClock(0.0)
        return clock, TokenCounter(1.0, clock)

    @pytest.mark.parametrize(("ttl", "life"), [(None, 300), ("1h", 3_600)])
    def test_an_entry_lives_from_its_last_use(self, ttl, life):
        clock, counter = self.make()
        counter.measure(request_of("a" * 600, ttl=ttl), "c")
        for _ in range(2):
            clock.advance(life - 1)
            assert counter.measure(request_of("a" * 600, ttl=ttl), "c").cache_read_input_tokens == 1_000
        clock.advance(life)
        size = counter.measure(request_of("a" * 600, ttl=ttl), "c")
        assert (size.cache_read_input_tokens, size.again, size.cause) == (0, 1_000, "lapsed")
        assert size.hour_tokens == (1_000 if ttl else 0)

    def test_a_changed_beginning_is_written_again(self):
        _, counter = self.make()
        counter.measure(request_of("a" * 600), "c")
        size = counter.measure(request_of("a" * 600, system="t" * 400), "c")
        assert (size.again, size.cause) == (1_000, "prefix")

    def test_another_model_has_its_own_entries(self):
        _, counter = self.make()
        counter.measure(request_of("a" * 600), "c")
        size = counter.measure(request_of("a" * 600, model="n"), "c")
        assert (size.again, size.cause) == (1_000, "model")

    def test_a_break_forgets_all_entries(self):
        _, counter = self.make()
        counter.measure(request_of("a" * 600), "c")
        counter.break_cache()
        size = counter.measure(request_of("a" * 600, "b" * 50), "c")
        assert (size.cache_creation_input_tokens, size.again, size.cause) == (1_050, 1_000, "prefix")

    def test_what_another_conversation_left_is_not_written_again(self):
        _, counter = self.make()
        counter.measure(request_of("a" * 600), "c")
        size = counter.measure(request_of("b" * 600), "d")
        assert (size.cache_read_input_tokens, size.again, size.cause) == (400, 0, None)

    def test_the_billing_header_of_the_cli_is_no_part_of_the_key(self):
        _, counter = self.make()
        for number in range(2):
            body = request_of("a" * 600)
            body["system"].insert(0, {"type": "text", "text": f"x-anthropic-billing-header: cc_version={number};"})
            size = counter.measure(body, "c")
        assert size.cache_creation_input_tokens == 0
