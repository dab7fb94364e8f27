"""When a session compacts or restarts by itself, over clients that say what a test wrote down."""

from types import SimpleNamespace

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, SystemMessage, TextBlock
from claude_agent_sdk.types import TaskNotificationMessage, TaskStartedMessage

from mala_context import ContextPressureError, ContextPressureHandler, ContextTracker, MessageStreamProcessor
from mala_context.agent.actions import Actions
from mala_context.agent.restart import CHECKPOINT_PROMPT
from mala_context.agent.session import open_session
from mala_context.agent.supervisor import GO_ON, SessionSupervisor
from mala_context.agent.telemetry.records import GuardActed, Restarted, SessionRestarted
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Thresholds
from tests.helpers import sdk_messages

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Agent:
    """An agent of a window of 1,000 tokens; `sizes` are its requests, one a prompt, and `extra` what else it says.

    It is connected again with each fresh session's options.
    """

    def __init__(self, *sizes, reasons=(), extra=(), checkpoint="<checkpoint>so far</checkpoint>", **thresholds):
        self.sizes = list(sizes)
        self.reasons = list(reasons)
        self.extra = [list(messages) for messages in extra]
        self.checkpoint = checkpoint
        self.prompts = []
        self.clients = []
        policy = Policy(Thresholds(**{"warn_at": None, **thresholds}))
        self.processor = MessageStreamProcessor(
            ContextTracker(window=1_000),
            restart_at=policy.raises_pressure,
        )
        self.actions = Actions(policy, self.processor)
        options = ClaudeAgentOptions(session_id="s0")
        wired = {"connect": self.connect, "limits": self.actions, "tell": self.actions.happened}
        self.handler = ContextPressureHandler(options, self.processor, **wired)
        handler = self.handler if thresholds.get("restart_at") is not None else None
        self.steward = SessionSupervisor(self.actions, self.processor, handler, self.connect)

    def connect(self, options):
        self.clients.append(Client(self, options))
        return self.clients[-1]

    def answer(self, client, prompt, uuid):
        """Return the messages that a prompt causes."""
        session_id = client.options.session_id
        if prompt == CHECKPOINT_PROMPT:
            return [said(self.checkpoint, 10, session_id), result(None, session_id)]
        self.prompts.append(prompt)
        start = [SystemMessage("init", {"session_id": session_id, "model": "claude-sonnet-4-5"})]
        if prompt.startswith("/compact"):
            return self.compacts(session_id)
        reason = self.reasons.pop(0) if self.reasons else "completed"
        extra = self.extra.pop(0) if self.extra else []
        self.steward._cut = reason == "hook_stopped"  # what the hook behind a batch of tools does
        refused = reason == "prompt_too_long"
        words = [] if refused else [said(f"to {prompt}", self.sizes.pop(0), session_id)]
        return [*start, *words, *extra, result(uuid, session_id, terminal_reason=reason, is_error=refused)]

    def compacts(self, session_id):
        meta = {"trigger": "manual", "pre_tokens": 900, "post_tokens": 10}
        boundary = SystemMessage("compact_boundary", {"session_id": session_id, "compact_metadata": meta})
        return [boundary, result(None, session_id)]

    def run(self, test, backend="asyncio"):
        """Run `test(session)` in a session of this agent."""

        async def main():
            async def close():
                await anyio.lowlevel.checkpoint()

            async with open_session(self.connect(self.handler.options), self.processor, close, self.steward) as session:
                with anyio.fail_after(10):
                    return await test(session)

        try:
            value = anyio.run(main, backend=backend)
        finally:
            for client in self.clients:
                client._receiving.close()
        assert all(client.closed for client in self.clients)
        return value


class Client:
    """Stands in for the SDK's client."""

    def __init__(self, agent, options):
        self.agent = agent
        self.options = options
        self.closed = False
        self._sending, self._receiving = anyio.create_memory_object_stream(1000)

    async def connect(self):
        await anyio.lowlevel.checkpoint()

    async def disconnect(self):
        await anyio.lowlevel.checkpoint()
        self.closed = True
        self._sending.close()

    async def query(self, prompt):
        if isinstance(prompt, str):
            sent = [(prompt, None)]
        else:
            sent = [(message["message"]["content"], message["uuid"]) async for message in prompt]
        for content, uuid in sent:
            words = content if isinstance(content, str) else "".join(block["text"] for block in content)
            for message in self.agent.answer(self, words, uuid):
                self._sending.send_nowait(message)

    async def receive_messages(self):
        with self._receiving:
            async for message in self._receiving:
                yield message


def said(words, tokens, session_id, message_id=None):
    usage = {"input_tokens": tokens, "output_tokens": 1}
    message_id = message_id or f"m-{session_id}-{words}"
    return AssistantMessage([TextBlock(words)], "m", usage=usage, message_id=message_id, session_id=session_id)


def result(uuid, session_id, **fields):
    values = {"terminal_reason": "completed", "user_message_uuids": [uuid] if uuid else None, **fields}
    return sdk_messages.result(session_id=session_id, usage={}, **values)


def task(kind="local_agent"):
    return TaskStartedMessage("task_started", {}, "t1", "work", "u", "s", None, kind)


def ended():
    return TaskNotificationMessage("task_notification", {}, "t1", "completed", "", "", "u", "s")


async def everything(session, *prompts):
    seen = []
    for prompt in prompts:
        async for message in session.send(prompt):
            seen.append(message)  # noqa: PERF401 - one prompt after the other
    return seen


def kinds(messages):
    return [type(message).__name__ for message in messages]


def markers(messages):
    return [message for message in messages if isinstance(message, SessionRestarted)]


# Compaction


@BACKENDS
def test_a_compaction_comes_before_the_prompt(backend):
    agent = Agent(850, 100, compact_at=0.8, compact_focus="names")
    messages = agent.run(lambda session: everything(session, "one", "two"), backend)
    assert agent.prompts == ["one", "/compact names", "two"]
    assert kinds(messages) == [
        *("SystemMessage", "AssistantMessage", "ResultMessage"),
        *("SystemMessage", "ResultMessage"),
        *("SystemMessage", "AssistantMessage", "ResultMessage"),
    ]


def test_a_compaction_without_a_boundary_is_one_warning(caplog):
    agent = Agent(850, 850, 850, compact_at=0.8)
    agent.compacts = lambda session_id: [result(None, session_id)]
    agent.run(lambda session: everything(session, "one", "two", "three"))
    assert agent.prompts == ["one", "/compact", "two", "three"]
    assert [line for line in caplog.messages if "nothing was compacted" in line] == [
        "Context: /compact was asked for, and nothing was compacted"
    ]


def test_it_waits_for_a_subagent_but_for_no_shell_command():
    agent = Agent(850, 850, 850, extra=[[task()], [ended()]], compact_at=0.8)
    agent.run(lambda session: everything(session, "one", "two", "three"))
    assert agent.prompts == ["one", "two", "/compact", "three"]
    agent = Agent(850, 850, extra=[[task("local_bash")]], compact_at=0.8)
    agent.run(lambda session: everything(session, "one", "two"))
    assert agent.prompts == ["one", "/compact", "two"]


def test_a_caller_who_left_a_turn_that_still_runs_gets_no_compaction():
    agent = Agent(850, 850, compact_at=0.8)
    whole = agent.answer

    def without_result(client, prompt, uuid):
        return whole(client, prompt, uuid)[: 2 if prompt == "one" else None]

    agent.answer = without_result

    async def test(session):
        async for message in session.send("one"):
            if type(message).__name__ == "AssistantMessage":
                break
        return await everything(session, "two")

    agent.run(test)
    assert agent.prompts == ["one", "two"]


# Restart


@BACKENDS
def test_a_turn_that_is_over_is_restarted_with_the_next_prompt(backend):
    agent = Agent(850, 100, restart_at=0.8)
    messages = agent.run(lambda session: everything(session, "one", "two"), backend)
    (marker,) = markers(messages)
    fresh = agent.handler.options.session_id
    assert marker == SessionRestarted("s0", fresh, "threshold", 1, checkpoint=True)
    assert agent.prompts == ["one", "Continue from checkpoint:\n\nso far\n\ntwo"]
    assert kinds(messages).count("ResultMessage") == 2
    assert kinds(messages)[3] == "SessionRestarted"


def test_content_blocks_stay_content_blocks():
    agent = Agent(850, 100, restart_at=0.8)
    blocks = [{"type": "text", "text": "two"}]
    agent.run(lambda session: everything(session, "one", blocks))
    assert agent.prompts[-1] == "Continue from checkpoint:\n\nso fartwo"
    assert blocks == [{"type": "text", "text": "two"}]


@BACKENDS
def test_a_turn_that_was_cut_goes_on_at_once(backend):
    agent = Agent(850, 100, reasons=["hook_stopped"], restart_at=0.8)
    messages = agent.run(lambda session: everything(session, "one"), backend)
    (marker,) = markers(messages)
    assert marker.result.terminal_reason == "hook_stopped"
    assert agent.prompts == ["one", "Continue from checkpoint:\n\nso far"]
    assert kinds(messages).count("ResultMessage") == 1
    assert not agent.steward._cut


def test_a_turn_that_was_refused_goes_on_whatever_still_runs():
    agent = Agent(500, 100, reasons=["completed", "prompt_too_long"], extra=[[task()]], restart_at=0.8)
    messages = agent.run(lambda session: everything(session, "one", "two"))
    (marker,) = markers(messages)
    assert (marker.reason, marker.result.terminal_reason) == ("overflow", "prompt_too_long")
    assert agent.prompts[:2] == ["one", "two"]
    assert len(agent.prompts) == 3


def test_without_a_checkpoint_the_last_prompt_is_repeated():
    agent = Agent(850, 100, reasons=["hook_stopped"], restart_at=0.8, checkpoint="")
    messages = agent.run(lambda session: everything(session, "Do it all."))
    assert not markers(messages)[0].checkpoint
    assert agent.prompts[-1].endswith("The last request was:\n\nDo it all.")


def test_a_restart_waits_for_shell_commands_too():
    agent = Agent(850, 850, 850, extra=[[task("local_bash")], [ended()]], restart_at=0.8)
    messages = agent.run(lambda session: everything(session, "one", "two", "three"))
    assert agent.prompts[:2] == ["one", "two"]
    assert len(markers(messages)) == 1


def test_a_turn_cut_by_somebody_elses_hook_is_over():
    agent = Agent(500, reasons=["hook_stopped"], restart_at=0.8)
    whole = agent.answer

    def answer(*args):
        messages = whole(*args)
        agent.steward._cut = False
        return messages

    agent.answer = answer
    messages = agent.run(lambda session: everything(session, "one"))
    assert kinds(messages)[-1] == "ResultMessage"
    assert not markers(messages)


def test_a_turn_cut_for_a_restart_that_nobody_wants_any_more_goes_on_as_it_is():
    agent = Agent(500, 510, reasons=["hook_stopped"], restart_at=0.8)
    messages = agent.run(lambda session: everything(session, "one"))
    assert agent.prompts == ["one", GO_ON]
    assert not markers(messages)
    assert kinds(messages)[-1] == "ResultMessage"


def test_when_no_restart_is_left_the_pressure_is_the_callers():
    agent = Agent(850, 100, 850, restart_at=0.8, max_restarts=1)
    with pytest.raises(ContextPressureError) as caught:
        agent.run(lambda session: everything(session, "one", "two", "three"))
    assert caught.value.session_id == agent.handler.options.session_id
    assert agent.handler.restarts == 1


def test_a_refusal_when_no_restart_is_left_ends_the_turn():
    agent = Agent(850, 100, reasons=["prompt_too_long"], restart_at=0.8, max_restarts=0)
    with pytest.raises(ContextPressureError):
        agent.run(lambda session: everything(session, "one", "two"))
    assert agent.prompts == ["one"]


def test_the_restart_is_told_to_observers():
    agent = Agent(850, 100, restart_at=0.8)
    seen = []
    agent.actions.observers.append(seen.append)
    messages = agent.run(lambda session: everything(session, "one", "two"))
    (marker,) = markers(messages)
    values = (marker.old_session_id, marker.new_session_id, "threshold", 1, True)
    assert [record for record in seen if isinstance(record, Restarted)] == [Restarted(*values)]


def test_a_compaction_that_is_asked_for_is_told_to_observers():
    agent = Agent(850, 100, compact_at=0.8)
    seen = []
    agent.actions.observers.append(seen.append)
    agent.run(lambda session: everything(session, "one", "two"))
    assert [record.action for record in seen if isinstance(record, GuardActed)] == ["compact_asked"]


@BACKENDS
def test_a_restart_that_the_caller_left_is_finished_with_the_next_prompt(backend):
    agent = Agent(850, 100, reasons=["hook_stopped"], restart_at=0.8)
    whole, asked = agent.answer, anyio.Event()

    def silent_once(client, prompt, uuid):
        if prompt != CHECKPOINT_PROMPT:
            return whole(client, prompt, uuid)
        agent.answer = whole
        asked.set()
        return []

    agent.answer = silent_once

    async def test(session):
        async with anyio.create_task_group() as tasks:
            scope = tasks.cancel_scope
            tasks.start_soon(everything, session, "one")
            await asked.wait()
            scope.cancel()
        assert scope.cancelled_caught
        return await everything(session, "two")

    messages = agent.run(test, backend)
    (marker,) = markers(messages)
    assert (marker.old_session_id, marker.checkpoint) == ("s0", True)
    assert agent.prompts == ["one", "Continue from checkpoint:\n\nso far\n\ntwo"]
    assert kinds(messages)[-1] == "ResultMessage"


def test_a_fresh_session_that_cannot_be_started_is_the_callers_error():
    agent = Agent(850, restart_at=0.8)
    connect = agent.connect

    def failing(options):
        client = connect(options)

        async def refuse():
            raise OSError("no such CLI")

        client.connect = refuse
        return client

    agent.steward._connect = failing
    with pytest.raises(OSError, match="no such CLI"):
        agent.run(lambda session: everything(session, "one", "two"))


def test_a_turn_may_be_cut_only_while_its_own_answer_is_awaited():
    agent = Agent(restart_at=0.8)
    session = SimpleNamespace(awaits_answer=True, outstanding=SimpleNamespace(tasks={}))
    agent.steward.serve(session)
    assert agent.steward._cut_turn()
    session.outstanding.tasks["t"] = "local_bash"
    assert not agent.steward._cut_turn()
    session.outstanding.tasks.clear()
    session.awaits_answer = False
    assert not agent.steward._cut_turn()
    assert not agent.actions.policy.raises_pressure(0.9)


def test_without_restart_at_no_turn_is_cut():
    agent = Agent()
    agent.steward.serve(SimpleNamespace())
    agent.actions.happened("nothing is cut")
    assert agent.actions._cut_turn is None
