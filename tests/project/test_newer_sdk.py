"""An SDK and a CLI newer than we know: what they bring passes, and nobody is warned of it message by message."""

import json
import logging
from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, SystemMessage, TextBlock

from mala_context import MessageStreamProcessor
from mala_context.agent.claude_code import command_hooks
from mala_context.agent.hooks import HOOKS
from mala_context.agent.session import open_session
from mala_context.tracking.readers import READERS, read_message, read_row, read_stream_json
from tests.helpers.sdk_stream import MODEL, SESSION, assistant, boundary, feed, init, result

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


def test_the_processor_passes_all_of_it_on_and_names_each_kind_once_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    processor = MessageStreamProcessor()
    for message in [init(), assistant("m1", 5000)]:
        processor.process(message)
    before, told = processor.tracker.snapshot().tokens, len(caplog.records)
    for _ in range(3):
        for message in UNKNOWN.values():
            processor.process(message)
    assert processor.tracker.snapshot().tokens == before
    said = [record.message for record in caplog.records[told:] if "nothing is read" in record.message]
    assert [line.removeprefix("Context: nothing is read from ") for line in said] == [
        "ThoughtMessage",
        "SystemMessage context_folded",
        "SystemMessage ['folded']",
    ]
    assert {record.levelname for record in caplog.records[told:]} == {"DEBUG"}


def test_the_name_of_a_kind_is_printable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    MessageStreamProcessor().process(SystemMessage("thought\n\x1b[2J", {}))
    assert caplog.messages == [r"Context: nothing is read from SystemMessage thought\x0a\x1b[2J"]


def test_of_many_kinds_not_all_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    processor = MessageStreamProcessor()
    for number in range(1_000):
        processor.process(SystemMessage(f"kind {number}", {}))
    assert len(caplog.records) == 100


class TestRenamed:
    """A count under another name is unknown: never the rest of the sum, and never 0."""

    RENAMED: ClassVar = {"input_tokens": 3, "cached_input_tokens": 90_000, "output_tokens": 5}

    def test_a_response_moves_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        processor = MessageStreamProcessor()
        processor.process(init())
        later = assistant("m1", None)
        later.usage = self.RENAMED
        processor.process(later)
        assert processor.tracker.snapshot().tokens is None
        processor.process(assistant("m2", 5000))
        later = assistant("m3", None)
        later.usage = self.RENAMED
        processor.process(later)
        assert processor.tracker.snapshot().tokens == 5000
        assert caplog.text.count("nothing is read from usage with cached_input_tokens") == 1

    def test_nor_does_a_result(self) -> None:
        processor = MessageStreamProcessor()
        for message in [init(), assistant("m1", None), result(self.RENAMED, num_turns=1)]:
            processor.process(message)
        assert processor.tracker.snapshot().tokens is None
        assert not processor.context_usage.is_tracking_enabled()

    @pytest.mark.parametrize("source", [read_row, read_stream_json])
    def test_nor_does_a_row(self, source: Any) -> None:
        raw = {"type": "assistant", "uuid": "u", "message": {"id": "m", "model": MODEL, "usage": self.RENAMED}}
        (event,) = source({**raw, "sessionId": SESSION} if source is read_row else {**raw, "session_id": SESSION})
        assert event.usage is None

    @pytest.mark.parametrize(
        "meta",
        [
            {},
            {"trigger": "auto", "tokens_before": 5000, "tokens_after": 800},
            {"trigger": "folded", "pre_tokens": 5000, "tokens_after": 800},
            {"trigger": ["auto"], "pre_tokens": "5000", "post_tokens": {"messages": 800}},
        ],
    )
    def test_a_compaction_of_unknown_size_leaves_an_unknown_size(self, meta: dict[str, Any]) -> None:
        processor = MessageStreamProcessor()
        tracker = processor.tracker
        for message in [init(), assistant("m1", 5000)]:
            processor.process(message)
        processor.process(SystemMessage("compact_boundary", {"session_id": SESSION, "compact_metadata": meta}))
        assert tracker.snapshot().tokens is None
        assert tracker.snapshot().compactions == 1
        processor.process(assistant("m2", 900))
        assert tracker.snapshot().tokens == 900

    def test_the_window_stays_what_it_was(self) -> None:
        tracker = MessageStreamProcessor().tracker
        feed(tracker, init(), assistant("m1", 5000))
        before = tracker.snapshot().window
        feed(tracker, result({"input_tokens": 5}, model_usage={MODEL: {"window": 7, "contextWindow": "7"}}))
        assert tracker.snapshot().window == before


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
