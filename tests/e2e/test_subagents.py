"""Subagents on the real CLI: their own windows, and turns that nobody asked for."""

import threading

import anyio

from mala_context.testing import text, tool

from .driving import check_private, check_whole, outcomes, prose, results, rows_of, texts, turn


def task(description="work", prompt="Look into it.", **fields):
    return tool("Agent", description=description, prompt=prompt, subagent_type="general-purpose", **fields)


def notified(result):
    return (result.origin or {}).get("kind") == "task-notification"


def check_subagent(watch, runtime, request):
    """Assert what the gauge says of the subagent that sent this request."""
    assert [snapshot.agent_id for snapshot in runtime.tracker.agents().values()] == [request.agent_id]
    snapshot = runtime.tracker.snapshot(request.agent_id)
    assert (snapshot.tokens, snapshot.exact) == (request.tokens, True)
    assert runtime.tracker.snapshot(snapshot.tool_use_id) == snapshot


async def test_a_subagent_in_the_foreground(agent, mala_home, mala_runs):
    runtime, watch = agent(
        [task(run_in_background=False), "Done."],
        subagents=[text("I see.") + tool("Bash", command="seq 500", description="x"), "It says."],
        options={"forward_subagent_text": True},
    )
    async with runtime.session() as session:
        messages = await turn(session, "go")
        session_id = session.context.session_id
    watch.check(2)
    assert len(results(messages)) == 1
    asked = watch.api.of_kind("subagent")
    check_subagent(watch, runtime, asked[-1])
    subagents = [row["subagent"] for row in rows_of(runtime.archive, session_id, "piece") if "subagent" in row]
    assert set(subagents) == {asked[0].agent_id}
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


async def test_a_background_turn_reaches_the_caller_as_such(agent, mala_home):
    gate = threading.Event()
    runtime, watch = agent([task(), "Started.", "Notified."], subagents=[text("It says.").but(hold=gate)])
    async with runtime.session() as session:
        (result,) = results(await turn(session, "go"))
        assert result.result == "Started."
        assert not notified(result)
        gate.set()
        later = []
        async for message in session.receive():
            later.append(message)
            if type(message).__name__ == "ResultMessage":
                break
        session_id = session.context.session_id
    watch.check(3)
    assert texts(later) == ["It says.", "Notified."]
    assert notified(later[-1])
    (asked,) = watch.api.of_kind("subagent")
    check_subagent(watch, runtime, asked)
    check_whole(runtime.archive, mala_home, session_id)


async def test_a_second_prompt_while_a_subagent_is_out(agent):
    gate = threading.Event()
    runtime, watch = agent([task(), "Started.", "Second.", "Notified."], subagents=[text("It says.").but(hold=gate)])
    async with runtime.session() as session:
        await turn(session, "go")
        second = await turn(session, "second")
        assert texts(second) == ["Second."]
        gate.set()
        async for message in session.receive():
            if type(message).__name__ == "ResultMessage":
                assert notified(message)
                break
    watch.check(4)


async def test_a_prompt_while_a_background_turn_runs(agent):
    gate, hold = threading.Event(), threading.Event()
    runtime, watch = agent(
        [task(), "Started.", text("Notified.").but(hold=hold), "Second."],
        subagents=[text("It says.").but(hold=gate)],
    )
    async with runtime.session() as session:
        await turn(session, "go")
        gate.set()
        await anyio.to_thread.run_sync(lambda: watch.api.wait(3, state="holding"))
        messages = []
        async for message in session.send("second"):
            messages.append(message)
            if type(message).__name__ == "SystemMessage" and message.subtype == "init":
                hold.set()
    watch.check(4)
    assert [(result.result, notified(result)) for result in results(messages)] == [
        ("Notified.", True),
        ("Second.", False),
    ]
    assert texts(messages) == ["It says.", "Notified.", "Second."]


async def test_several_subagents_each_have_a_window_of_their_own(agent, mala_home):
    runtime, watch = agent(
        [
            task(prompt="Look at ALPHA.", run_in_background=False)
            + task(prompt="Look at BETA.", run_in_background=False),
            "Done.",
        ],
        subagents={"ALPHA": [tool("Bash", command="seq 900", description="x"), "A."], "BETA": [prose(2_000)]},
        options={"forward_subagent_text": True},
    )
    async with runtime.session() as session:
        await turn(session, "go")
        await turn(session, "/compact")
        session_id = session.context.session_id
    watch.check(2)
    last = {request.agent_id: request.tokens for request in watch.api.of_kind("subagent")}
    assert len(last) == 2
    assert {one.agent_id: one.tokens for one in runtime.tracker.agents().values()} == last
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0)]
    kept = {row["subagent"] for row in rows_of(runtime.archive, session_id, "piece") if "subagent" in row}
    assert kept >= set(last)
    check_whole(runtime.archive, mala_home, session_id)
