"""The cache ledger and the idle compaction on the real CLI, held against the scripted API's own cache and clock."""

import asyncio
import logging

import pytest

from mala_context import CacheRewritten, ContextConfig, instrument
from mala_context.testing import ScriptedClock, ScriptedMessagesAPI, text, tool
from tests.e2e.driving import prose


@pytest.fixture(autouse=True)
def no_archive_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))


def played(api, clock, tmp_path, **config):
    """A runtime on this API and clock, and the records that it tells."""
    runtime = instrument(api.options(cwd=tmp_path), repo_path=tmp_path, config=ContextConfig(warn_at=None, **config))
    runtime.processor.use_clock(clock)
    records = []
    runtime.observers.append(lambda record: isinstance(record, CacheRewritten) and records.append(record))
    return runtime, records


async def say(session, prompt):
    return [message async for message in session.send(prompt)][-1]


def sums(api, kind="main"):
    """What the server read and wrote for its answered requests of a kind."""
    usages = [request.usage for request in api.of_kind(kind) if request.usage is not None]
    creation = [usage["cache_creation"] for usage in usages]
    return (
        sum(usage["input_tokens"] for usage in usages),
        sum(each["ephemeral_5m_input_tokens"] for each in creation),
        sum(each["ephemeral_1h_input_tokens"] for each in creation),
        sum(usage["cache_read_input_tokens"] for usage in usages),
    )


async def test_the_ledger_is_the_servers_own_account(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    clock = ScriptedClock()
    script = ["one", tool("Bash", command="echo two") + text("."), "three", "four", "five", "six"]
    with ScriptedMessagesAPI(script, clock=clock, chars_per_token=2.0) as api:
        runtime, records = played(api, clock, tmp_path)
        async with runtime.session() as session:
            await say(session, prose(30_000))
            await say(session, "a tool, please")
            clock.advance(4_260)
            await say(session, "after 71 minutes")
            api.break_cache()
            await say(session, "after a break")
            await session.client.set_model("claude-opus-4-6")
            await say(session, "by another model")
            assert session.cache[:4] == sums(api)
            assert session.cache == session.context.cache
        theirs = [(each.again, each.again_cause) for each in api.main_requests if each.again >= 1_000]
    ours = [(each.tokens, each.cause) for each in records if each.cause != "first"]
    assert ours == theirs
    assert [cause for _, cause in ours] == ["lapsed", "prefix", "model"]
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Cache:")]
    assert lines[0] == f"Cache: {ours[0][0]:,} tokens written again (71 min idle)"
    assert len(lines) == 3


async def test_a_subagent_has_an_account_of_its_own(tmp_path):
    clock = ScriptedClock()
    task = tool("Task", description="look", prompt="look at it", subagent_type="general-purpose")
    with ScriptedMessagesAPI(
        [task, "done", "."], subagents=[tool("Bash", command="echo x"), "seen"], clock=clock
    ) as api:
        runtime, records = played(api, clock, tmp_path)
        async with runtime.session() as session:
            await say(session, "use a subagent")
            assert session.cache[:4] == sums(api)
            (agent,) = session.tracker.agents().values()
            first = api.of_kind("subagent")[0]
        assert agent.cache.written_5m == first.usage["cache_creation_input_tokens"]
    assert [each.agent is None for each in records] == [True, False]


async def test_an_idle_session_compacts_once_before_the_lapse(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    clock = ScriptedClock()
    with ScriptedMessagesAPI(["hi", "one", "two", "three"], clock=clock) as api:
        runtime, records = played(api, clock, tmp_path, compact_idle=True)
        async with runtime.session() as session:
            await say(session, "hello")
            await say(session, prose(360_000))
            clock.advance(241)
            summary = await asyncio.to_thread(api.wait, kind="compaction", state="answered")
            assert summary.usage["cache_read_input_tokens"] > 80_000  # it read the context while that was cheap
            await say(session, "go on")
            assert session.context.compactions == 1
            after = api.last
            assert after.usage["cache_read_input_tokens"] > 0
            assert after.again_cause != "lapsed"
            clock.advance(3_000)
            await say(session, "much later")
            assert session.context.compactions == 1
        assert len(api.of_kind("compaction")) == 1
    assert "Context: asking for /compact (idle)" in caplog.text
    assert max(each.tokens for each in records if each.cause == "lapsed") < 80_000


async def test_a_small_idle_session_is_left_alone(tmp_path):
    clock = ScriptedClock()
    with ScriptedMessagesAPI(["one", "two"], clock=clock) as api:
        runtime, _ = played(api, clock, tmp_path, compact_idle=True)
        async with runtime.session() as session:
            await say(session, "hello")
            clock.advance(241)
            await say(session, "soon")
            assert session.context.compactions == 0
        assert api.of_kind("compaction") == []
