"""From a full session to a fresh one, over a client that says what a test wrote down."""

import logging
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, TextBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st

from mala_context import ContextPressureError, ContextPressureHandler, MessageStreamProcessor
from mala_context.agent import restart
from mala_context.agent.restart import CHECKPOINT_PROMPT, extract_checkpoint
from mala_context.agent.telemetry.records import Restarted
from tests.helpers import sdk_messages

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
ERROR = ContextPressureError("old", 1, 2, 3, 0.95)
END = object()
"""The fork's CLI ends."""


def said(*words, model="claude-sonnet-4-5", parent=None):
    return AssistantMessage([TextBlock(word) for word in words], model, parent_tool_use_id=parent)


def result(**fields):
    return sdk_messages.result(session_id="fork", **fields)


@dataclass
class Client:
    """Stands in for the SDK's client of the fork."""

    options: Any
    messages: list = field(default_factory=list)
    fails: Exception | None = None
    disconnected: bool = False
    interrupted: bool = False
    prompts: list = field(default_factory=list)

    async def connect(self):
        await anyio.lowlevel.checkpoint()
        if self.fails is not None:
            raise self.fails

    async def query(self, prompt):
        self.prompts.append(prompt)

    async def receive_messages(self):
        for message in self.messages:
            await anyio.lowlevel.checkpoint()
            if message is END:
                return
            yield message
        await anyio.sleep_forever()

    async def interrupt(self):
        self.interrupted = True
        raise ConnectionError

    async def disconnect(self):
        self.disconnected = True


def handler(*messages, options=None, fails=None, **fields):
    """Return a handler and the clients that it will have made."""
    clients = []

    def connect(given):
        clients.append(Client(given, list(messages), fails))
        return clients[-1]

    made = ContextPressureHandler(options or ClaudeAgentOptions(model="m"), connect=connect, **fields)
    return made, clients


def fetch(made, backend="asyncio", session_id="old"):
    return anyio.run(made.fetch_checkpoint, session_id, backend=backend)


# The tags


@pytest.mark.parametrize(
    ("answer", "checkpoint"),
    [
        ("<checkpoint>a</checkpoint>", "a"),
        ("Sure. <checkpoint>\n a\n b \n</checkpoint> Done.", "a\n b"),
        ("<checkpoint>a <checkpoint>b</checkpoint> c</checkpoint> d", "a <checkpoint>b</checkpoint> c"),
        ("<checkpoint><checkpoint>a</checkpoint></checkpoint>", "<checkpoint>a</checkpoint>"),
        ("<Checkpoint>a</CHECKPOINT>", "a"),
        ("</checkpoint><checkpoint>a</checkpoint>", "a"),
        ("<checkpoint>cut in the mid", "cut in the mid"),
        ("<checkpoint>a <checkpoint>b</checkpoint> cut", "a <checkpoint>b</checkpoint> cut"),
        ("no tags at all", "no tags at all"),
        ("<checkpoint>first</checkpoint><checkpoint>second</checkpoint>", "first"),
        ("<checkpoint> </checkpoint>", None),
        ("  \n", None),
        ("", None),
    ],
)
def test_extraction(answer, checkpoint):
    assert extract_checkpoint(answer) == checkpoint


@given(st.lists(st.sampled_from(["<checkpoint>", "</checkpoint>", "word ", "<check", "\n"])).map("".join))
def test_extraction_never_raises_and_never_invents(answer):
    found = extract_checkpoint(answer)
    assert found is None or (found and found == found.strip() and found in answer)


# The checkpoint


@BACKENDS
def test_a_fork_is_asked_and_left(backend):
    made, clients = handler(said("<checkpoint>a"), said(" b</checkpoint>"), result())
    assert fetch(made, backend) == "a\n b"
    (client,) = clients
    assert client.prompts == [CHECKPOINT_PROMPT]
    assert client.disconnected
    options = client.options
    assert (options.resume, options.fork_session, options.session_id) == ("old", True, None)
    assert options.extra_args == {"no-session-persistence": None}
    assert options.model == "m"


async def test_the_fork_may_use_no_tool_and_keeps_none_of_the_users_hooks():
    users = {"PostToolUse": ["a hook"], "PreToolUse": ["another"]}
    options = ClaudeAgentOptions(hooks=users, extra_args={"verbose": None}, session_id="x", max_turns=50)
    made, clients = handler(said("<checkpoint>a</checkpoint>"), result(), options=options)
    assert await made.fetch_checkpoint("old") == "a"
    forked = clients[0].options
    assert set(forked.hooks) == {"PreToolUse"}
    ((matcher,),) = forked.hooks.values()
    answer = await matcher.hooks[0]({"tool_name": "Bash"}, None, {})
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert forked.extra_args == {"verbose": None, "no-session-persistence": None}
    assert forked.max_turns == 3
    assert made.options.hooks == users


REFUSED = result(is_error=True, result="Prompt is too long", terminal_reason="prompt_too_long")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([said("Prompt is too long", model="<synthetic>"), REFUSED], "Prompt is too long"),
        ([result()], "it wrote nothing"),
        ([AssistantMessage([ToolUseBlock("t", "Bash", {})], "m"), result()], "it wrote nothing"),
        ([said("a subagent's", parent="toolu_1"), result()], "it wrote nothing"),
        ([said("<checkpoint>  </checkpoint>"), result()], "it wrote nothing"),
    ],
)
async def test_no_checkpoint_is_one_warning(messages, why, caplog):
    made, clients = handler(*messages)
    assert await made.fetch_checkpoint("old") is None
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == f"Session old: no checkpoint ({why}); going on from the archive"
    assert clients[0].disconnected


async def test_a_checkpoint_counts_though_the_turn_failed_behind_it():
    failed = result(is_error=True, result="too many turns")
    made, _ = handler(said("<checkpoint>a</checkpoint>"), failed)
    assert await made.fetch_checkpoint("old") == "a"


async def test_a_fork_that_cannot_be_started_does_not_end_the_run(caplog):
    made, clients = handler(fails=OSError("no such CLI"))
    assert await made.fetch_checkpoint("old") is None
    assert "OSError: no such CLI" in caplog.text
    assert clients[0].disconnected


@BACKENDS
def test_a_fork_that_does_not_answer_is_left_in_time(backend, monkeypatch, caplog):
    monkeypatch.setattr(restart, "CHECKPOINT_SECONDS", 0.05)
    made, clients = handler(said("<checkpoint>not finished"))
    assert fetch(made, backend) is None
    assert clients[0].interrupted
    assert clients[0].disconnected
    assert "no answer within 0 s" in caplog.text


@BACKENDS
def test_it_never_runs_past_the_runs_own_deadline(backend):
    now = [0.0]
    made, _ = handler(timeout_seconds=100.0, clock=lambda: now[0])
    assert anyio.run(seconds_left, made, backend=backend) == 100.0
    now[0] = 99.96
    assert fetch(made, backend) is None
    now[0] = 500.0
    assert anyio.run(seconds_left, made, backend=backend) == 0.0


async def seconds_left(made):
    return made.seconds_left


async def test_an_enclosing_scope_is_a_deadline_too():
    made, clients = handler()
    with anyio.move_on_after(0.05) as scope:
        assert made.seconds_left <= 0.05
        await made.fetch_checkpoint("old")
    assert scope.cancelled_caught or clients[0].disconnected
    assert clients[0].disconnected


# The prompt


def test_without_a_template():
    made, _ = handler()
    assert made.build_continuation_prompt("the text") == "Continue from checkpoint:\n\nthe text"


def test_a_template_is_filled_and_its_other_braces_are_left():
    made, _ = handler(template="{a} {checkpoint} {0} {checkpoint}")
    assert made.build_continuation_prompt("{x}") == "{a} {x} {0} {x}"


def test_without_a_checkpoint_it_names_the_archive_and_the_last_prompt():
    made, _ = handler(template="Go on. {checkpoint}")
    prompt = made.build_continuation_prompt(None, session_id="old", paths=["/a/1", "/a/2"], last_prompt="Fix it.")
    assert prompt.startswith("Go on. The context of an earlier session (old) is full")
    assert "\n/a/1\n/a/2\n" in prompt
    assert prompt.endswith("The last request was:\n\nFix it.")
    assert len(made.build_continuation_prompt(None, last_prompt="x" * 100_000)) < 10_000
    assert made.build_continuation_prompt(None)


# The whole way


async def test_the_way_to_a_fresh_session(caplog):
    caplog.set_level(logging.INFO)
    processor = MessageStreamProcessor()
    processor.context_usage.add_turn(input_tokens=5, output_tokens=5)
    kept = []

    async def keep(session_id):
        kept.append(session_id)
        return ["/archive/old"]

    flags = {"resume-session-at": "row", "resume-drops-turn": "prompt", "verbose": None}
    options = ClaudeAgentOptions(resume="older", fork_session=True, hooks={"Stop": []}, extra_args=flags)
    now = [10.0]
    made, clients = handler(
        *(said("<checkpoint>a</checkpoint>"), result()),
        options=options,
        processor=processor,
        keep=keep,
        clock=lambda: now[0],
    )
    now[0] = 70.0
    assert await made.handle_pressure_error(ERROR, last_prompt="p") == "Continue from checkpoint:\n\na"
    assert kept == ["old"]
    assert made.elapsed == 60.0
    assert (made.restarts, made.had_checkpoint) == (1, True)
    assert processor.context_usage.input_tokens == 0
    assert "Session old: resetting context usage for restart (continuation #1)" in caplog.messages
    first = made.options
    assert (first.resume, first.fork_session, first.hooks) == (None, False, {"Stop": []})
    assert first.extra_args == {"verbose": None}
    assert clients[0].options.extra_args == {"verbose": None, "no-session-persistence": None}
    assert len(first.session_id) == 36
    await made.handle_pressure_error(ERROR)
    assert made.options.session_id != first.session_id
    assert "Session old: resetting context usage for restart (continuation #2)" in caplog.messages
    assert made.elapsed == 60.0


@BACKENDS
def test_a_fork_that_ends_without_a_result_has_said_what_it_said(backend):
    made, clients = handler(said("<checkpoint>a</checkpoint>"), END)
    assert fetch(made, backend) == "a"
    assert clients[0].disconnected


@pytest.mark.parametrize(
    ("refused", "checkpoint", "reason"), [(False, "a", "threshold"), (True, "a", "overflow"), (False, "", "threshold")]
)
async def test_who_asked_is_told_of_each_restart(refused, checkpoint, reason):
    told, processor = [], MessageStreamProcessor()
    if refused:
        processor.process(sdk_messages.result(terminal_reason="prompt_too_long", is_error=True, usage={}))
    made, _ = handler(said(checkpoint), END, processor=processor, tell=told.append)
    for number in (1, 2):
        assert (processor.overflow is not None) is (refused and number == 1)
        await made.handle_pressure_error(ERROR)
        why = reason if number == 1 else "threshold"
        assert told[-1] == Restarted("old", made.options.session_id, why, number, checkpoint == "a")


async def test_the_clients_are_the_sdks_unless_told_otherwise(monkeypatch):
    clients = []

    def connect(options):
        clients.append(Client(options, [said("a"), END]))
        return clients[-1]

    monkeypatch.setattr("claude_agent_sdk.ClaudeSDKClient", connect)
    assert await ContextPressureHandler(ClaudeAgentOptions()).fetch_checkpoint("old") == "a"
    assert clients[0].options.resume == "old"


async def test_options_of_an_older_sdk_are_changed_where_they_can_be():
    @dataclass
    class Options:
        resume: str | None = "older"
        session_id: str | None = None

    made, clients = handler(said("a"), result(), options=Options())
    assert await made.handle_pressure_error(ERROR) == "Continue from checkpoint:\n\na"
    assert clients[0].options == Options("old")
    assert made.options.resume is None


async def test_after_max_restarts_the_error_itself_is_raised():
    made, clients = handler(said("a"), result(), max_restarts=1)
    await made.handle_pressure_error(ERROR)
    with pytest.raises(ContextPressureError) as caught:
        await made.handle_pressure_error(ERROR)
    assert caught.value is ERROR
    assert len(clients) == 1


async def test_restarts_that_follow_too_fast_raise_the_error_too():
    class Limits:
        can_restart = True
        count = 0

        def restarted(self):
            self.count += 1
            self.can_restart = False

    limits = Limits()
    made, _ = handler(said("a"), result(), limits=limits, max_restarts=9)
    await made.handle_pressure_error(ERROR)
    assert limits.count == 1
    with pytest.raises(ContextPressureError):
        await made.handle_pressure_error(ERROR)


async def test_an_archive_in_trouble_does_not_end_the_run(caplog):
    async def keep(session_id):
        raise OSError("disk full")

    made, _ = handler(result(), keep=keep)
    assert "(old) is full" in await made.handle_pressure_error(ERROR)
    assert "could not be archived before the restart" in caplog.text
