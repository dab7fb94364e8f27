"""The gauge on the real CLI: after each response the tokens are what the server counted."""

import asyncio
import threading

import anyio
import pytest
from claude_agent_sdk import ClaudeSDKClient

from mala_context import AgentRuntimeBuilder, instrument
from mala_context.testing import text, thinking, tool

from .driving import Watch, check_whole, outcomes, prose, results, texts, triggers, turn

WORK = [
    text("I look.") + tool("Bash", command="echo one", description="x"),
    tool("Bash", command="echo two", description="x") + tool("Bash", command="seq 2000", description="y"),
    "Done.",
    "Again.",
]


async def work(runtime):
    async with runtime.session() as session:
        first = await turn(session, "Do it.")
        return first + await turn(session, "And again.")


def check_work(watch, messages):
    watch.check(4)
    assert texts(messages) == ["I look.", "Done.", "Again."]
    assert len(results(messages)) == 2
    assert watch.runtime.tracker.snapshot().exact


async def test_tool_calls_parallel_ones_too(agent):
    runtime, watch = agent(WORK)
    check_work(watch, await work(runtime))


def test_the_same_on_trio(agent):
    runtime, watch = agent(WORK)
    check_work(watch, anyio.run(work, runtime, backend="trio"))


async def test_a_builder_makes_the_same_agent(mala_api, mala_options, mala_project):
    api = mala_api(WORK)
    fields = mala_options(api)
    builder = AgentRuntimeBuilder(mala_project, agent_id="worker").with_model("claude-sonnet-4-5")
    builder.with_env(fields.env).with_options(permission_mode="bypassPermissions", setting_sources=[])
    runtime = builder.build()
    watch = Watch(runtime, api)
    check_work(watch, await work(runtime))


async def test_partial_messages_bring_the_real_output(agent):
    said = "word " * 400
    runtime, watch = agent([thinking("I think.") + text(said)], options={"include_partial_messages": True})
    async with runtime.session() as session:
        await turn(session, "Talk.")
    watch.check(1)
    assert runtime.tracker.snapshot().output_tokens == watch.api.last.usage["output_tokens"] > 400


@pytest.mark.parametrize("partial", [False, True])
async def test_usage_in_the_delta_alone(agent, partial):
    runtime, watch = agent(WORK, usage_in="delta", options={"include_partial_messages": partial})
    sizes = []
    async with runtime.session() as session:
        for prompt in ("Do it.", "And again."):
            await turn(session, prompt)
            sizes.append((session.context.tokens, session.context.exact))
    first, second = watch.answered[2], watch.answered[3]
    assert sizes == [(first.tokens, True), (second.tokens, True)]
    source = runtime.tracker.snapshot().usage_source
    assert source == "delta" if partial else source in {"row", "result"}


async def test_two_clients_at_once(agent):
    pairs = [agent([prose(1000 * number), tool("Bash", command="echo", description="x"), "B."]) for number in (1, 2)]

    async def drive(runtime):
        async with runtime.session() as session:
            await turn(session, "one")
            await turn(session, "two")
            return session.context.session_id

    ids = await asyncio.gather(*(drive(runtime) for runtime, _ in pairs))
    assert ids[0] != ids[1]
    for _, watch in pairs:
        watch.check(3)
    for runtime, session_id in zip((runtime for runtime, _ in pairs), ids, strict=True):
        assert runtime.archive.pieces(session_id)


async def test_a_client_of_ones_own(agent):
    runtime, watch = agent(WORK)
    seen = []
    async with runtime, ClaudeSDKClient(runtime.options) as client:
        for prompt in ("Do it.", "And again."):
            await client.query(prompt)
            seen += [message async for message in runtime.processor.stream(client.receive_response())]
            assert runtime.tracker.snapshot().tokens == watch.api.last.tokens
    check_work(watch, seen)
    assert [piece.subagent for piece in runtime.archive.pieces(runtime.tracker.session_id)] == [None]


async def test_two_lines_and_nobody_feeds_the_processor(mala_api, mala_options, mala_home):
    api = mala_api([*WORK, "After."])
    options = mala_options(api)
    runtime = instrument(options)
    async with ClaudeSDKClient(runtime.options) as client:
        for prompt in ("Do it.", "And again."):
            await client.query(prompt)
            async for _ in client.receive_response():
                pass
            snapshot = runtime.tracker.snapshot()
            assert (snapshot.tokens, snapshot.exact, snapshot.usage_source) == (api.last.tokens, True, "row")
        assert snapshot.responses == 4
        await client.query("/compact")
        async for _ in client.receive_response():
            pass
        await client.query("go on")
        async for _ in client.receive_response():
            pass
    snapshot = runtime.tracker.snapshot()
    assert (snapshot.tokens, snapshot.compactions, snapshot.responses) == (api.last.tokens, 1, 5)
    await runtime.aclose()
    assert triggers(runtime.archive, snapshot.session_id) == ["manual", "session_end"]
    assert outcomes(runtime.archive, snapshot.session_id) == [("manual", "compacted", 0)]
    check_whole(runtime.archive, mala_home, snapshot.session_id)


@pytest.mark.parametrize("partial", [False, True])
async def test_an_interrupted_answer_stays_in_the_context(agent, partial):
    said = prose(12_000)
    reply = text(said) + tool("Bash", command="true", description="never run")
    runtime, watch = agent(
        ["First.", reply.but(hold=threading.Event()), "After."],
        options={"include_partial_messages": partial},
    )
    async with runtime.session() as session:
        await turn(session, "one")
        messages = []
        async for message in session.send("two"):
            messages.append(message)
            if type(message).__name__ == "AssistantMessage":
                await session.client.interrupt()
        assert results(messages)[-1].subtype == "error_during_execution"
        assert texts(messages) == [said]
        projected = session.context.projected
        await turn(session, "three")
    truth = watch.api.last
    assert truth.contains(said[:1000])
    assert truth.tokens > watch.answered[0].tokens + 2_500
    assert abs(projected - truth.tokens) <= 0.05 * truth.tokens
    assert runtime.tracker.snapshot().tokens == truth.tokens
    watch.check(3)


async def test_a_tool_is_interrupted(agent):
    runtime, watch = agent(["First.", text("I wait.") + tool("Bash", command="sleep 60", description="x"), "After."])
    async with runtime.session() as session:
        await turn(session, "one")
        messages = []
        async for message in session.send("two"):
            messages.append(message)
            if type(message).__name__ == "AssistantMessage" and type(message.content[0]).__name__ == "ToolUseBlock":
                await session.client.interrupt()
        assert results(messages)[-1].subtype == "error_during_execution"
        projected = session.context.projected
        await turn(session, "three")
    watch.check(3)
    truth = watch.api.last.tokens
    assert abs(projected - truth) <= 0.02 * truth
