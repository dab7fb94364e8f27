"""Asking a fresh client for its baseline, with a double of the SDK's client."""

import anyio
import claude_agent_sdk
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, UserMessage
from hypothesis import given
from hypothesis import strategies as st

from mala_context.agent.baseline import Baseline, _texts, measure_baseline
from mala_context.errors import BaselineError

RESULT = ResultMessage("success", 1, 1, is_error=False, num_turns=0, session_id="s")


class Client:
    """Answers as told; notes what it is asked."""

    usage: object = None
    printed: tuple = ()

    def __init__(self, options):
        self.options, self.queries, self.disconnects = options, [], 0
        type(self).last = self

    async def connect(self):
        await anyio.lowlevel.checkpoint()

    async def disconnect(self):
        self.disconnects += 1

    async def get_context_usage(self):
        if isinstance(self.usage, Exception):
            raise self.usage
        if self.usage == "hang":
            await anyio.sleep_forever()
        return self.usage

    async def query(self, prompt):
        self.queries.append(prompt)

    async def receive_messages(self):
        for message in self.printed:
            yield message
        yield RESULT


@pytest.fixture
def client(monkeypatch):
    def install(usage, *printed):
        kind = type("Fake", (Client,), {"usage": usage, "printed": printed})
        monkeypatch.setattr(claude_agent_sdk, "ClaudeSDKClient", kind)
        return kind

    return install


async def test_the_sdk_answers(client):
    kind = client({"totalTokens": 14_321, "maxTokens": 200_000})
    assert await measure_baseline(ClaudeAgentOptions()) == Baseline(14_321, 200_000, "get_context_usage")
    assert kind.last.queries == []
    assert kind.last.disconnects == 1


@pytest.mark.parametrize("usage", [Exception("unsupported"), {}, None, {"totalTokens": 0}])
@pytest.mark.parametrize(
    ("printed", "tokens", "window"),
    [
        (AssistantMessage([TextBlock("**Tokens:** 27k/200k tokens (14%)")], "m"), 27_000, 200_000),
        (UserMessage("<local-command-stdout>62.5k/1m</local-command-stdout>"), 62_500, 1_000_000),
        (
            ResultMessage("success", 1, 1, is_error=False, num_turns=0, session_id="s", result="1,234/200,000"),
            1_234,
            200_000,
        ),
    ],
)
async def test_else_the_command_is_read(client, usage, printed, tokens, window):
    kind = client(usage, printed, UserMessage("1k/2k tokens"))
    assert await measure_baseline(ClaudeAgentOptions()) == Baseline(tokens, window, "/context")
    assert kind.last.queries == ["/context"]


async def test_an_sdk_that_cannot_be_asked(client):
    client(None, UserMessage("27k/200k tokens (14%)")).get_context_usage = None
    assert (await measure_baseline(ClaudeAgentOptions())).tokens == 27_000


@pytest.mark.parametrize(
    ("usage", "reason"), [(Exception("unsupported"), "get_context_usage failed: unsupported"), ({}, "gave no count")]
)
async def test_no_answer_is_an_error_that_says_why(client, usage, reason):
    kind = client(usage, UserMessage("no counts here"))
    with pytest.raises(BaselineError, match=reason) as caught:
        await measure_baseline(ClaudeAgentOptions())
    assert reason in caught.value.reason
    assert kind.last.disconnects


async def test_it_ends_in_time_and_disconnects(client):
    kind = client("hang")
    with pytest.raises(TimeoutError):
        await measure_baseline(ClaudeAgentOptions(), timeout=0.01)
    assert kind.last.disconnects == 1


async def test_a_session_and_its_observers_are_left_out(client):
    kind = client({"totalTokens": 5})
    given_options = ClaudeAgentOptions(
        resume="s1",
        fork_session=True,
        hooks={"Stop": []},
        model="m",
        system_prompt="p",
        extra_args={"resume-session-at": "row"},
    )
    assert await measure_baseline(given_options) == Baseline(5, None, "get_context_usage")
    used = kind.last.options
    assert (used.resume, used.fork_session, used.hooks, used.extra_args) == (None, False, None, {})
    assert (used.model, used.system_prompt) == ("m", "p")
    assert given_options.resume == "s1"


@given(st.none() | st.integers() | st.text() | st.lists(st.text() | st.none() | st.integers()))
def test_any_content_gives_only_texts(content):
    message = type("Message", (), {"content": content, "result": content, "data": content})()
    assert all(isinstance(said, str) for said in _texts(message))
