"""Thinking that the next request does not hold: another model's, and an answer's that was nothing else.

A model's signature does not hold for another model. So the CLI sends each model its own thinking alone, and sends it
again when that model is set again.
"""

import pytest

from mala_context.testing import api_error, summary, text, thinking, tool
from tests.helpers.variants import variants

from .driving import prose, turn

THOUGHT = thinking("", signature="s" * 20_000)
"""6,000 tokens of thinking that nobody is shown."""
MODEL, OTHER = "claude-opus-5", "claude-opus-4-8"
CALL = tool("Bash", command="true", description="x")
BOTH_STREAMS = pytest.mark.parametrize("partial", variants([False, True]))


def near(projected, request, within=0.05):
    assert projected == pytest.approx(request.tokens, rel=within)


async def switch(session, model):
    """Set another model; return what is projected from then on."""
    await session.client.set_model(model)
    return session.context.projected


async def seen(session, prompt, *names):
    """Send a prompt; return what is projected at each message of these classes or subtypes."""
    return [
        session.context.projected
        async for message in session.send(prompt)
        if type(message).__name__ in names or getattr(message, "subtype", None) in names
    ]


@pytest.mark.parametrize("other", variants([OTHER, "claude-sonnet-4-5", "sonnet"]))
@BOTH_STREAMS
async def test_a_model_is_set_between_turns_and_set_back(agent, partial, other):
    """With words of the CLI's own about the model, which the stream does not show: 300 tokens."""
    script = [THOUGHT + CALL, THOUGHT + text("One."), "Two.", THOUGHT + text("Three."), "Four."]
    runtime, watch = agent(script, options={"model": MODEL, "include_partial_messages": partial})
    async with runtime.session() as session:
        await turn(session, "one")
        held = session.context.projected
        away = await switch(session, other)
        await turn(session, "two")
        back = await switch(session, MODEL)
        await turn(session, "three")
        stays = session.context.projected
        await turn(session, "four")
    watch.check(5)
    _, _, second, third, fourth = watch.answered
    assert held > second.tokens + 11_000, "both thoughts of the other model are gone"
    assert third.tokens > second.tokens + 11_900, "and both come back"
    near(away, second)
    near(back, third)
    near(stays, fourth)
    assert runtime.tracker.alarms() == []


@BOTH_STREAMS
async def test_a_model_is_set_while_a_tool_runs(agent, partial):
    script = [THOUGHT + text("Zero."), THOUGHT + CALL, "One.", "Two."]
    runtime, watch = agent(script, options={"model": MODEL, "include_partial_messages": partial})
    async with runtime.session() as session:
        await turn(session, "zero")
        async for message in session.send("one"):
            if type(message).__name__ == "AssistantMessage" and type(message.content[0]).__name__ == "ToolUseBlock":
                away = await switch(session, OTHER)
        back = await switch(session, MODEL)
        await turn(session, "two")
    watch.check(4)
    _, _, second, third = watch.answered
    assert third.tokens > second.tokens + 11_900
    near(away, second)
    near(back, third)


async def test_a_model_of_two_names_keeps_its_thinking(agent):
    """A window's suffix and a date make no other model."""
    runtime, watch = agent([THOUGHT + text("One."), "Two.", "Three."], options={"model": OTHER})
    async with runtime.session() as session:
        await turn(session, "one")
        for name in (f"{OTHER}[1m]", OTHER):
            projected = await switch(session, name)
            await turn(session, "go on")
            near(projected, watch.answered[-1])
    assert watch.answered[-1].tokens > watch.answered[0].tokens + 5_900


async def test_a_session_goes_on_with_another_model(agent):
    """Its init says so; the thinking is that of the transcript, and comes back with its model."""
    runtime, watch = agent([THOUGHT + text("One."), THOUGHT + text("Two.")], options={"model": MODEL})
    async with runtime.session() as session:
        for prompt in ("one", "two"):
            await turn(session, prompt)
        session_id = session.context.session_id
    runtime, watch = agent(["Three.", "Four."], options={"model": OTHER, "resume": session_id})
    async with runtime.session() as session:
        (begun,) = await seen(session, "three", "init")
        back = await switch(session, MODEL)
        await turn(session, "four")
    watch.check(2)
    near(begun, watch.answered[0])
    near(back, watch.answered[1])
    assert watch.answered[1].tokens > watch.answered[0].tokens + 11_900


async def test_a_model_that_is_overloaded_gets_its_thinking_again(agent):
    busy = [api_error(529) for _ in range(3)]
    runtime, watch = agent(
        [THOUGHT + text("One."), *busy, "Two.", "Three."], options={"model": MODEL, "fallback_model": OTHER}
    )
    begun = []
    async with runtime.session() as session:
        for prompt in ("one", "two", "three"):
            begun += await seen(session, prompt, "init", "model_fallback")
    watch.check(3)
    _, second, third = watch.answered
    assert (second.model, third.model) == (OTHER, MODEL)
    near(begun[-2], second)
    near(begun[-1], third)
    assert runtime.tracker.alarms() == []


async def test_a_compaction_keeps_no_thinking_for_another_model(agent):
    """The kept end of the conversation has the thinking of the model that was, which gets it again when it is set."""
    work = THOUGHT + text("I look.") + tool("Bash", command="seq 400", description="x")
    script = [prose(30_000), work, THOUGHT + text(prose(2_000)), "After.", "Again."]
    runtime, watch = agent(script, options={"model": MODEL}, compactions=[summary(prose(3_000))])
    async with runtime.session() as session:
        for prompt in (prose(8_000), "do it"):
            await turn(session, prompt)
        await switch(session, OTHER)
        for prompt in ("/compact", "go on"):
            await turn(session, prompt)
        back = await switch(session, MODEL)
        await turn(session, "again")
    watch.check(5)
    watch.check_estimate(within=0.05)
    assert watch.answered[-1].tokens > watch.answered[-2].tokens + 5_900
    near(back, watch.answered[-1])


@BOTH_STREAMS
async def test_an_answer_that_is_nothing_but_a_thought(agent, partial):
    """The CLI leaves it out and asks for words, once a turn; a second one is left out too."""
    script = [THOUGHT, THOUGHT, "Two.", THOUGHT, "Three.", "Four."]
    runtime, watch = agent(script, options={"model": MODEL, "include_partial_messages": partial})
    said = []
    async with runtime.session() as session:
        for prompt in ("one", "two", "three", "four"):
            said += await seen(session, prompt, "UserMessage", "ResultMessage")
    watch.check(6)
    assert len(said) == 6
    for projected, request in zip(said, watch.answered[1:], strict=False):
        near(projected, request, within=0.01)
    assert runtime.tracker.alarms() == []
