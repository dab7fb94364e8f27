"""The gauge where nobody feeds the processor."""

import json

import pytest

from mala_context import MessageStreamProcessor
from mala_context.gauge import TranscriptGauge


def row(kind, prompt=None, uuid="u", session="s1", **fields):
    message = {"id": f"m-{uuid}", "model": "claude-sonnet-4-5", "content": [], "role": kind}
    if prompt is not None:
        message["usage"] = {"input_tokens": prompt, "output_tokens": 5}
    return {"type": kind, "uuid": uuid, "sessionId": session, "message": message, **fields}


def write(path, *rows):
    with path.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in rows)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s1.jsonl"


def hook(path, **fields):
    return {"session_id": "s1", "transcript_path": str(path), **fields}


async def test_the_transcript_moves_the_gauge(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptGauge(processor)
    write(path, row("assistant", 100, "a"))
    await gauge.observe(hook(path))
    assert processor.tracker.snapshot().tokens == 100
    write(path, row("assistant", 150, "b"))
    await gauge.observe(hook(path))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.responses, snapshot.session_id) == (150, 2, "s1")


async def test_observers_hear_of_rows_as_of_messages(path):
    seen = []
    processor = MessageStreamProcessor(on_snapshot=[seen.append])
    write(path, row("assistant", 100, "a"))
    await TranscriptGauge(processor).observe(hook(path))
    assert seen[-1].tokens == 100


async def test_a_fed_processor_is_left_alone(path):
    processor = MessageStreamProcessor()
    processor.process(object())
    write(path, row("assistant", 100, "a"))
    await TranscriptGauge(processor).observe(hook(path))
    assert processor.tracker.snapshot().tokens is None


async def test_a_resumed_session_is_seeded_once_even_where_it_is_fed(path):
    processor = MessageStreamProcessor()
    processor.process(object())
    gauge = TranscriptGauge(processor, resumes=True)
    write(path, row("assistant", 100, "a", session="older"))
    await gauge.observe(hook(path))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.session_id) == (100, "s1")
    write(path, row("assistant", 150, "b"))
    await gauge.observe(hook(path))
    assert processor.tracker.snapshot().tokens == 100


async def test_another_session_starts_from_the_top(path, tmp_path):
    processor = MessageStreamProcessor()
    gauge = TranscriptGauge(processor)
    write(path, row("assistant", 100, "a"))
    await gauge.observe(hook(path))
    other = tmp_path / "s2.jsonl"
    write(other, row("user", uuid="x", session="s2"))
    await gauge.observe({"session_id": "s2", "transcript_path": str(other)})
    snapshot = processor.tracker.snapshot()
    assert (snapshot.session_id, snapshot.tokens) == ("s2", None)


@pytest.mark.parametrize(
    "given",
    [{}, {"session_id": ""}, {"session_id": 7}, {"session_id": "s1"}, {"session_id": "s1", "transcript_path": 7}],
)
async def test_a_hook_without_a_transcript_changes_nothing(given):
    processor = MessageStreamProcessor()
    await TranscriptGauge(processor).observe(given)
    assert processor.tracker.snapshot().session_id is None


async def test_a_transcript_that_is_not_there_yet_is_no_error(path):
    await TranscriptGauge(MessageStreamProcessor()).observe(hook(path))


async def test_a_subagents_hook_is_not_the_main_agents(path):
    processor = MessageStreamProcessor()
    write(path, row("assistant", 100, "a"))
    await TranscriptGauge(processor).observe(hook(path, agent_id="a1"))
    assert processor.tracker.snapshot().tokens is None


async def test_a_prompt_about_to_be_sent_is_projected_where_the_stream_is_fed(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptGauge(processor)
    await gauge.observe(hook(path))
    write(path, row("assistant", 100, "a"))
    await gauge.observe(hook(path))
    processor.process(object())
    before = processor.tracker.snapshot().projected
    await gauge.observe(hook(path, prompt="word " * 400))
    assert processor.tracker.snapshot().projected > before + 300
