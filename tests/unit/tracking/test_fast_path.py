"""The short way does what the long way does, and is gone where it may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from claude_agent_sdk import ThinkingBlock
from hypothesis import example, given
from hypothesis import strategies as st

from mala_context import MessageStreamProcessor
from mala_context.tracking.events import Appended, Response
from mala_context.tracking.registry import LIVE
from mala_context.tracking.usage import Usage

MODELS = ("claude-sonnet-4-5", "claude-sonnet-4-5[1m]", "claude-opus-4-8", "<synthetic>")


def message(kind: str, **fields: Any) -> Any:
    """A message as its reader sees it: an object of a class of that name, with these attributes."""
    return CLASSES[kind](**fields)


KINDS = ("AssistantMessage", "UserMessage", "SystemMessage", "StreamEvent")
CLASSES: dict[str, Any] = {kind: type(kind, (SimpleNamespace,), {}) for kind in KINDS}


def usage(prompt: int = 40_000, output: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": prompt,
        "output_tokens": output,
        **more,
    }


def assistant(uuid: str | None, message_id: str | None = "m1", **fields: Any) -> Any:
    usual = {
        "content": [{"type": "text", "text": "I look at the failing test first."}],
        "model": MODELS[0],
        "parent_tool_use_id": None,
        "error": None,
        "usage": usage(),
        "message_id": message_id,
        "stop_reason": None,
        "session_id": "s1",
        "uuid": uuid,
    }
    return message("AssistantMessage", **{**usual, **fields})


def user(uuid: str | None, **fields: Any) -> Any:
    content = [{"type": "tool_result", "tool_use_id": "t1", "content": "line of output " * 20}]
    return message("UserMessage", **{"content": content, "uuid": uuid, "parent_tool_use_id": None, **fields})


def init(session_id: str = "s1", model: str = MODELS[0]) -> Any:
    data = {"session_id": session_id, "model": model}
    return message("SystemMessage", subtype="init", data=data)


def boundary(uuid: str) -> Any:
    metadata = {"trigger": "auto", "pre_tokens": 150_000, "post_tokens": 5_000}
    return message("SystemMessage", subtype="compact_boundary", data={"uuid": uuid, "compact_metadata": metadata})


FRESH = "fresh"
UUIDS = st.sampled_from([FRESH, FRESH, FRESH, FRESH, "u1", "u2", None])
AGENTS = st.sampled_from([None, None, None, "toolu_1"])
ODD_USAGES: list[Any] = [
    None,
    {},
    {"input_tokens": 0, "output_tokens": 0},
    {**usage(0), "input_tokens": 0},
    usage(-5),
    {**usage(), "input_tokens": 1.5},
    {**usage(), "output_tokens": True},
    {**usage(), "output_tokens": -1},
    "usage",
    [1, 2],
    usage(iterations=[{"type": "message", "input_tokens": 50, "output_tokens": 2}]),
]
USAGES = st.one_of(
    st.builds(usage, st.sampled_from([0, 40_000, 41_000, 1_200_000]), st.sampled_from([0, 1, 500])),
    st.sampled_from(ODD_USAGES),
)
THOUGHT = [ThinkingBlock("", "s" * 900)]
CONTENTS: Any = st.sampled_from(
    [
        *(None, [], "text", THOUGHT, [{"type": "text", "text": "hi"}]),
        "This session is being continued from a previous conversation",
        *(f"<local-command-stdout>Set model to `{model}`</local-command-stdout>" for model in MODELS),
    ]
)
MESSAGES = st.one_of(
    st.builds(
        assistant,
        UUIDS,
        st.sampled_from(["m1", "m1", "m2", "m3", "", None]),
        usage=USAGES,
        model=st.sampled_from(MODELS),
        parent_tool_use_id=AGENTS,
        session_id=st.sampled_from(["s1", "s1", "s1", "s2", None]),
        stop_reason=st.sampled_from([None, None, "tool_use", "max_tokens"]),
        content=st.one_of(CONTENTS, st.just([{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"a": "b"}}])),
    ),
    st.builds(user, UUIDS, parent_tool_use_id=AGENTS, content=CONTENTS),
    st.builds(user, st.just(FRESH)),
    st.builds(init, st.sampled_from(["s1", "s2"]), st.sampled_from(MODELS)),
    st.builds(boundary, st.sampled_from(["u1", "u7"])),
    st.builds(
        message,
        st.just("StreamEvent"),
        session_id=st.just("s1"),
        parent_tool_use_id=AGENTS,
        event=st.one_of(
            st.builds(
                lambda name, counts: {"type": "message_start", "message": {"id": name, "usage": counts}},
                st.sampled_from(["m1", "m2"]),
                USAGES,
            ),
            st.builds(lambda counts: {"type": "message_delta", "usage": counts, "delta": {}}, USAGES),
        ),
    ),
)


def known(processor: MessageStreamProcessor) -> Any:
    tracker = processor.tracker
    states = [tracker.main, *tracker.subagents.values()]
    return [
        [
            {**tracker.snapshot_of(state).as_dict(), "event": None},
            {name: estimate for name, estimate in tracker.estimates_of(state).items() if name != "characters"},
            (state.current, state.begun, state.responses, state.left and state.left[1]),
        ]
        for state in states
    ]


def changed(each: Any, **fields: Any) -> Any:
    return message(each.__class__.__name__, **{**vars(each), **fields})


DIFFERENCES: list[dict[str, Any]] = [
    {},
    {"stop_reason": "max_tokens"},
    {"model": MODELS[2]},
    {"model": MODELS[1]},
    {"session_id": "s2"},
    {"session_id": None},
    {"parent_tool_use_id": "toolu_1"},
    {"usage": usage(42_000)},
    {"usage": usage(output=0)},
    {"uuid": "u1"},
    {"uuid": None},
    {"content": []},
    {"content": THOUGHT},
    {"message_id": "m9"},
]
"""What one block of a response may say otherwise than the one before."""
RESPONSES = st.builds(
    lambda number, counts, differences: [
        changed(assistant(FRESH, f"m{number}", usage=counts), **each) for each in differences
    ],
    st.integers(1, 9),
    st.one_of(USAGES, st.just(usage())),
    st.lists(st.sampled_from([{}, {}, {}, *DIFFERENCES]), min_size=1, max_size=5),
)
STREAMS = st.lists(st.one_of(RESPONSES, MESSAGES.map(lambda each: [each])), max_size=20)


START_WITHOUT_MODEL = message(
    "StreamEvent",
    session_id="s1",
    parent_tool_use_id=None,
    event={"type": "message_start", "message": {"id": "m1", "usage": usage(0)}},
)


@given(STREAMS, st.sets(st.integers(0, 40)), st.booleans())
@example(
    stream=[
        [assistant(FRESH, content=None, model="<synthetic>", usage=None)],
        [START_WITHOUT_MODEL],
        [assistant(FRESH), assistant(FRESH, model=MODELS[2])],
    ],
    asked=set(),
    running=False,
)
def test_both_ways_do_the_same(stream: list[list[Any]], asked: set[int], running: bool) -> None:
    short, long = MessageStreamProcessor(), MessageStreamProcessor(on_event=[lambda event, snapshot: None])
    begun = [init(), user("p0"), assistant("a0", "m0"), user("r0")] if running else []
    for number, drawn in enumerate([*begun, *(each for part in stream for each in part)]):
        each = changed(drawn, uuid=f"row {number}") if getattr(drawn, "uuid", None) == FRESH else drawn
        short.process(each)
        long.process(each)
        if number in asked:
            assert known(short) == known(long)
    assert known(short) == known(long)


@pytest.mark.parametrize("odd", [*DIFFERENCES, *({"usage": each} for each in ODD_USAGES)], ids=repr)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_odd_message_is_taken_as_on_the_long_way(odd: dict[str, Any], place: int) -> None:
    short, long = running(), running(on_event=[lambda event, snapshot: None])
    blocks = [assistant(f"row {number}", "m1") for number in range(3)]
    blocks[place] = changed(blocks[place], **odd)
    for each in (*blocks, *blocks, user("u1"), user("row 0"), user("u1"), assistant("b1", "m2"), assistant("b2", "m1")):
        short.process(each)
        long.process(each)
        assert len(short.tracker.main.context.parts) == len(long.tracker.main.context.parts)
    assert known(short) == known(long)


def running(**options: Any) -> MessageStreamProcessor:
    processor = MessageStreamProcessor(**options)
    for each in (init(), user("p0"), assistant("a0", "m0"), user("r0")):
        processor.process(each)
    return processor


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What went the long way since."""
    gone: list[Any] = []
    plain = MessageStreamProcessor._take_all

    def noted(self: MessageStreamProcessor, each: Any) -> None:
        gone.append(each)
        plain(self, each)

    monkeypatch.setattr(MessageStreamProcessor, "_take_all", noted)
    return gone


def test_the_usual_messages_go_the_short_way(long_way: list[Any]) -> None:
    processor = running()
    long_way.clear()
    for number in range(1, 3 * LIVE + 1):
        processor.process(assistant(f"a{number}", f"m{number}", usage=usage(40_000 + number)))
        processor.process(assistant(f"b{number}", f"m{number}", usage=usage(40_000 + number)))
        processor.process(user(f"c{number}"))
    assert long_way == []
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.responses) == (40_003 + 3 * LIVE, 3 * LIVE + 1)
    assert len(processor.tracker.reducer.registry.seen) <= LIVE // 2 + 1
    assert len(processor.tracker.reducer.registry.responses) <= LIVE


def test_a_request_that_the_window_does_not_allow_refutes_it() -> None:
    processor = running()
    processor.process(assistant("a1", "m1", usage=usage(1_200_000)))
    snapshot = processor.tracker.snapshot()
    assert snapshot.window == snapshot.tokens == 1_200_003
    assert snapshot.window_doubtful


def test_what_was_read_from_the_transcript_is_not_taken_again() -> None:
    processor = running()
    processor.take(Response(None, "s1", "m1", MODELS[0], Usage(3, 0, 40_000, 1), [], None, "a1", "r0"))
    processor.take(Appended(None, "s1", "user", "text", "u1", "a1"))
    before = processor.tracker.snapshot().projected
    for each in (assistant("a1", "m1"), user("u1")):
        processor.process(each)
    assert processor.tracker.snapshot().projected == before


def test_prompts_before_the_first_response_are_its_opening() -> None:
    processor = MessageStreamProcessor()
    for each in (init(), user("p0", content="1234567890"), user("p1", content="12345"), assistant("a0", "m0")):
        processor.process(each)
    assert processor.tracker.main.opening.prompt_chars == 15


def test_whoever_looks_at_snapshots_or_events_sees_them() -> None:
    seen: dict[str, list[Any]] = {"snapshot": [], "event": [], "response": [], "appended": []}
    processor = running()
    processor.snapshot_observers.append(lambda snapshot: seen["snapshot"].append(snapshot.tokens))
    processor.observe(lambda event, snapshot: seen["response"].append(getattr(event, "message_id", None)), Response)
    processor.process(assistant("a1", "m1", usage=usage(50_000)))
    processor.process(assistant("a2", "m1", usage=usage(50_000)))
    processor.observe(lambda event, snapshot: seen["appended"].append(getattr(event, "uuid", None)), Appended)
    processor.process(user("u1"))
    processor.event_observers.append(lambda event, snapshot: seen["event"].append(getattr(event, "uuid", None)))
    processor.process(assistant("a3", "m1", usage=usage(50_000)))
    processor.process(user("u2"))
    assert seen == {
        "snapshot": [50_003],
        "response": ["m1", "m1"],  # of the later ones that with an observer of all events
        "appended": ["u1", "u2"],
        "event": ["a3", "u2"],
    }


def test_each_response_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    processor = running()
    with caplog.at_level("DEBUG", "mala_context.agent.stream"):
        processor.process(init())  # the level is looked at with what goes the long way
        processor.process(assistant("a1", "m1", usage=usage(50_000)))
    assert any("50,003" in record.getMessage() for record in caplog.records)
