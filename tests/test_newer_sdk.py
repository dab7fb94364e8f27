"""An SDK and a CLI newer than we know: what they bring passes, and nobody is warned of it message by message."""

import json
import logging
from dataclasses import dataclass, make_dataclass
from typing import Any

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, SystemMessage, TextBlock

from mala_context import MessageStreamProcessor, command_hooks
from mala_context.readers import READERS, read_message, read_row, read_stream_json
from mala_context.sdk_hooks import HOOKS
from mala_context.session import open_session
from tests.live import MODEL, SESSION, assistant, boundary, feed, init, result

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@dataclass
class ThoughtMessage:
    """A message class that no SDK has."""

    text: str
    usage: dict[str, Any]
    session_id: str = SESSION


@dataclass
class ThoughtBlock:
    """A content block that no SDK has."""

    depth: int


def newer(message: Any) -> Any:
    """Return `message` as a newer SDK would build it: the same class name with a field more."""
    cls = make_dataclass(type(message).__name__, [("from_the_future", dict)], bases=(type(message),), kw_only=True)
    return cls(**vars(message), from_the_future={"tokens": 10**9})


UNKNOWN = {
    "class": ThoughtMessage("hm", {"input_tokens": 10**9}),
    "subtype": SystemMessage("context_folded", {"session_id": SESSION, "pre_tokens": 10**9, "post_tokens": 1}),
    "subtype without data": SystemMessage("context_folded", {}),
    "block": AssistantMessage(content=[ThoughtBlock(3)], model=MODEL, message_id="m0"),  # type: ignore[list-item] # newer
    "not a subtype": SystemMessage(["folded"], {}),  # type: ignore[arg-type] # of another type than today's
}
RAW = [
    {"type": "thought", "text": "hm", "usage": {"input_tokens": 10**9}},
    {"type": "system", "subtype": "context_folded", "session_id": SESSION, "pre_tokens": 10**9},
    {"type": {"name": "assistant"}, "version": 2},
    {"type": "stream_event", "event": {"type": "thought_start", "usage": {"input_tokens": 10**9}}},
]


@pytest.mark.parametrize("source", READERS)
@pytest.mark.parametrize("raw", RAW, ids=lambda raw: str(raw["type"]))
def test_an_unknown_kind_is_no_event(source: str, raw: dict[str, Any]) -> None:
    assert [event for event in READERS[source](raw) if getattr(event, "usage", None) is not None] == []
    if source in ("stream-json", "transcript"):
        assert READERS[source](raw) == ()


@pytest.mark.parametrize("message", [UNKNOWN[name] for name in ("class", "subtype", "not a subtype")], ids=repr)
def test_an_unknown_message_is_no_event(message: Any) -> None:
    assert read_message(message) == ()


KNOWN = [init(), assistant("m1", 5000), boundary(5000, 800), result({"input_tokens": 5})]


@pytest.mark.parametrize("message", KNOWN, ids=lambda message: type(message).__name__)
def test_a_field_more_changes_nothing(message: Any) -> None:
    assert read_message(newer(message)) == read_message(message) != ()


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        (read_row, {"type": "user", "uuid": "u", "sessionId": SESSION, "message": {"content": "hi"}}),
        (read_stream_json, {"type": "system", "subtype": "init", "session_id": SESSION, "model": MODEL}),
    ],
)
def test_a_key_more_changes_nothing(read: Any, raw: dict[str, Any]) -> None:
    assert read({**raw, "fromTheFuture": {"tokens": 10**9}, "v": 9}) == read(raw) != ()


def test_usage_of_tomorrow_is_read_as_today_s() -> None:
    message = assistant("m1", 5000)
    usage = {
        **(message.usage or {}),
        "iterations": [{"input_tokens": 10**9, "output_tokens": 10**9}],
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_7d_input_tokens": 10**9},
        "cache_folded_input_tokens": 10**9,
    }
    later = AssistantMessage(content=message.content, model=MODEL, message_id="m1", session_id=SESSION, usage=usage)
    assert read_message(later) == read_message(message) != ()


@pytest.mark.parametrize(
    "row",
    [
        {"type": "attachment", "attachment": {"type": "hologram", "content": {"depth": ["of", 7]}}},
        {"type": "attachment", "attachment": "hologram"},
        {"type": "user", "message": {"content": [{"type": "hologram", "source": {"tokens": 10**9}}]}},
        {"type": "user", "message": {"content": {"type": "hologram", "tokens": 10**9}}},
    ],
)
def test_content_of_tomorrow_is_at_most_projected(row: dict[str, Any]) -> None:
    tracker = MessageStreamProcessor().tracker
    feed(tracker, init(), assistant("m1", 5000))
    before = tracker.snapshot()
    feed(tracker, *read_row({"uuid": "u", "sessionId": SESSION, **row}))
    after = tracker.snapshot()
    assert after.tokens == before.tokens
    assert (before.projected or 0) <= (after.projected or 0) < (before.projected or 0) + 10_000


def test_the_processor_passes_all_of_it_on_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    processor = MessageStreamProcessor()
    for message in [init(), assistant("m1", 5000)]:
        processor.process(message)
    before, told = processor.tracker.snapshot().tokens, len(caplog.records)
    for message in UNKNOWN.values():
        processor.process(message)
    assert processor.tracker.snapshot().tokens == before
    news = caplog.records[told:]
    assert len(news) <= len(UNKNOWN)
    assert {record.levelname for record in news} <= {"DEBUG"}


class Client:
    """Answers each prompt with `messages`, then with a result of that prompt."""

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages
        self._send, self._receive = anyio.create_memory_object_stream[Any](100)

    async def connect(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def disconnect(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def query(self, prompts: Any) -> None:
        async for prompt in prompts:
            done = result({"input_tokens": 900})
            done.user_message_uuids = [prompt["uuid"]]
            for message in [*self.messages, done]:
                self._send.send_nowait(message)

    async def receive_messages(self) -> Any:
        async for message in self._receive:
            yield message

    async def close(self) -> None:
        self._send.close()
        self._receive.close()


@BACKENDS
def test_a_session_hands_on_what_it_does_not_know(caplog: pytest.LogCaptureFixture, backend: str) -> None:
    caplog.set_level(logging.WARNING)
    sent = [*UNKNOWN.values(), newer(AssistantMessage(content=[TextBlock("done")], model=MODEL))]

    async def main() -> list[Any]:
        client = Client(sent)
        async with open_session(client, MessageStreamProcessor(), client.close) as session:
            return [message async for message in session.send("go")]

    received = anyio.run(main, backend=backend)
    assert [id(message) for message in received[:-1]] == [id(message) for message in sent]
    assert type(received[-1]).__name__ == "ResultMessage"
    assert caplog.records == []


class Part:
    """Stands for every part that a hook may ask; has nothing to say."""

    def __getattr__(self, name: str) -> Any:
        async def action(found: Any) -> None:
            json.dumps(dict(found))

        return action


PARTS = ("archivist", "pin", "gauge", "notes", "cap", "gate")


@pytest.mark.parametrize("event", HOOKS)
async def test_a_hook_takes_an_event_and_fields_of_tomorrow(event: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = HOOKS[event](dict.fromkeys(PARTS, Part()))
    found = {"hook_event_name": "ContextFolded", "session_id": SESSION, "depth": {"of": ["folding"]}, "trigger": 7}
    assert hook is not None
    assert await hook(found, "toolu_1", {"signal": None}, of_tomorrow=True) == {}
    assert caplog.records == []


def test_the_command_hook_answers_an_event_of_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_hooks, "_input", lambda: {"hook_event_name": "ContextFolded", "depth": [1]})
    assert command_hooks.answer_hook([], {}) == (b"{}", "")
