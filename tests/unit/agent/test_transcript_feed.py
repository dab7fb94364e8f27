"""The gauge where nobody feeds the processor."""

import json
import threading

import pytest
from claude_agent_sdk import AssistantMessage

from mala_context import MessageStreamProcessor, Usage
from mala_context.agent import transcript_feed as gauge_module
from mala_context.agent.transcript_feed import TranscriptFeed
from mala_context.tracking.events import Compaction, Response, TurnEnd, UsageDelta


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
    gauge = TranscriptFeed(processor)
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
    await TranscriptFeed(processor).observe(hook(path))
    assert seen[-1].tokens == 100


async def test_a_fed_processor_is_left_alone(path):
    processor = MessageStreamProcessor()
    processor.process(object())
    write(path, row("assistant", 100, "a"))
    await TranscriptFeed(processor).observe(hook(path))
    assert processor.tracker.snapshot().tokens is None


async def test_a_resumed_session_is_seeded_once_even_where_it_is_fed(path):
    processor = MessageStreamProcessor()
    processor.process(object())
    gauge = TranscriptFeed(processor, resumes=True)
    write(path, row("assistant", 100, "a", session="older"))
    await gauge.observe(hook(path))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.session_id) == (100, "s1")
    write(path, row("assistant", 150, "b"))
    await gauge.observe(hook(path))
    assert processor.tracker.snapshot().tokens == 100


async def test_another_session_starts_from_the_top(path, tmp_path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
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
    await TranscriptFeed(processor).observe(given)
    assert processor.tracker.snapshot().session_id is None


async def test_a_transcript_that_is_not_there_yet_is_no_error(path):
    await TranscriptFeed(MessageStreamProcessor()).observe(hook(path))


async def test_a_subagents_hook_is_not_the_main_agents(path):
    processor = MessageStreamProcessor()
    write(path, row("assistant", 100, "a"))
    await TranscriptFeed(processor).observe(hook(path, agent_id="a1"))
    assert processor.tracker.snapshot().tokens is None


async def test_a_prompt_about_to_be_sent_is_projected_where_the_stream_is_fed(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    await gauge.observe(hook(path))
    write(path, row("assistant", 100, "a"))
    await gauge.observe(hook(path))
    processor.process(object())
    before = processor.tracker.snapshot().projected
    await gauge.observe(hook(path, prompt="word " * 400))
    assert processor.tracker.snapshot().projected > before + 300


def assistant(uuid, usage=None, content=()):
    message = AssistantMessage(list(content), "claude-sonnet-4-5", uuid=uuid, session_id="s1", message_id=f"m-{uuid}")
    message.usage = usage
    return message


async def test_the_opening_makes_an_estimate_out_of_a_rough_one(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    processor.process(assistant("a", {"input_tokens": 20_000, "output_tokens": 10}))
    said = "x" * 3_000
    skills = {"type": "attachment", "sessionId": "s1", "uuid": "k", "attachment": {"type": "skill_listing"}}
    opening = row("user", uuid="p")
    opening["message"]["content"] = said
    write(
        path, opening, {**skills, "rendered": [{"content": said}]}, row("assistant", 20_000, "a"), row("user", uuid="q")
    )
    await gauge.observe(hook(path, source="compact"))
    processor.take(Compaction(None, "s1", "manual", 20_000, 2_000))
    snapshot = processor.tracker.snapshot()
    assert snapshot.accuracy == "estimate"
    assert snapshot.tokens == pytest.approx(20_000 - 3_000 / 3 + (4 * 2_000 - 3_000) / 3, abs=2)


async def test_counts_that_were_not_streamed_come_from_the_rows(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    processor.process(assistant("a", {"input_tokens": 0, "output_tokens": 0}))
    assert processor.tracker.snapshot().tokens is None
    write(path, row("assistant", 150, "a"), row("assistant", 999, "never streamed"))
    await gauge.observe(hook(path))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.usage_source, snapshot.responses) == (150, "row", 1)


async def test_rows_are_left_alone_where_the_counts_were_streamed(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    processor.process(assistant("a", {"input_tokens": 0, "output_tokens": 0}))
    processor.take(UsageDelta(None, "s1", Usage(120, 0, 0, 5)))
    write(path, row("assistant", 150, "a"))
    await gauge.observe(hook(path))
    assert processor.tracker.snapshot().tokens == 120


async def test_the_row_of_a_turns_answer_is_waited_for(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    write(path, row("user", uuid="p"))
    written = threading.Event()

    def answer():
        write(path, row("assistant", 150, "a"))
        written.set()

    timer = threading.Timer(0.05, answer)
    timer.start()
    await gauge.observe(hook(path, hook_event_name="Stop"))
    assert written.is_set()
    assert processor.tracker.snapshot().tokens == 150
    timer.join()


@pytest.mark.parametrize("last", [[], [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]])
async def test_a_row_that_never_comes_is_not_waited_for_long(path, monkeypatch, last):
    monkeypatch.setattr(gauge_module, "SETTLE_SECONDS", 0.02)
    processor = MessageStreamProcessor()
    answer = row("assistant", 150, "a")
    answer["message"]["content"] = last
    write(path, *([answer] if last else [row("user", uuid="p")]))
    await TranscriptFeed(processor).observe(hook(path, hook_event_name="Stop"))
    assert processor.tracker.snapshot().tokens == (150 if last else None)


async def test_the_window_that_a_refusal_names_is_read_once(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    processor.process(assistant("a", {"input_tokens": 100, "output_tokens": 1}))
    refused = row("assistant", uuid="b", isApiErrorMessage=True, errorDetails="250000 tokens > 180000 maximum")
    write(path, row("assistant", 100, "a"), refused)
    await gauge.observe(hook(path))
    assert processor.tracker.snapshot().window == 200_000
    processor.take(TurnEnd("s1", None, is_error=True, terminal_reason="prompt_too_long"))
    await gauge.observe(hook(path))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.window, snapshot.window_source) == (180_000, "api_error")


@pytest.mark.parametrize("known", [True, False])
async def test_a_fork_is_seeded_from_the_session_it_forks(path, tmp_path, known):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor, resumes=True, resume_of="older" if known else None)
    write(tmp_path / "older.jsonl", row("assistant", 150, "a", session="older"))
    await gauge.observe(hook(path, prompt="go on"))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.session_id) == ((150, "s1") if known else (None, None))


async def test_a_fork_of_what_is_gone_is_no_error(path):
    gauge = TranscriptFeed(MessageStreamProcessor(), resumes=True, resume_of="gone")
    await gauge.observe(hook(path))


@pytest.mark.parametrize("fork", [False, True])
async def test_a_resumed_session_is_known_at_connect(path, tmp_path, fork):
    older = tmp_path / "projects" / "-project" / "older.jsonl"
    older.parent.mkdir(parents=True)
    write(older, row("assistant", 150, "a", session="older"))
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor, resumes=True, resume_of="older", projects_dirs=[str(tmp_path / "projects")])
    await gauge.connected()
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.session_id, snapshot.responses) == (150, "older", 1)
    await gauge.observe(hook(path) if fork else hook(older, session_id="older"))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.session_id, snapshot.responses) == (150, "s1" if fork else "older", 1)


@pytest.mark.parametrize("when", ["connect", "hook"])
@pytest.mark.parametrize(
    ("at", "tokens", "compactions"),
    [(None, 30_000, 1), ("a", 150, 0), ("r", 150, 0), ("c", 30_000, 1), ("not there", 30_000, 1)],
)
async def test_a_session_that_is_resumed_at_a_row_is_as_it_was_there(path, tmp_path, when, at, tokens, compactions):
    folder = tmp_path / "projects" / "-project"
    folder.mkdir(parents=True)
    compacted = {"preTokens": 190_000, "postTokens": 2_000, "trigger": "auto"}
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": compacted, "uuid": "b"}
    rows = row("assistant", 150, "a"), row("user", uuid="r"), row("assistant", 190_000, "n"), boundary
    write(folder / "s1.jsonl", *rows, row("assistant", 30_000, "c"))
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(
        processor, resumes=True, resume_of="s1", resume_at=at, projects_dirs=[str(tmp_path / "projects")]
    )
    if when == "connect":
        await gauge.connected()
    else:
        await gauge.observe(hook(folder / "s1.jsonl"))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.compactions) == (tokens, compactions)
    write(folder / "s1.jsonl", row("assistant", 170, "d", parentUuid=at))
    await gauge.observe(hook(folder / "s1.jsonl"))
    assert processor.tracker.snapshot().tokens == 170


async def test_what_an_earlier_process_did_is_no_news(path, caplog):
    """Its compactions, cache writes, refusals and full windows were told when they happened."""
    caplog.set_level("INFO")
    compacted = {"preTokens": 190_000, "postTokens": 2_000, "trigger": "auto"}
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": compacted, "sessionId": "s1"}
    refused = row(
        "assistant", uuid="e", isApiErrorMessage=True, errorDetails="prompt is too long: 9 tokens > 8 maximum"
    )
    write(path, row("assistant", 190_000, "a"), refused, {**boundary, "uuid": "b"}, row("assistant", 30_000, "c"))
    processor = MessageStreamProcessor()
    events, snapshots, rewritten, full = [], [], [], []
    processor.event_observers.append(lambda event, _: events.append(type(event).__name__))
    processor.snapshot_observers.append(lambda snapshot: snapshots.append((snapshot.tokens, snapshot.compactions)))
    processor.rewrite_observers.append(lambda *said: rewritten.append(said))
    processor.overflow_observers.append(full.append)
    gauge = TranscriptFeed(processor, resumes=True, resume_of="s1")
    await gauge.observe(hook(path))
    assert set(events) == {"SessionStart", "ContextEdited"}
    assert snapshots[-1] == (30_000, 1)
    assert {tokens for tokens, _ in snapshots} <= {None, 30_000}
    assert (rewritten, full, caplog.messages) == ([], [], [])
    write(path, {**boundary, "uuid": "d"})
    await gauge.observe(hook(path))
    assert events[-1] == "Compaction", "rows of this process are news"


async def test_a_forks_own_file_begins_with_what_was_told(path, tmp_path):
    """Where nobody feeds the processor: a compaction of the older session would be archived as one without its hook."""
    compacted = {"preTokens": 190_000, "postTokens": 2_000, "trigger": "auto"}
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": compacted, "uuid": "b"}
    older = (row("assistant", 190_000, "a", "old"), boundary, row("assistant", 30_000, "c", "old"))
    write(tmp_path / "old.jsonl", *older)
    processor = MessageStreamProcessor()
    told = []
    processor.event_observers.append(lambda event, _: told.append((type(event).__name__, getattr(event, "uuid", None))))
    gauge = TranscriptFeed(processor, resumes=True, resume_of="old")
    await gauge.observe(hook(path))
    write(path, *older, row("assistant", 31_000, "d"), {**boundary, "uuid": "e"})
    await gauge.observe(hook(path))
    assert [each for each in told if each[0] in ("Response", "Compaction")] == [("Response", "d"), ("Compaction", "e")]
    assert processor.tracker.snapshot().compactions == 2


async def test_a_session_resumed_right_after_a_compaction_is_an_estimate(path, tmp_path):
    """Its first request stands in the transcript, so what a fresh context holds is known."""
    compacted = {"preTokens": 90_000, "postTokens": 2_000, "trigger": "manual"}
    boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": compacted, "sessionId": "s1"}
    prompt = row("user", uuid="p", parentUuid=None)
    prompt["message"]["content"] = "go on"
    write(path, prompt, row("assistant", 20_000, "a", parentUuid="p"), {**boundary, "uuid": "b", "parentUuid": None})
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor, resumes=True, resume_of="s1", projects_dirs=[str(tmp_path.parent)])
    await gauge.observe(hook(path))
    snapshot = processor.tracker.snapshot()
    assert (snapshot.tokens, snapshot.accuracy, snapshot.compactions) == (22_000, "rough", 1)


@pytest.mark.parametrize("older", ["gone", "../no session id", "folder"])
async def test_what_cannot_be_read_at_connect_is_no_error(path, tmp_path, older):
    (tmp_path / "-project" / "folder.jsonl").mkdir(parents=True)
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor, resumes=True, resume_of=older, projects_dirs=[str(tmp_path)])
    await gauge.connected()
    assert processor.tracker.snapshot().tokens is None
    write(path, row("assistant", 150, "a"))
    await gauge.observe(hook(path))
    assert processor.tracker.snapshot().tokens == 150


async def test_the_prompt_of_a_seeded_session_counts(path):
    processor = MessageStreamProcessor()
    processor.process(object())
    gauge = TranscriptFeed(processor, resumes=True)
    write(path, row("assistant", 100, "a"))
    await gauge.observe(hook(path, prompt="word " * 400))
    assert processor.tracker.snapshot().projected > 400


async def test_ids_without_counts_are_kept_in_a_bounded_table(path):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    for number in range(1_000):
        processor.process(assistant(f"n{number}"))
    assert len(gauge._uncounted) <= 256


async def test_a_subagents_compaction_is_counted_with_its_sizes_and_its_line(caplog):
    caplog.set_level("INFO")
    processor = MessageStreamProcessor()
    feed = TranscriptFeed(processor)
    for number, size in enumerate((15_000, 90_000)):
        processor.take(Response("a1", "s1", f"m{number}", "claude-sonnet-4-5", Usage(size, 0, 0, 5)))
    told = {"session_id": "s1", "agent_id": "a1", "trigger": "auto", "compact_summary": "x" * 4_000}
    await feed.after_compaction(told)
    snapshot = processor.tracker.snapshot("a1")
    assert (snapshot.compactions, snapshot.tokens, snapshot.accuracy) == (1, 16_000, "rough")
    assert "Compaction: 90,000 → 16,000 tokens (trigger=auto)" in caplog.text
    await feed.after_compaction({**told, "agent_id": None})  # of the main agent's the stream tells
    processor.enabled = False
    await feed.after_compaction(told)
    assert (processor.tracker.snapshot("a1").compactions, processor.tracker.snapshot().compactions) == (1, 0)


async def test_what_changed_in_silence_long_ago_is_no_news(path, caplog):
    processor = MessageStreamProcessor()
    gauge = TranscriptFeed(processor)
    write(path, row("assistant", 50_000, "a"), row("assistant", 90_000, "b"))
    await gauge.observe(hook(path))
    assert "than projected" not in caplog.text
    write(path, row("assistant", 40_000, "c"))
    await gauge.observe(hook(path))
    assert "50,0" in next(each.getMessage() for each in caplog.records if "than projected" in each.getMessage())
