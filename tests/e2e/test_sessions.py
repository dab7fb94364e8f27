"""Sessions that go on, split, begin anew, or run where little is as it should be."""

import pytest
from claude_agent_sdk import ClaudeSDKClient, HookMatcher

from mala_context import ContextPressureError, instrument
from mala_context.testing import text, tool
from tests.helpers.variants import variants

from .driving import Watch, check_private, check_whole, outcomes, prose, results, transcript, triggers, turn


@pytest.fixture
async def old(agent):
    """Return the id of a session that was played, and the tokens of its last request."""
    runtime, watch = agent([prose(8_000), tool("Bash", command="seq 1000", description="x"), "Done."])
    async with runtime.session() as session:
        await turn(session, "one")
        await turn(session, "two")
        watch.check(3)
        return session.context.session_id, watch.api.last.tokens


@pytest.mark.parametrize("fork", [False, True], ids=["resume", "fork"])
async def test_a_session_that_goes_on(agent, old, mala_home, fork):
    session_id, tokens = old
    before = transcript(mala_home, session_id).read_bytes()
    runtime, watch = agent(["Third.", "Fourth."], options={"resume": session_id, "fork_session": fork})
    seeded = []

    def look(event, snapshot):
        if not watch.seen:
            snapshot = runtime.tracker.snapshot()
            seeded.append((snapshot.tokens, snapshot.projected))

    runtime.processor.event_observers.append(look)
    async with runtime.session() as session:
        await turn(session, "three")
        await turn(session, "four")
        now = session.context.session_id
    watch.check(2)
    assert seeded[-1][0] == tokens
    truth = watch.answered[0].tokens
    assert abs(seeded[-1][1] - truth) <= 0.02 * truth
    assert watch.answered[0].tokens > tokens
    assert (now == session_id) is not fork
    assert runtime.tracker.snapshot().responses >= 2
    if fork:
        assert transcript(mala_home, session_id).read_bytes() == before
    assert triggers(runtime.archive, now)[-1] == "session_end"
    check_whole(runtime.archive, mala_home, now)
    check_whole(runtime.archive, mala_home, session_id)


async def test_a_resumed_session_that_compacts(agent, old, mala_home):
    session_id, tokens = old
    runtime, watch = agent(["Third.", "After."], options={"resume": session_id})
    async with runtime.session() as session:
        await turn(session, "three")
        await turn(session, "/compact")
        assert session.context.tokens != tokens
        await turn(session, "four")
    watch.check(2)
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 1)]
    assert triggers(runtime.archive, session_id) == ["session_end", "manual", "session_end"]
    check_whole(runtime.archive, mala_home, session_id)


@pytest.mark.parametrize("fed", variants([False, True]), ids=["hooks", "stream"])
@pytest.mark.parametrize("fork", [False, True], ids=["resume", "fork"])
async def test_a_compaction_before_the_resume_is_no_news(agent, fork, fed, caplog):
    runtime, _ = agent([prose(8_000), "Two.", "Three."])
    async with runtime.session() as session:
        for prompt in ("one", "two", "/compact", "three"):
            await turn(session, prompt)
        session_id = session.context.session_id
    caplog.clear()
    runtime, watch = agent(["Four."], options={"resume": session_id, "fork_session": fork})
    records = []
    runtime.observers.append(records.append)
    async with runtime, ClaudeSDKClient(runtime.options) as client:
        await client.query("four")
        messages = client.receive_response()
        now = [each async for each in (runtime.processor.stream(messages) if fed else messages)][-1].session_id
    assert runtime.tracker.snapshot().tokens == watch.answered[-1].tokens
    assert outcomes(runtime.archive, now) == ([] if fork else [("manual", "compacted", 0)])
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0)]
    assert "CompactionSeen" not in {type(record).__name__ for record in records}
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_a_conversation_that_is_cleared(agent, mala_home, mala_runs):
    runtime, watch = agent([prose(4_000), "Second.", "Anew.", "After."])
    async with runtime.session() as session:
        await turn(session, "one")
        await turn(session, "two")
        first = session.context.session_id
        (result,) = results(await turn(session, "/clear"))
        cleared = session.context
        assert cleared.tokens is None
        assert cleared.accuracy == "unknown"
        assert cleared.session_id == result.session_id != first
        await turn(session, "three")
        assert session.context.tokens == watch.api.last.tokens < watch.answered[1].tokens
        await turn(session, "/compact")
        await turn(session, "four")
    watch.check(4)
    second = cleared.session_id
    assert not watch.api.last.contains("Second.")
    assert triggers(runtime.archive, first)[0] == "session_end"
    assert triggers(runtime.archive, second) == ["manual", "session_end"]
    assert outcomes(runtime.archive, first) == []
    assert outcomes(runtime.archive, second) == [("manual", "compacted", 0)]
    check_whole(runtime.archive, mala_home, first)
    check_whole(runtime.archive, mala_home, second)
    check_private(mala_runs)


async def test_a_session_is_left_early_and_taken_up(agent):
    runtime, watch = agent(["One.", text("Two.") + tool("Bash", command="true", description="x"), "Three."])
    async with runtime.session() as session:
        await turn(session, "one")
        async for message in session.send("two"):
            if type(message).__name__ == "AssistantMessage":
                break
        messages = await turn(session, "three")  # the CLI takes it into the turn that still runs
    watch.check(3)
    assert [result.result for result in results(messages)] == ["Three."]


async def test_an_error_of_the_callers_own_ends_the_session_in_order(agent, mala_home):
    runtime, watch = agent(["One."])

    async def fail():
        async with runtime.session() as session:
            await turn(session, "one")
            raise LookupError("the caller's own")

    with pytest.raises(LookupError, match="the caller's"):
        await fail()
    watch.check(1)
    session_id = runtime.tracker.session_id
    assert triggers(runtime.archive, session_id) == ["session_end"]
    check_whole(runtime.archive, mala_home, session_id)


async def test_a_session_at_a_time_from_one_runtime(agent, mala_home):
    runtime, watch = agent(["One.", "Two."])
    ids = []
    for prompt in ("one", "two"):
        async with runtime.session() as session:
            await turn(session, prompt)
            ids.append(session.context.session_id)
    watch.check(2)
    assert ids[0] != ids[1]
    for session_id in ids:
        check_whole(runtime.archive, mala_home, session_id)


async def of_a_session(runtime, seen):
    async with runtime.session() as session:
        async for message in session.send(prose(2_000)):
            seen.append(message)


async def of_a_client(runtime, seen):
    async with runtime, ClaudeSDKClient(runtime.options) as client:
        await client.query(prose(2_000))
        async for message in runtime.processor.stream(client.receive_response()):
            seen.append(message)


@pytest.mark.parametrize("play", [of_a_session, of_a_client])
async def test_pressure_is_raised_behind_its_result(agent, mala_home, play):
    runtime, watch = agent(["One."], config="context:\n  window: 16000\n  restart_at: 0.8\n  max_restarts: 0\n")
    seen = []
    with pytest.raises(ContextPressureError) as caught:
        await play(runtime, seen)
    watch.check(1)
    assert len(results(seen)) == 1
    session_id = runtime.tracker.session_id
    assert caught.value.session_id == session_id
    assert caught.value.pressure_ratio >= 0.8
    assert triggers(runtime.archive, session_id) == ["session_end"]
    check_whole(runtime.archive, mala_home, session_id)


async def test_hooks_of_the_users_own_stay(mala_api, mala_options):
    heard = []

    async def note(hook_input, *_):
        heard.append(hook_input["hook_event_name"])
        return {}

    api = mala_api(["One.", "After."])
    options = mala_options(api, hooks={name: [HookMatcher(hooks=[note])] for name in ("PreCompact", "Stop")})
    runtime = instrument(options)
    watch = Watch(runtime, api)
    async with runtime.session() as session:
        for prompt in ("one", "/compact", "two"):
            await turn(session, prompt)
        session_id = session.context.session_id
    watch.check(2)
    assert heard == ["Stop", "PreCompact", "Stop"]
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0)]


async def test_two_sessions_of_one_runtime_at_once(agent, mala_home):
    runtime, watch = agent([prose(4_000), "Two.", prose(9_000), "Four."], config="context: {warn_at: 0.01}")
    told = []
    runtime.observers.append(told.append)
    async with runtime.session() as first:
        await turn(first, prose(12_000))
        async with runtime.session() as second:
            await turn(second, "two")
            await turn(first, "three")
            await turn(second, "four")
            answered = [request.tokens for request in watch.answered]
            assert (first.context.tokens, second.context.tokens) == (answered[2], answered[3])
            assert answered[2] > answered[3]
            assert first.tracker is runtime.tracker
            assert second.tracker is not runtime.tracker
            ids = first.context.session_id, second.context.session_id
        assert first.context.session_id == ids[0]
    assert len(set(ids)) == 2
    assert {record.session_id for record in told if type(record).__name__ == "ThresholdCrossed"} == set(ids)
    for session_id in ids:
        assert triggers(runtime.archive, session_id) == ["session_end"]
        check_whole(runtime.archive, mala_home, session_id)
