"""The numbers in every kind of turn on the real CLI: `tokens` is the server's count after every response."""

import asyncio
import base64
import struct
import threading
import zlib

import pytest

from mala_context import instrument
from mala_context.analysis.audit import collect
from mala_context.testing import api_error, block, looped, summary, text, thinking, tool
from mala_context.testing.scripts import fill_until_compaction
from mala_context.tracking.events import Appended, Compaction, Response
from mala_context.tracking.text_counts import is_result
from tests.helpers.redacted import HEADERS, redacted
from tests.helpers.variants import variants

from .driving import Watch, named, prose, results, texts, turn
from .test_subagents import task

THOUGHT = thinking("", signature="s" * 20_000)
"""6,000 tokens of thinking that nobody is shown."""
DENSE = {"model": "claude-opus-5"}


def near(projected, tokens, within=0.02):
    assert projected == pytest.approx(tokens, rel=within)


def png(width, height):
    """Return a real picture, as the CLI wants to see one before it sends it."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(range(256)) * (width // 256) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def projections(watch):
    """Have what is projected noted after each tool result; return the list."""
    noted = []

    def note(event, snapshot):
        del snapshot
        if isinstance(event, Appended) and event.agent is None and is_result(event.content):
            noted.append(watch.runtime.tracker.snapshot().projected)

    watch.runtime.processor.event_observers.append(note)
    return noted


def answers(watch):
    """Have what is projected noted whenever the next response begins, as it was just before; return the list."""
    noted, last = [], [None]

    def note(event, snapshot):
        del snapshot
        if isinstance(event, Response) and event.agent is None and event.message_id != last[0]:
            left = watch.runtime.tracker.main.left
            if last[0] is not None and left is not None and left[0].tokens is not None:
                noted.append(left[0].projected(left[1]))
            last[0] = event.message_id

    watch.runtime.processor.event_observers.append(note)
    return noted


async def play(runtime, *prompts):
    """Send the prompts; return the messages of all turns, and what was projected after each turn."""
    projected = []
    async with runtime.session() as session:
        messages = []
        for prompt in prompts:
            messages += await turn(session, prompt)
            projected.append(session.context.projected)
    return messages, projected


BOTH_STREAMS = pytest.mark.parametrize("partial", variants([False, True]))
"""Without partial messages and with them; the second takes as long again."""


@BOTH_STREAMS
async def test_hidden_thinking_in_the_middle_of_a_turn(agent, partial):
    script = [THOUGHT + tool("Bash", command="echo one", description="x"), THOUGHT + text("Done."), "After."]
    runtime, watch = agent(script, options={**DENSE, "include_partial_messages": partial})
    noted = projections(watch)
    _, projected = await play(runtime, "go", "on")
    watch.check(3)
    first, second, third = (request.tokens for request in watch.answered)
    assert second > first + 5_900
    near(noted[0], second)
    near(projected[0], third)


@BOTH_STREAMS
async def test_hidden_thinking_of_an_answer_that_is_interrupted(agent, partial):
    reply = THOUGHT + text("I wait.") + tool("Bash", command="sleep 60", description="x")
    runtime, watch = agent(["First.", reply, "After."], options={**DENSE, "include_partial_messages": partial})
    async with runtime.session() as session:
        await turn(session, "one")
        async for message in session.send("two"):
            if type(message).__name__ == "AssistantMessage" and type(message.content[0]).__name__ == "ToolUseBlock":
                await session.client.interrupt()
        projected = session.context.projected
        await turn(session, "three")
    watch.check(3)
    _, second, third = (request.tokens for request in watch.answered)
    assert third > second + 5_900
    near(projected, third)


async def test_redacted_thinking_in_a_transcript(agent, mala_home):
    """The SDK's messages leave such blocks out, so the stream's rows are read as the CLI writes them."""
    thoughts = block(redacted(15_000)) + block(redacted(9, header=HEADERS[-1]))
    script = [thoughts + tool("Bash", command="echo one", description="x"), thoughts + text("Done."), "After."]
    runtime, watch = agent(script, options=DENSE)
    await play(runtime, "go", "on")
    watch.check(3)
    first, second, third = (request.tokens for request in watch.answered)
    assert min(second - first, third - second) > 5_900
    (path,) = mala_home.glob(".claude/projects/*/*.jsonl")
    found = collect([str(path)], as_live=True).observations
    projected = [each.estimates[0] for each in found if each.truth == "next_prompt"]
    near(projected[0], second)
    near(projected[1], third)


@BOTH_STREAMS
async def test_a_loop_on_the_server_counts_its_last_call(agent, partial):
    """Case core-29: the stream's messages have the first call's size; the delta or the result has the last one's."""
    search = block({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}})
    hit = {"type": "web_search_result", "url": "http://x", "title": "t", "encrypted_content": "z" * 4_000}
    content = [{**hit, "page_age": None}]
    found = block({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": content})
    runtime, watch = agent(
        [looped(search + found, text("Found.")), "After."], options={"include_partial_messages": partial}
    )
    sizes = []
    async with runtime.session() as session:
        for prompt in ("search", "more"):
            await turn(session, prompt)
            sizes.append((session.context.tokens, session.context.exact))
    assert watch.answered[0].tokens > watch.answered[0].received_tokens
    assert sizes == [(request.tokens, True) for request in watch.answered]


async def test_a_picture_in_a_result_and_one_in_a_prompt(agent, mala_project):
    picture = png(1_024, 1_170)  # 1,597 tokens, the server's count is 1,600
    (mala_project / "picture.png").write_bytes(picture)
    script = [tool("Read", file_path=str(mala_project / "picture.png")), "Seen.", "And this one.", "After."]
    runtime, watch = agent(script)
    noted = projections(watch)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
    prompt = [{"type": "image", "source": source}, {"type": "text", "text": "And this?"}]
    _, projected = await play(runtime, "look", prompt, "go on")
    watch.check(4)
    read, seen, sent, after = (request.tokens for request in watch.answered)
    assert seen > read + 1_500
    assert sent > seen + 1_500
    near(noted[0], seen)
    near(projected[1], after)


async def test_the_model_is_set_twice(agent):
    runtime, watch = agent([prose(6_000), "Two.", "Three."], options={"model": "claude-sonnet-4-5"})
    windows = []
    async with runtime.session() as session:
        for model in (None, "claude-opus-4-8", "claude-haiku-4-5"):
            if model is not None:
                await session.client.set_model(model)
            await turn(session, "Go on.")
            windows.append((session.context.model, session.context.window))
    watch.check(3)
    assert windows == [
        ("claude-sonnet-4-5", 200_000),
        ("claude-opus-4-8", 1_000_000),
        ("claude-haiku-4-5", 200_000),
    ]


async def test_a_million_by_the_models_name(agent):
    runtime, watch = agent(["One.", "Two."], options={"model": "claude-sonnet-4-5[1m]"})
    await play(runtime, "one", "two")
    watch.check(2)
    assert runtime.tracker.snapshot().window == 1_000_000


async def test_three_subagents_at_once(agent):
    words = ("ALPHA", "BETA", "GAMMA")
    calls = [task(prompt=f"Look at {word}.", run_in_background=False) for word in words]
    runtime, watch = agent(
        [calls[0] + calls[1] + calls[2], "Done."],
        subagents={
            word: [tool("Bash", command=f"seq {500 * (place + 1)}", description="x"), prose(3_000 * place + 12), word]
            for place, word in enumerate(words)
        },
        options={"forward_subagent_text": True},
    )
    await play(runtime, "go")
    watch.check(2)
    last = {request.agent_id: request.tokens for request in watch.api.of_kind("subagent")}
    assert len(set(last.values())) == 3
    assert {one.agent_id: (one.tokens, one.exact) for one in runtime.tracker.agents().values()} == {
        name: (tokens, True) for name, tokens in last.items()
    }


def subagents(watch):
    """Have (tokens, the server's count) of each part of a subagent's response noted; return the list."""
    noted = []

    def note(event, snapshot):
        del snapshot
        if isinstance(event, Response) and event.agent is not None and event.source != "row":
            tokens = watch.runtime.tracker.state_of(event).context.tokens
            noted.append((tokens, watch.api.by_message(event.message_id).tokens))

    watch.runtime.processor.event_observers.append(note)
    return noted


async def ended(session):
    """Read on until a turn ends that nobody asked for."""
    async for message in session.receive():
        if type(message).__name__ == "ResultMessage":
            return


@BOTH_STREAMS
async def test_three_subagents_in_the_background(agent, partial):
    words = ("ALPHA", "BETA", "GAMMA")
    gates = [threading.Event() for _ in words]
    calls = [task(prompt=f"Look at {word}.") for word in words]
    work = THOUGHT + tool("Bash", command="seq 300", description="x")
    runtime, watch = agent(
        [calls[0] + calls[1] + calls[2], "Started.", "One.", "Two.", "Three.", "Last."],
        subagents={
            word: [work, text(prose(3_000 * place + 12)).but(hold=gates[place])] for place, word in enumerate(words)
        },
        options={**DENSE, "forward_subagent_text": True, "include_partial_messages": partial},
    )
    noted = subagents(watch)
    async with runtime.session() as session:
        await turn(session, "go")
        for gate in gates:
            gate.set()
            await ended(session)
        projected = session.context.projected
        await turn(session, "end")
    watch.check(6)
    assert len(noted) >= 6
    assert [said for said, _ in noted] == [counted for _, counted in noted]
    last = {request.agent_id: request.tokens for request in watch.api.of_kind("subagent")}
    assert {one.agent_id: one.tokens for one in runtime.tracker.agents().values()} == last
    near(projected, watch.answered[-1].tokens)


@BOTH_STREAMS
async def test_a_conversation_is_cleared_while_a_subagent_is_out(agent, partial):
    """Its late messages change nothing of the new conversation."""
    gate = threading.Event()
    runtime, watch = agent(
        [task(), "Started.", "Anew.", "Notified.", "Last."],
        subagents=[tool("Bash", command="seq 300", description="x"), text("It says.").but(hold=gate)],
        options={"forward_subagent_text": True, "include_partial_messages": partial},
    )
    async with runtime.session() as session:
        await turn(session, "go")
        await asyncio.to_thread(watch.api.wait, 2, kind="subagent")  # what its tool gave came before the /clear
        await turn(session, "/clear")
        assert (session.context.tokens, session.context.accuracy) == (None, "unknown")
        assert runtime.tracker.agents() == {}
        await turn(session, "anew")
        assert (session.context.tokens, session.context.exact) == (watch.answered[-1].tokens, True)
        gate.set()
        await ended(session)
        assert session.context.tokens == watch.answered[-1].tokens
        projected = session.context.projected
        await turn(session, "last")
    watch.check(5)
    near(projected, watch.answered[-1].tokens)


@BOTH_STREAMS
async def test_the_model_is_set_while_it_thinks(agent, partial):
    """The CLI leaves out what another model thought; `test_thinking` holds the projections against its requests."""
    script = [THOUGHT + tool("Bash", command="true", description="x"), THOUGHT + text("Two."), "Three.", "Four."]
    runtime, watch = agent(script, options={**DENSE, "include_partial_messages": partial})
    async with runtime.session() as session:
        async for message in session.send("one"):
            if type(message).__name__ == "AssistantMessage" and type(message.content[0]).__name__ == "ToolUseBlock":
                await session.client.set_model("claude-sonnet-4-5")
        said = [(session.context.model, session.context.window)]
        for model in ("claude-opus-4-8", "claude-haiku-4-5[1m]"):
            await session.client.set_model(model)
            await turn(session, "go on")
            said.append((session.context.model, session.context.window))
    watch.check(4)
    assert said == [
        ("claude-sonnet-4-5", 200_000),
        ("claude-opus-4-8", 1_000_000),
        ("claude-haiku-4-5", 1_000_000),
    ]


async def test_a_fork_of_a_compacted_session_with_pictures(agent, mala_project):
    (mala_project / "picture.png").write_bytes(png(1_024, 1_170))
    look = tool("Read", file_path=str(mala_project / "picture.png"))
    shrunk = {"chars_per_token": 2.35, "compactions": [summary(prose(3_000))]}
    runtime, watch = agent([look, "Seen.", THOUGHT + look, prose(3_000), "After."], options=DENSE, **shrunk)
    async with runtime.session() as session:
        for prompt in ("look", "again", "/compact", "go on"):
            await turn(session, prompt)
        session_id = session.context.session_id
    watch.check(5)
    watch.check_estimate(within=0.05)
    options = {**DENSE, "resume": session_id, "fork_session": True}
    runtime, watch = agent([THOUGHT + look, "Seen.", "Last."], options=options)
    noted = answers(watch)
    async with runtime.session() as session:
        assert session.context.exact
        await turn(session, "once more")
        projected = session.context.projected
        await turn(session, "end")
    watch.check(3)
    near(noted[0], watch.answered[1].tokens)
    near(projected, watch.answered[2].tokens)


@BOTH_STREAMS
async def test_an_overloaded_api_that_answers_in_the_end(agent, partial):
    script = [prose(4_000), api_error(529, retry=True), "Second.", "Third."]
    runtime, watch = agent(script, options={"include_partial_messages": partial})
    _, projected = await play(runtime, "one", "two", "three")
    watch.check(3)
    near(projected[1], watch.answered[2].tokens)


async def test_an_overloaded_api_that_gives_up(agent):
    runtime, watch = agent([prose(4_000), api_error(529, "still busy", retry=False), "After."])
    async with runtime.session() as session:
        await turn(session, "one")
        before = session.context.tokens
        (result,) = results(await turn(session, "two"))
        assert result.is_error
        assert session.context.tokens == before, "the error's row has no counts"
        projected = session.context.projected
        await turn(session, "three")
    watch.check(2)
    near(projected, watch.answered[1].tokens)


@BOTH_STREAMS
@pytest.mark.parametrize(
    "cut",
    [text(prose(3_000)), THOUGHT + text(prose(3_000)), THOUGHT + tool("Write", file_path="x", content=prose(5_000))],
    ids=["words", "a thought and words", "a thought and a call"],
)
async def test_an_answer_that_is_cut_goes_on(agent, partial, cut):
    """The CLI keeps what was said, and asks the model to go on from there."""
    script = [cut.but(stop_reason="max_tokens"), "The rest.", "After."]
    runtime, watch = agent(script, options={**DENSE, "include_partial_messages": partial})
    noted = answers(watch)
    messages, projected = await play(runtime, "tell", "and")
    watch.check(3)
    assert texts(messages)[-2:] == ["The rest.", "After."]
    _, second, third = (request.tokens for request in watch.answered)
    near(noted[0], second, within=0.03)  # words of the CLI's own, which ask the model to go on
    near(projected[0], third)


async def test_a_thought_that_is_cut_is_dropped(agent):
    """Only the end of the stream says that it was cut."""
    script = [THOUGHT.but(stop_reason="max_tokens"), "The rest.", "After."]
    runtime, watch = agent(script, options={**DENSE, "include_partial_messages": True})
    noted = answers(watch)
    _, projected = await play(runtime, "tell", "and")
    watch.check(3)
    first, second, third = (request.tokens for request in watch.answered)
    assert second < first + 100
    near(noted[0], second)
    near(projected[0], third)


@pytest.mark.parametrize("fork", [False, True], ids=["resume", "fork"])
async def test_a_session_that_goes_on_is_known_before_its_first_prompt(agent, fork):
    runtime, watch = agent([THOUGHT + text("First.")], options=DENSE)
    await play(runtime, "one")
    session_id, tokens = runtime.tracker.session_id, watch.answered[0].tokens
    runtime, watch = agent(["After."], options={**DENSE, "resume": session_id, "fork_session": fork})
    async with runtime.session() as session:
        assert session.context.tokens == tokens
        projected = session.context.projected
        await turn(session, "two")
    watch.check(1)
    assert watch.answered[0].tokens > tokens + 5_900
    near(projected, watch.answered[0].tokens)


@pytest.mark.parametrize("fork", variants([False, True]), ids=["resume", "fork"])
async def test_a_session_that_goes_on_from_a_compaction_is_known_before_its_first_prompt(agent, fork):
    """The last count in its transcript is older than the compaction, so the size is an estimate, as it was live."""
    shrunk = {"chars_per_token": 2.35, "compactions": [summary(prose(3_000))]}
    runtime, watch = agent([prose(12_000), "Two."], options=DENSE, **shrunk)
    async with runtime.session() as session:
        for prompt in (prose(8_000), "again", "/compact"):
            await turn(session, prompt)
        session_id, live = session.context.session_id, session.context.tokens
    runtime, watch = agent(["After."], options={**DENSE, "resume": session_id, "fork_session": fork}, **shrunk)
    async with runtime.session() as session:
        assert (session.context.tokens, session.context.accuracy) == (live, "estimate")
        projected = session.context.projected
        await turn(session, "two")
    watch.check(1)
    near(projected, watch.answered[0].tokens, within=0.05)


@pytest.mark.parametrize("fork", variants([False, True]), ids=["resume", "fork"])
async def test_a_session_that_goes_on_from_an_interrupt(agent, fork):
    reply = THOUGHT + text("I wait.") + tool("Bash", command="sleep 60", description="x")
    runtime, watch = agent(["First.", reply], options=DENSE)
    async with runtime.session() as session:
        await turn(session, "one")
        async for message in session.send("two"):
            if type(message).__name__ == "AssistantMessage" and type(message.content[0]).__name__ == "ToolUseBlock":
                await session.client.interrupt()
        session_id, tokens = session.context.session_id, watch.answered[-1].tokens
    runtime, watch = agent(["After.", "More."], options={**DENSE, "resume": session_id, "fork_session": fork})
    async with runtime.session() as session:
        assert (session.context.tokens, session.context.exact) == (tokens, True)
        projected = session.context.projected
        await turn(session, "three")
        later = session.context.projected
        await turn(session, "four")
    watch.check(2)
    near(projected, watch.answered[0].tokens)
    near(later, watch.answered[1].tokens)


def boundaries(watch):
    """Have what the CLI is taken to count noted at each boundary, beside its own count; return the list."""
    noted = []

    def note(event, snapshot):
        if isinstance(event, Compaction) and event.agent is None:
            noted.append((snapshot.before.cli_estimate, event.pre_tokens))

    watch.runtime.processor.event_observers.append(note)
    return noted


async def test_the_clis_own_count_at_a_compaction_by_hand(agent):
    calls = tool("Bash", command='echo "one\ntwo"', description="x") + tool("Bash", command="seq 300", description="y")
    hmm = thinking("hmm " * 100)
    script = [prose(3_000), hmm + text(prose(700)) + calls, hmm + text(prose(900)), "After."]
    runtime, watch = agent(script, chars_per_token=3.0, options={"include_partial_messages": True})
    noted = boundaries(watch)
    await play(runtime, prose(600), "do it", "/compact", "go on")
    ((said, counted),) = noted
    near(said, counted, within=0.0001)


@pytest.mark.parametrize("proactive", [False, True])
async def test_the_clis_own_count_at_a_compaction_by_itself(mala_api, mala_options, mala_project, proactive):
    scenario = fill_until_compaction(mala_project, window=100_000, turns=4 if proactive else 6, proactive=proactive)
    api = mala_api(scenario.script, **scenario.settings)
    runtime = instrument(mala_options(api, env=scenario.env, include_partial_messages=True))
    noted = boundaries(Watch(runtime, api))
    await play(runtime, *scenario.prompts)
    assert noted
    for said, counted in noted:
        near(said, counted, within=0.002)  # reminders that the stream does not show


@BOTH_STREAMS
async def test_messages_that_a_compaction_keeps_count_with_their_thinking(agent, partial):
    """Case core-30: the CLI keeps the end of the conversation, thinking too, and `post_tokens` has no word of it."""
    work = THOUGHT + text("I look.") + tool("Bash", command="seq 400", description="x")
    script = [prose(30_000), work, THOUGHT + text(prose(2_000)), "After."]
    options = {**DENSE, "include_partial_messages": partial}
    runtime, watch = agent(script, options=options, compactions=[summary(prose(3_000))])
    async with runtime.session() as session:
        for prompt in (prose(8_000), "do it"):
            await turn(session, prompt)
        messages = await turn(session, "/compact")
        await turn(session, "go on")
    watch.check(4)
    (kept,) = named(messages, "compact_boundary")
    assert kept.data["compact_metadata"]["preserved_messages"]["uuids"]
    watch.check_estimate(within=0.05)
