"""What the guard does, on the real CLI: each time the same agent without it, which dies, and with it.

The agents fill a small window; the API refuses what is larger, and the CLI's own compaction is switched off.
"""

import itertools
import threading

import anyio
import pytest
from claude_agent_sdk import ClaudeSDKClient, HookMatcher

from mala_context import ContextPressureError
from mala_context.agent import restart
from mala_context.agent.telemetry.records import FinalTurn, Restarted, SessionRestarted
from mala_context.guard.overflow import ContextOverflow
from mala_context.testing import text, tool

from .driving import named, outcomes, prose, results, texts, turn

WINDOW = 60_000
SMALL = {"window": WINDOW, "chars_per_token": 2.0, "options": {"env": {"DISABLE_AUTO_COMPACT": "1"}}}
CHECKPOINT = "The context of this session is full. The work goes on"
NOTE = "Context note: about"
FINAL_NOTE = "This is the final turn"


def look(characters=6_000):
    """Look at so many characters: 3,000 tokens by default, about a tenth of the room that there is."""
    return tool("Bash", command=f"head -c {characters} /dev/zero | tr '\\0' 'a'", description="look")


class Worker:
    """An agent that needs so many looks, in one session or in several, and then says that it is done."""

    def __init__(self, looks, checkpoint="<checkpoint>the task, and what is left</checkpoint>", size=6_000):
        self.left = looks
        self.size = size
        self.checkpoint = checkpoint

    def __call__(self, request):
        if request.contains(CHECKPOINT):
            return self.checkpoint
        if self.left == 0:
            return "Done."
        self.left -= 1
        return look(self.size)


def config(**keys):
    """Return a `mala.yaml` with these keys."""
    return "\n".join(["context:", f"  window: {WINDOW}", *(f"  {key}: {value}" for key, value in keys.items())])


def check_died(messages):
    """Assert that the session died of a full window."""
    last = results(messages)[-1]
    assert (last.is_error, last.terminal_reason) == (True, "prompt_too_long")


def check_done(messages, words="Done."):
    """Assert that the work was finished."""
    assert texts(messages)[-1] == words
    assert not results(messages)[-1].is_error


def warnings(caplog, words):
    return [line for line in caplog.messages if words in line]


async def drive(runtime, *prompts):
    async with runtime.session() as session:
        return [message for prompt in prompts for message in await turn(session, prompt)]


# Thresholds and notes


def heeds_the_note(request):
    return "Done." if request.contains(NOTE) else look()


async def test_an_agent_that_hears_the_warning_ends_in_time(agent, caplog):
    runtime, _ = agent(heeds_the_note, config=config(tell_agent="false"), **SMALL)
    check_died(await drive(runtime, "go"))
    assert len(warnings(caplog, "warn_at 70.0% is reached")) == 1

    runtime, watch = agent(heeds_the_note, config=config(), **SMALL)
    check_done(await drive(runtime, "go"))
    assert [request.text.count(NOTE) for request in watch.api.main_requests][-2:] == [0, 1]


async def test_a_note_comes_once_and_leaves_what_was_sent_as_it_was(agent):
    runtime, watch = agent(Worker(9), config=config(), **SMALL)
    await drive(runtime, "go", "go on")
    counts = [request.text.count(NOTE) for request in watch.api.main_requests]
    assert counts == sorted(counts)
    assert set(counts) == {0, 1}
    bodies = [without_cache_marks(request.body["messages"]) for request in watch.api.main_requests]
    for earlier, later in itertools.pairwise(bodies):
        assert later[: len(earlier)] == earlier


def without_cache_marks(value):
    if isinstance(value, dict):
        return {key: without_cache_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_cache_marks(item) for item in value] if isinstance(value, list) else value


async def test_a_note_reaches_the_agent_of_a_client_of_ones_own(agent):
    runtime, watch = agent(heeds_the_note, config=config(), **SMALL)
    async with runtime, ClaudeSDKClient(runtime.options) as client:
        await client.query("go")
        check_done([message async for message in runtime.processor.stream(client.receive_response())])
    assert watch.api.last.contains(NOTE)


async def test_a_note_reaches_the_agent_where_nobody_feeds_the_processor(agent):
    runtime, watch = agent(heeds_the_note, config=config(), **SMALL)
    async with ClaudeSDKClient(runtime.options) as client:
        await client.query("go")
        check_done([message async for message in client.receive_response()])
    assert watch.api.last.contains(NOTE)


# Compaction between turns


class Turns:
    """An agent that looks once a prompt."""

    def __init__(self, size=9_000):
        self.size = size

    def __call__(self, request):
        content = request.body["messages"][-1]["content"]
        answered = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
        return "Done." if answered else look(self.size)


class TurnsThenCheckpoint(Turns):
    """The same, and it writes a checkpoint when it is asked for one."""

    def __call__(self, request):
        return "<checkpoint>so far</checkpoint>" if request.contains(CHECKPOINT) else super().__call__(request)


PROMPTS = [f"Look at part {number}." for number in range(1, 9)]


@pytest.mark.long
async def test_compact_at_keeps_a_session_of_many_turns_alive(agent, caplog):
    caplog.set_level("INFO")
    runtime, _ = agent(Turns(), config=config(), **SMALL)
    check_died(await drive(runtime, *PROMPTS))

    runtime, watch = agent(Turns(), config=config(compact_at=0.8, compact_focus="names of files"), **SMALL)
    messages = await drive(runtime, *PROMPTS)
    check_done(messages)
    assert texts(messages).count("Done.") == len(PROMPTS)
    boundaries = named(messages, "compact_boundary")
    assert len(boundaries) == len(watch.api.of_kind("compaction")) >= 1
    assert all("names of files" in request.prompt for request in watch.api.of_kind("compaction"))
    assert {outcome for _, outcome, _ in outcomes(runtime.archive, runtime.tracker.session_id)} == {"compacted"}
    # the compaction's own messages come before the prompt's
    place = messages.index(boundaries[0])
    assert texts(messages[:place]) == ["Done."] * (len(texts(messages[:place])))
    assert len(results(messages)) == len(PROMPTS) + len(boundaries)


async def test_a_compaction_that_frees_too_little_is_not_asked_for_again_at_once(agent):
    kept = "<analysis>a</analysis><summary>" + "kept word " * 3_500 + "</summary>"
    keys = config(warn_at="null", compact_at=0.5)
    runtime, watch = agent(Turns(size=1_500), compactions=lambda request: kept, config=keys, **SMALL)
    check_done(await drive(runtime, *PROMPTS[:6]))
    assert len(watch.api.of_kind("compaction")) == 1


async def test_a_compaction_that_fails_is_one_warning_and_the_prompt_goes_out(agent, caplog):
    refused = {**SMALL, "options": {"env": {"DISABLE_COMPACT": "1"}}}
    runtime, watch = agent(Turns(size=100), config=config(warn_at="null", compact_at=0.45), **refused)
    check_done(await drive(runtime, "one", "two", "three"))
    assert len(warnings(caplog, "nothing was compacted")) == 1
    assert not watch.api.of_kind("compaction")


@pytest.mark.long
async def test_no_compaction_while_a_subagent_is_out(agent):
    gate = threading.Event()
    out = tool("Agent", description="work", prompt="Look into it.", subagent_type="general-purpose")

    def script(request):
        if "<task-notification>" in request.prompt:
            return "Notified."
        return "Answered." if len(request.body["messages"]) > 1 else out

    runtime, watch = agent(
        script, subagents=[text("It says.").but(hold=gate)], config=config(warn_at="null", compact_at=0.3), **SMALL
    )
    async with runtime.session() as session:
        await turn(session, "go")
        assert session.outstanding.subagents
        await turn(session, "still out")
        assert not watch.api.of_kind("compaction")
        gate.set()
        seen = []
        async for message in session.receive():
            seen.append(message)
            if type(message).__name__ == "ResultMessage":
                break
        assert not session.outstanding.tasks
        await turn(session, "back")
    assert len(watch.api.of_kind("compaction")) == 1


# The final turn


def saves_when_denied(request):
    if request.contains("is not available. Save the work"):
        saved = request.contains("report.md")
        return "Done." if saved else tool("Bash", command="git init -q . && git status # report.md", description="save")
    return look()


async def test_final_at_lets_an_agent_save_and_finish(agent):
    runtime, _ = agent(saves_when_denied, config=config(), **SMALL)
    check_died(await drive(runtime, "go"))

    runtime, watch = agent(saves_when_denied, config=config(final_at=0.8), **SMALL)
    check_done(await drive(runtime, "go"))
    assert watch.api.last.contains(FINAL_NOTE)
    final = runtime.actions.final_turn
    assert (final.stopped, final.missing, final.denials) == (False, (), 1)


async def test_an_agent_that_will_not_finish_is_stopped_with_the_reason(agent, caplog):
    runtime, _ = agent(lambda request: look(), config=config(), **SMALL)
    check_died(await drive(runtime, "go"))

    runtime, watch = agent(lambda request: look(), config=config(final_at=0.8), **SMALL)
    seen = []
    runtime.actions.observers.append(seen.append)
    messages = await drive(runtime, "go")
    last = results(messages)[-1]
    assert (last.subtype, last.terminal_reason, last.is_error) == ("success", "hook_stopped", False)
    final = runtime.actions.final_turn
    assert [record for record in seen if isinstance(record, FinalTurn)] == [final]
    assert (final.stopped, final.denials, final.missing) == (True, 4, ("saved work", "final answer"))
    assert warnings(caplog, "the final turn was stopped")
    assert watch.api.last.contains("is not available. Save the work and finish with Write, Edit")


async def test_denials_of_one_response_count_as_one(agent):
    runtime, watch = agent(lambda request: look() + look(10) + look(10), config=config(final_at=0.7), **SMALL)
    await drive(runtime, "go")
    final = runtime.actions.final_turn
    assert final.stopped
    assert final.denials > 4
    denied = [request for request in watch.api.main_requests if request.contains("is not available")]
    assert len(denied) == 3


async def test_a_final_turn_with_a_client_of_ones_own(agent):
    runtime, _ = agent(saves_when_denied, config=config(final_at=0.8), **SMALL)
    async with runtime, ClaudeSDKClient(runtime.options) as client:
        await client.query("go")
        check_done([message async for message in runtime.processor.stream(client.receive_response())])
    assert runtime.actions.final_turn.missing == ()


POLICIES = [
    {"warn_at": "null", "final_at": 0.5, "finishing_tools": "[]"},
    {"final_at": 0.75, "finishing_tools": "[Write]", "tell_agent": "false"},
    pytest.param({"final_at": 0.8, "compact_at": 0.72, "restart_at": 0.78, "max_restarts": 1}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("keys", POLICIES, ids=str)
async def test_no_agent_is_trapped(agent, keys):
    def stubborn(request):
        return "<checkpoint>go on</checkpoint>" if request.contains(CHECKPOINT) else look()

    runtime, watch = agent(stubborn, config=config(**keys), **SMALL)
    with anyio.fail_after(60):
        try:
            messages = await drive(runtime, "go")
        except ContextPressureError:
            messages = None
    assert messages is None or results(messages)
    assert len(watch.api.main_requests) < 40


# Restart


def check_restarted(messages, reason, *, checkpoint, count=1):
    """Assert that the messages of two sessions are one stream with a marker between; return the marker."""
    markers = [message for message in messages if isinstance(message, SessionRestarted)]
    assert len(markers) == count
    marker = markers[-1]
    assert (marker.reason, marker.checkpoint, marker.restarts) == (reason, checkpoint, count)
    place = messages.index(marker)
    before = {message.session_id for message in messages[:place] if type(message).__name__ == "AssistantMessage"}
    after = {message.session_id for message in messages[place:] if type(message).__name__ == "AssistantMessage"}
    assert before <= {marker.old_session_id}
    assert after == {marker.new_session_id}
    return marker


async def test_restart_at_goes_on_in_a_fresh_session(agent, mala_home, caplog):
    caplog.set_level("INFO")
    runtime, _ = agent(Worker(11), config=config(), **SMALL)
    check_died(await drive(runtime, "Do the whole work."))

    checkpoint = "Here: <checkpoint>the task <checkpoint>within</checkpoint> the rest</checkpoint> so."
    runtime, watch = agent(Worker(11, checkpoint), config=config(restart_at=0.8), **SMALL)
    seen = []
    runtime.actions.observers.append(seen.append)
    messages = await drive(runtime, "Do the whole work.")
    check_done(messages)
    marker = check_restarted(messages, "threshold", checkpoint=True)
    (told,) = (record for record in seen if isinstance(record, Restarted))
    assert (told.old_session_id, told.new_session_id) == (marker.old_session_id, marker.new_session_id)
    assert results(messages) == messages[-1:]
    assert marker.result.terminal_reason == "hook_stopped"
    old = marker.old_session_id
    assert f"Session {old}: resetting context usage for restart (continuation #1)" in caplog.messages
    words = "Continue from checkpoint:\n\nthe task <checkpoint>within</checkpoint> the rest"
    assert watch.api.last.contains(words)
    assert runtime.archive.pieces(old)
    # the checkpoint was taken in a fork that left nothing behind
    transcripts = {path.stem for path in (mala_home / ".claude" / "projects").glob("*/*.jsonl")}
    assert marker.new_session_id in transcripts
    assert CHECKPOINT not in next((mala_home / ".claude" / "projects").glob(f"*/{old}.jsonl")).read_text()
    assert len(transcripts) == 3  # the run without, and both sessions of the run with it
    assert runtime.tracker.session_id == marker.new_session_id
    assert runtime.tracker.snapshot().tokens == watch.api.last.tokens


@pytest.mark.long
def test_the_same_on_trio(agent):
    runtime, _ = agent(Worker(11), config=config(restart_at=0.8), **SMALL)
    messages = anyio.run(drive, runtime, "Do the whole work.", backend="trio")
    check_done(messages)
    check_restarted(messages, "threshold", checkpoint=True)


@pytest.mark.long
async def test_a_turn_that_is_over_is_restarted_with_the_next_prompt(agent):
    def talks(request):
        return "<checkpoint>so far</checkpoint>" if request.contains(CHECKPOINT) else prose(9_000)

    runtime, watch = agent(talks, config=config(restart_at=0.8), **SMALL)
    async with runtime.session() as session:
        for prompt in PROMPTS:
            messages = await turn(session, prompt)
            check_done(messages, prose(9_000))
            if any(isinstance(message, SessionRestarted) for message in messages):
                break
    marker = check_restarted(messages, "threshold", checkpoint=True)
    assert marker.result is None
    assert watch.api.last.prompt.endswith(f"Continue from checkpoint:\n\nso far\n\n{prompt}")


@pytest.mark.long
async def test_after_max_restarts_the_pressure_is_the_callers(agent):
    runtime, _ = agent(TurnsThenCheckpoint(), config=config(restart_at=0.8, max_restarts=1), **SMALL)
    restarts = []
    runtime.actions.observers.append(restarts.append)
    with pytest.raises(ContextPressureError):
        await drive(runtime, *PROMPTS, *PROMPTS)
    assert sum(isinstance(record, Restarted) for record in restarts) == 1


@pytest.mark.long
async def test_three_restarts_in_five_minutes_open_the_breaker(agent, caplog):
    runtime, _ = agent(Worker(60), config=config(warn_at="null", restart_at=0.6, max_restarts=9), **SMALL)
    with pytest.raises(ContextPressureError):
        await drive(runtime, "go", "go on", "and on")
    assert len(warnings(caplog, "3 restarts within")) == 1
    assert runtime.actions.policy.restarts == 3


@pytest.mark.long
async def test_slow_restarts_do_not_open_it(agent, caplog):
    runtime, _ = agent(Worker(20), config=config(warn_at="null", restart_at=0.6, max_restarts=9), **SMALL)
    now = [0.0]

    def clock():
        now[0] += 60.0
        return now[0]

    runtime.actions.clock = clock
    check_done(await drive(runtime, "go"))
    assert runtime.actions.policy.restarts > 3
    assert not warnings(caplog, "restarts within")


@pytest.mark.long
async def test_without_a_checkpoint_it_goes_on_with_the_archive_and_the_last_prompt(agent, monkeypatch, caplog):
    monkeypatch.setattr(restart, "CHECKPOINT_SECONDS", 1.0)
    never = text("<checkpoint>too late</checkpoint>").but(hold=threading.Event())
    runtime, watch = agent(Worker(11, never), config=config(restart_at=0.8), **SMALL)
    messages = await drive(runtime, "Do the whole work.")
    check_done(messages)
    marker = check_restarted(messages, "threshold", checkpoint=False)
    first = next(request for request in watch.api.main_requests if request.session_id == marker.new_session_id)
    (piece,) = runtime.archive.pieces(marker.old_session_id)
    assert piece.name in first.prompt
    assert first.prompt.endswith("Do the whole work.")
    assert warnings(caplog, "no checkpoint (no answer within 1 s)")


@pytest.mark.long
async def test_a_template_is_filled(agent, mala_project):
    (mala_project / "again.md").write_text("Go on, {braces} and all:\n{checkpoint}\nThat is it.")
    runtime, watch = agent(Worker(11), config=config(restart_at=0.8, continuation_template="again.md"), **SMALL)
    check_done(await drive(runtime, "Do the whole work."))
    assert watch.api.last.contains("Go on, {braces} and all:\nthe task, and what is left\nThat is it.")


async def test_a_driver_of_ones_own(agent, caplog):
    caplog.set_level("INFO")
    runtime, _ = agent(TurnsThenCheckpoint(), config=config(restart_at=0.8, max_restarts=1), **SMALL)
    handler = runtime.pressure_handler(timeout_seconds=600)
    prompts = list(PROMPTS)
    seen = []
    async with runtime:
        while prompts:
            async with ClaudeSDKClient(handler.options) as client:
                try:
                    while prompts:
                        await client.query(prompts[0])
                        stream = runtime.processor.stream(client.receive_response())
                        seen += [message async for message in stream]
                        prompts.pop(0)
                except ContextPressureError as error:
                    left = prompts.pop(0)
                    prompts.insert(0, await handler.handle_pressure_error(error, last_prompt=left))
            if handler.restarts:
                break
    assert handler.restarts == 1
    assert prompts[0].startswith("Continue from checkpoint:\n\n")
    assert [line for line in caplog.messages if line.endswith("for restart (continuation #1)")]
    assert runtime.processor.context_usage.input_tokens == 0


# Overflow


@pytest.mark.long
async def test_an_overflow_is_one_record_one_warning_and_a_restart(agent, caplog):
    runtime, _ = agent(Worker(11), config=config(), **SMALL)
    seen = []
    runtime.actions.observers.append(seen.append)
    check_died(await drive(runtime, "Do the whole work."))
    assert sum(isinstance(record, ContextOverflow) for record in seen) == 1
    assert len(warnings(caplog, "the window is full, the request was refused")) == 1
    caplog.clear()

    # the window is believed to be larger than the API's, so that nothing is done before
    runtime, watch = agent(Worker(4, size=24_000), config="context: {restart_at: 0.9}", **SMALL)
    runtime.actions.observers.append(seen.append)
    messages = await drive(runtime, "Do the whole work.")
    check_done(messages)
    marker = check_restarted(messages, "overflow", checkpoint=False)
    assert marker.result.terminal_reason == "prompt_too_long"
    assert len(warnings(caplog, "the window is full, the request was refused")) == 1
    assert watch.api.main_requests[-1].session_id == marker.new_session_id


async def test_the_clis_own_breaker_is_an_overflow_too(agent, caplog):
    own = {**SMALL, "window": 40_000, "options": {}}
    runtime, _ = agent(Worker(12, size=24_000), config=config(), **own)
    messages = await drive(runtime, "go")
    assert results(messages)[-1].terminal_reason == "rapid_refill_breaker"
    assert len(warnings(caplog, "the window is full, the request was refused")) == 1


@pytest.mark.long
async def test_the_users_own_hooks_go_on_working(agent):
    calls = []

    async def mine(hook_input, *_):
        calls.append(hook_input["tool_name"])
        return {}

    hooks = {"PreToolUse": [HookMatcher(hooks=[mine])]}
    fields = {**SMALL, "options": {**SMALL["options"], "hooks": hooks}}
    runtime, _ = agent(Worker(11), config=config(restart_at=0.8), **fields)
    check_done(await drive(runtime, "Do the whole work."))
    assert calls == ["Bash"] * 11
