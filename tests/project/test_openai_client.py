"""OpenAI-compatible servers by the real client: whole answers and streams, with usage and without, and errors."""

import openai
import pytest

from mala_context.tracking.openai import OpenAIStatus, openai_status
from mala_context.tracking.readers import read_openai
from mala_context.tracking.tracker import ContextTracker
from tests.helpers.openai_loopback import serve


class Conversation:
    """A tracker behind the real client."""

    def __init__(self, client, server):
        self.client, self.server = client, server
        self.tracker = ContextTracker(estimator="total_tokens")

    def say(self, text="abcdefghij", total=None, *, model="qwen", stream=False, code=None, cut=False):
        self.server.replies.append(code or {"text": text, "total": total, "cut": cut})
        messages = [{"role": "user", "content": "Hello."}]
        if not stream:
            self.take(self.client.chat.completions.create(model=model, messages=messages))
            return
        asked = {"include_usage": True}
        with self.client.chat.completions.create(
            model=model, messages=messages, stream=True, stream_options=asked
        ) as chunks:
            for chunk in chunks:
                self.take(chunk)

    def take(self, answer):
        for event in read_openai(answer):
            self.tracker.apply(event)

    @property
    def status(self):
        return openai_status(self.tracker)


@pytest.fixture(scope="module")
def server():
    with serve() as server:
        yield server


@pytest.fixture
def talk(server):
    with (
        openai.DefaultHttpxClient(trust_env=False) as transport,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, http_client=transport) as client,
    ):
        yield Conversation(client, server)
    assert server.replies == []


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def test_before_any_answer_nothing_is_known(talk):
    assert talk.status == OpenAIStatus(None, 128_000, 0, is_estimate=True)
    assert not talk.status.wants_compaction
    assert talk.status.ratio is None


@both
def test_the_total_is_the_last_answers(talk, stream):
    talk.say(total=1_000, stream=stream)
    talk.say(total=2_500, stream=stream)
    assert talk.status == OpenAIStatus(2_500, 128_000, 2, is_estimate=False)
    snapshot = talk.tracker.snapshot()
    assert (snapshot.estimate, snapshot.window, snapshot.model, snapshot.responses) == (2_500, 128_000, "qwen", 2)


@both
def test_without_usage_text_is_counted_until_there_is_one(talk, stream):
    talk.say("abcdefghi", stream=stream)
    assert talk.status == OpenAIStatus(3, 128_000, 1, is_estimate=True)
    talk.say("abcdefghi", stream=stream)
    assert talk.status == OpenAIStatus(5, 128_000, 2, is_estimate=True)
    talk.say(total=700, stream=stream)
    talk.say("abcdefghi", stream=stream)
    assert talk.status == OpenAIStatus(700, 128_000, 4, is_estimate=False)


@both
@pytest.mark.parametrize("code", [400, 429, 500])
def test_an_error_leaves_the_value_alone(talk, stream, code):
    talk.say(total=900, stream=stream)
    with pytest.raises(openai.APIStatusError) as caught:
        talk.say(code=code, stream=stream)
    talk.take(caught.value)
    talk.take(caught.value.body)
    assert talk.status == OpenAIStatus(900, 128_000, 1, is_estimate=False)


def test_a_stream_that_breaks_keeps_the_value(talk):
    talk.say(total=900)
    with pytest.raises(openai.APIError, match="gone"):
        talk.say(total=5_000, stream=True, cut=True)
    assert talk.status.tokens == 900


@both
def test_another_model_goes_on_with_its_own_total(talk, stream):
    talk.say(total=4_000, stream=stream)
    talk.say(total=3_100, model="llama", stream=stream)
    assert talk.tracker.snapshot().model == "llama"
    assert talk.status == OpenAIStatus(3_100, 128_000, 2, is_estimate=False)


@both
@pytest.mark.parametrize(("total", "wanted"), [(115_199, False), (115_200, True), (140_000, True), (20_000, False)])
def test_compaction_is_wanted_at_nine_tenths(talk, stream, total, wanted):
    talk.say(total=total, stream=stream)
    assert talk.status.wants_compaction is wanted
    assert talk.status.as_dict() == {
        "tokens": total,
        "max_tokens": 128_000,
        "messages": 1,
        "is_estimate": False,
        "ratio": total / 128_000,
        "wants_compaction": wanted,
    }


def test_a_window_of_ones_own_wins(talk):
    talk.tracker = ContextTracker(estimator="total_tokens", window=32_768)
    talk.say(total=30_000)
    assert (talk.status.max_tokens, talk.status.wants_compaction) == (32_768, True)


def test_the_last_chunk_alone_is_enough(talk):
    kept = []
    talk.take, take = kept.append, talk.take
    talk.say(total=640, stream=True)
    assert kept[-1].choices == []
    take(kept[-1])
    assert talk.status == OpenAIStatus(640, 128_000, 1, is_estimate=False)


def test_another_estimator_has_no_such_status():
    with pytest.raises(ValueError, match="'total_tokens' would be right"):
        openai_status(ContextTracker())
