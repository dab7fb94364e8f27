"""The scripted API against the real CLI that the SDK bundles, in plain SDK use.

Each test shows one thing that a script can bring about, and what the CLI makes of it. Counts are compared on every
response of every session: what the SDK reports must be what the server received.
"""

import asyncio
import itertools
import pathlib
import runpy
import threading

import anyio
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    query,
)

from mala_context.testing import Reply, api_error, block, looped, refuse, summary, text, thinking, too_long, tool
from mala_context.testing.scripts import fill_until_compaction
from tests.helpers.variants import variants

SIZES = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def size(usage):
    return sum(usage[name] for name in SIZES)


def real(messages, api):
    """Return the responses that the API gave, each checked against the server's own count."""
    responses = [one for one in messages if isinstance(one, AssistantMessage) and one.model != "<synthetic>"]
    for one in responses:
        assert size(one.usage) == api.by_message(one.message_id).received_tokens
    return responses


async def turn(client, prompt):
    await client.query(prompt)
    return [message async for message in client.receive_response()]


async def play(api, options, *prompts):
    """Send the prompts in one session; return the messages of each turn."""
    async with ClaudeSDKClient(options) as client:
        turns = [await turn(client, prompt) for prompt in prompts]
    for messages in turns:
        real(messages, api)
    return turns


def subtypes(messages):
    return [message.subtype for message in messages if isinstance(message, SystemMessage)]


def boundary(messages):
    """Return the metadata of the one compaction among these messages, None without any."""
    found = [one.data["compact_metadata"] for one in messages if getattr(one, "subtype", "") == "compact_boundary"]
    assert len(found) <= 1
    return found[0] if found else None


def compact_status(messages):
    """Return how compactions ended, as the CLI's status messages say."""
    ends = [one.data for one in messages if getattr(one, "subtype", "") == "status" and one.data["status"] is None]
    return [(one.get("compact_result"), one.get("compact_error")) for one in ends]


def results(messages):
    """Return what the tools gave back, by the id of the call."""
    users = [one for one in messages if isinstance(one, UserMessage) and not isinstance(one.content, str)]
    return {
        part.tool_use_id: part.content for one in users for part in one.content if isinstance(part, ToolResultBlock)
    }


def spoken(messages):
    parts = [part for one in messages if isinstance(one, AssistantMessage) for part in one.content]
    return [part.text for part in parts if isinstance(part, TextBlock)]


async def test_replies_and_tools(mala_api, mala_options, mala_project):
    note = mala_project / "note.txt"
    api = mala_api(
        ["Hello.", tool("Write", file_path=str(note), content="kept"), tool("Bash", command="cat note.txt"), "Done."]
    )
    first, second = await play(api, mala_options(api), "hi", "write a note")
    assert spoken(first) == ["Hello."]
    assert note.read_text() == "kept"
    assert "kept" in results(second).values()
    assert api.last.contains("kept")
    assert [request.kind for request in api.requests] == ["main"] * 4


async def test_the_cache_is_read_as_the_conversation_goes_on(mala_api, mala_options):
    api = mala_api(["a", "b", "c"])
    await play(api, mala_options(api), "1", "2", "3")
    usages = [request.usage for request in api.main_requests]
    assert usages[0]["cache_read_input_tokens"] == 0
    for before, after in itertools.pairwise(usages):
        assert after["cache_read_input_tokens"] == size(before)


async def test_parallel_tools_are_one_response(mala_api, mala_options):
    calls = tool("Bash", command="echo one") + tool("Bash", command="echo two") + tool("Bash", command="echo three")
    api = mala_api([text("All at once.") + calls, "Done."])
    [messages] = await play(api, mala_options(api), "go")
    responses = real(messages, api)
    assert len({one.message_id for one in responses}) == 2
    assert len(responses) == 5, "one message a content block"
    assert sorted(results(messages).values()) == ["one", "three", "two"]
    assert len(api.main_requests) == 2


async def test_thinking_and_the_real_output(mala_api, mala_options):
    api = mala_api([(thinking("Let me see.") + text("Seen.")).but(output_tokens=77)])
    [messages] = await play(api, mala_options(api, include_partial_messages=True), "think")
    assert {one.usage["output_tokens"] for one in real(messages, api)} == {1}, "a placeholder"
    deltas = [one.event for one in messages if isinstance(one, StreamEvent) and one.event["type"] == "message_delta"]
    assert [delta["usage"]["output_tokens"] for delta in deltas] == [77]
    assert messages[-1].usage["output_tokens"] == 77


async def test_a_refusal_makes_the_cli_compact(mala_api, mala_options):
    api = mala_api(["First.", too_long(210_000, 200_000), "After."])
    _, messages = await play(api, mala_options(api), "one", "two")
    assert [request.kind for request in api.requests] == ["main", "main", "compaction", "main"]
    assert compact_status(messages) == [("success", None)]
    assert boundary(messages)["trigger"] == "auto"
    assert "init" not in subtypes(messages)[1:], "only the turn's own, at its start"
    assert spoken(messages) == ["After."]
    assert api.last.contains("being continued from a previous conversation")


@pytest.mark.long
async def test_a_window_fills_and_is_compacted_on_refusal(mala_api, mala_options, mala_project):
    scenario = fill_until_compaction(mala_project, window=60_000, turns=3)
    api = mala_api(scenario.script, **scenario.settings)
    turns = await play(api, mala_options(api, env=scenario.env), *scenario.prompts)
    boundaries = [boundary(messages) for messages in turns]
    assert [one and one["trigger"] for one in boundaries] == [None, "auto", None]
    refused = [request for request in api.main_requests if request.status == 400]
    assert [request.received_tokens > 60_000 for request in refused] == [True]
    assert api.requests[refused[0].number + 1].received_tokens < refused[0].received_tokens
    assert (mala_project / "notes" / "part_03.md").exists()


async def test_a_window_of_the_clis_own_is_compacted_before_it_is_full(mala_api, mala_options, mala_project):
    scenario = fill_until_compaction(mala_project, window=100_000, turns=3, proactive=True, chars_per_token=1.5)
    api = mala_api(scenario.script, **scenario.settings)
    turns = await play(api, mala_options(api, env=scenario.env), *scenario.prompts)
    assert [boundary(messages) and boundary(messages)["trigger"] for messages in turns] == [None, "auto", None]
    assert {request.status for request in api.requests} == {200}
    assert boundary(turns[1])["pre_tokens"] >= 67_000
    [asked] = api.of_kind("compaction")
    assert api.requests[asked.number].received_tokens < asked.received_tokens


async def test_compact_by_hand(mala_api, mala_options):
    api = mala_api(["First.", "After."], compactions=[summary("the one thing that stays")])
    _, compacted, _ = await play(api, mala_options(api), "one", "/compact", "two")
    assert subtypes(compacted) == ["status", "status", "init", "compact_boundary"]
    assert boundary(compacted)["trigger"] == "manual"
    assert (compacted[-1].num_turns, size(compacted[-1].usage)) == (0, 0)
    assert api.last.contains("the one thing that stays")
    assert not api.last.contains("First.")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (api_error(500, "broken", retry=False), "API Error: 500 broken"),
        (text(""), "empty response"),
        (Reply(), "no assistant message"),
    ],
    ids=["api-error", "empty-text", "no-content"],
)
@pytest.mark.parametrize("by_hand", variants([True, False]), ids=["manual", "auto"])
async def test_a_compaction_that_fails(mala_api, mala_options, answer, error, by_hand):
    script = ["First.", "After."] if by_hand else ["First.", too_long(210_000, 200_000), "After."]
    api = mala_api(script, compactions=[answer])
    _, failed, after = await play(api, mala_options(api), "one", "/compact" if by_hand else "two", "three")
    [(outcome, why)] = compact_status(failed)
    assert outcome == "failed"
    assert error in why
    assert boundary(failed) is None
    assert failed[-1].is_error is not by_hand
    assert failed[-1].terminal_reason == (None if by_hand else "prompt_too_long")
    assert spoken(after) == ["After."]
    assert api.last.contains("First."), "the old conversation goes on"


async def test_an_empty_summary_is_taken_for_one(mala_api, mala_options):
    api = mala_api(["First.", "After."], compactions=[summary("")])
    _, compacted, _ = await play(api, mala_options(api), "one", "/compact", "two")
    assert compact_status(compacted) == [("success", None)]
    assert not api.last.contains("First.")


async def test_a_refused_summary_is_asked_for_again_without_some_rows(mala_api, mala_options):
    api = mala_api(["First.", "Second.", "After."], compactions=[too_long(210_000, 200_000)])
    _, _, compacted, _ = await play(api, mala_options(api), "one", "two", "/compact", "three")
    refused, accepted = api.of_kind("compaction")
    assert accepted.received_tokens < refused.received_tokens
    assert compact_status(compacted) == [("success", None)]


async def test_hooks_run_around_a_scripted_compaction(mala_api, mala_options):
    seen = []

    async def note(hook_input, *_):
        seen.append((hook_input["hook_event_name"], hook_input["trigger"], len(api.of_kind("compaction"))))
        return {}

    api = mala_api(["First.", "After."])
    hooks = {"PreCompact": [HookMatcher(hooks=[note])]}
    await play(api, mala_options(api, hooks=hooks), "one", "/compact")
    assert seen == [("PreCompact", "manual", 0)]


async def test_sizes_in_the_delta_alone(mala_api, mala_options):
    api = mala_api([tool("Bash", command="echo x"), "Done."], usage_in="delta")
    async with ClaudeSDKClient(mala_options(api)) as client:
        messages = await turn(client, "go")
    responses = [one for one in messages if isinstance(one, AssistantMessage)]
    assert {size(one.usage) for one in responses} == {0}
    assert size(messages[-1].usage) == sum(request.tokens for request in api.main_requests)


async def test_a_server_side_loop(mala_api, mala_options):
    search = block({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}})
    found = {
        "type": "web_search_result",
        "url": "http://x",
        "title": "t",
        "encrypted_content": "z" * 400,
        "page_age": None,
    }
    result = block({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]})
    api = mala_api([looped(search + result, text("Found.")), "After."])
    first, _ = await play(api, mala_options(api), "search", "more")
    looped_request, next_request = api.main_requests
    rows = first[-1].usage["iterations"]
    assert [size(row) for row in rows] == [looped_request.received_tokens, looped_request.tokens]
    assert size(first[-1].usage) == sum(size(row) for row in rows)
    assert looped_request.tokens < next_request.tokens


async def test_a_response_that_is_cut_goes_on(mala_api, mala_options):
    api = mala_api([text("The first half").but(stop_reason="max_tokens"), "and the second."])
    [messages] = await play(api, mala_options(api), "tell")
    assert spoken(messages) == ["The first half", "and the second."]
    assert "Output token limit hit" in api.last.prompt


async def test_errors_are_tried_again_and_then_told(mala_api, mala_options):
    api = mala_api([api_error(529, retry=True), "Second try.", api_error(529, "still busy", retry=False), "After."])
    first, second, third = await play(api, mala_options(api), "one", "two", "three")
    assert "api_retry" in subtypes(first)
    assert spoken(first) == ["Second try."]
    assert (second[-1].is_error, second[-1].api_error_status) == (True, 529)
    [synthetic] = [one for one in second if isinstance(one, AssistantMessage)]
    assert (synthetic.model, size(synthetic.usage)) == ("<synthetic>", 0)
    assert spoken(third) == ["After."]


async def test_a_stream_that_breaks_off_is_asked_for_again(mala_api, mala_options):
    api = mala_api(["First.", text("Half of it").but(breaks_with=api_error(529)), "Whole."])
    _, messages = await play(api, mala_options(api, include_partial_messages=True), "one", "two")
    assert spoken(messages) == ["Whole."], "the half is dropped"
    starts = [
        one.event["message"]["id"] for one in messages if getattr(one, "event", {}).get("type") == "message_start"
    ]
    _, broken, again = api.main_requests
    assert starts == [broken.message_id], "but its start was streamed"
    assert not again.body.get("stream"), "the second try is not streamed, so its output is no placeholder"
    assert real(messages, api)[-1].usage["output_tokens"] == again.usage["output_tokens"] == 2
    assert not api.last.contains("Half of it")


async def test_any_other_refusal_does_not_compact(mala_api, mala_options):
    api = mala_api(lambda request: refuse("tools.0: no such type") if request.prompt.endswith("two") else "Fine.")
    _, refused, after = await play(api, mala_options(api), "one", "two", "three")
    assert (refused[-1].is_error, refused[-1].api_error_status) == (True, 400)
    assert {request.status for request in api.main_requests[1:-1]} == {400}, "it asks several times by itself"
    assert spoken(after) == ["Fine."]
    assert api.of_kind("compaction") == []


AGENT = {"description": "look", "subagent_type": "general-purpose"}


async def test_subagents_in_the_background_play_their_own_scripts(mala_api, mala_options):
    both = tool("Agent", prompt="Find ALPHA", **AGENT) + tool("Agent", prompt="Find BETA", **AGENT)
    api = mala_api(
        lambda request: both if request.prompt.endswith("go") else "Noted.",
        subagents={"ALPHA": [tool("Bash", command="echo al''pha"), "ALPHA is found."], "BETA": ["BETA is found."]},
    )
    messages = []
    async with ClaudeSDKClient(mala_options(api)) as client:
        await client.query("go")
        async for message in client.receive_messages():
            messages.append(message)
            told = [request for request in api.main_requests if "<task-notification>" in request.text]
            if (
                isinstance(message, ResultMessage)
                and told
                and all(told[-1].contains(f"{one} is found") for one in ("ALPHA", "BETA"))
            ):
                break
    responses = real(messages, api)
    agents = {request.agent_id for request in api.of_kind("subagent")}
    assert len(agents) == 2
    assert len(api.of_kind("subagent")) == 3
    assert {one.parent_tool_use_id is None for one in responses} == {True, False}
    assert all((api.by_message(one.message_id).kind == "main") == (one.parent_tool_use_id is None) for one in responses)


async def test_a_subagent_in_the_foreground_compacts_by_itself(mala_api, mala_options):
    api = mala_api(
        [tool("Agent", prompt="Find ALPHA", run_in_background=False, **AGENT), "Done."],
        subagents=[tool("Bash", command="echo x"), too_long(201_000, 200_000), "ALPHA is found."],
    )
    [messages] = await play(api, mala_options(api), "go")
    assert [request.kind for request in api.requests] == [
        "main",
        "subagent",
        "subagent",
        "compaction",
        "subagent",
        "main",
    ]
    assert len({request.agent_id for request in api.requests}) == 2
    assert boundary(messages) is None, "the main stream says nothing of it"
    assert api.last.contains("ALPHA is found.")


async def test_an_interrupt_of_a_response_that_hangs(mala_api, mala_options):
    api = mala_api([text("Half a sentence").but(hold=threading.Event()), "After."])
    async with ClaudeSDKClient(mala_options(api)) as client:
        reading = asyncio.create_task(turn(client, "one"))
        request = await asyncio.to_thread(api.wait, 1, state="holding")
        await client.interrupt()
        interrupted = await reading
        after = await turn(client, "two")
    assert interrupted[-1].subtype == "error_during_execution"
    assert size(interrupted[-1].usage) == 0
    assert request.state == "abandoned"
    assert spoken(after) == ["After."]


async def test_a_slow_summary(mala_api, mala_options):
    hold = threading.Event()
    api = mala_api(["First.", "After."], compactions=[summary("late").but(hold=hold)])
    async with ClaudeSDKClient(mala_options(api)) as client:
        await turn(client, "one")
        reading = asyncio.create_task(turn(client, "/compact"))
        await asyncio.to_thread(api.wait, 1, kind="compaction", state="holding")
        assert not reading.done()
        hold.set()
        assert boundary(await reading)["trigger"] == "manual"


@pytest.mark.long
async def test_resume_and_fork(mala_api, mala_options):
    api = mala_api(["First.", "Resumed.", "Forked."])
    [first] = await play(api, mala_options(api), "one")
    session = first[-1].session_id
    [resumed] = await play(api, mala_options(api, resume=session), "two")
    [forked] = await play(api, mala_options(api, resume=session, fork_session=True), "three")
    assert resumed[-1].session_id == session != forked[-1].session_id
    assert api.main_requests[1].contains("First.")
    assert api.last.contains("Resumed.")
    assert [request.session_id for request in api.main_requests] == [session, session, forked[-1].session_id]


async def test_titles_do_not_eat_the_script(mala_api, mala_options):
    api = mala_api(["First."])
    env = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": ""}
    [messages] = await play(api, mala_options(api, env=env), "please fix the parser")
    assert spoken(messages) == ["First."]
    await asyncio.to_thread(api.wait, 1, kind="side", state="answered")


async def test_an_agent_without_tools_plays_the_script(mala_api, mala_options):
    api = mala_api(["First."])
    [messages] = await play(api, mala_options(api, tools=[]), "one")
    assert spoken(messages) == ["First."]
    assert api.last.body["tools"] == []


async def test_context_usage_is_counted_by_the_server(mala_api, mala_options):
    api = mala_api(["First."])
    async with ClaudeSDKClient(mala_options(api)) as client:
        await turn(client, "one")
        usage = await client.get_context_usage()
    assert usage["totalTokens"] == api.last.tokens
    assert api.of_kind("count_tokens")


async def test_two_clients_at_once(mala_api, mala_options):
    api = mala_api(lambda request: f"re {request.prompt.split()[-1]}")
    options = mala_options(api)
    (one,), (two,) = await asyncio.gather(play(api, options, "one"), play(api, options, "two"))
    assert (spoken(one), spoken(two)) == (["re one"], ["re two"])
    assert len({request.session_id for request in api.requests}) == 2


async def test_a_script_that_ran_out_ends_the_turn(mala_api, mala_options):
    api = mala_api([tool("Bash", command="true")], strict=False)
    [messages] = await play(api, mala_options(api), "one")
    assert messages[-1].subtype == "success"
    assert api.problems == ["request 2: the script has no further reply, asked after ''"]


def test_it_works_under_trio(mala_api, mala_options):
    api = mala_api(["First."])

    async def main():
        return [message async for message in query(prompt="one", options=mala_options(api))]

    messages = anyio.run(main, backend="trio")
    assert [one.message_id for one in real(messages, api)] == [api.last.message_id]


ROOT = pathlib.Path(__file__).parent.parent.parent


def test_the_example_runs_as_a_program(capsys):
    runpy.run_path(str(ROOT / "examples" / "testing_offline.py"), run_name="__main__")
    assert capsys.readouterr().out.count("tokens") == 3


def test_the_first_test_of_the_page_passes(pytester):
    page = (ROOT / "docs" / "how-to" / "test-an-agent-offline.md").read_text(encoding="utf-8")
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(page.split("```python\n")[1].split("```")[0])
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist").assert_outcomes(passed=1)
