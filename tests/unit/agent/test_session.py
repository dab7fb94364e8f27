"""One session over a client that says what a test wrote down; on asyncio and on trio."""

import asyncio
import logging
import types

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, ResultMessage, SystemMessage, TextBlock

from mala_context import ContextPressureError, ContextTracker, MessageStreamProcessor
from mala_context.agent.session import AgentSession, answers, ask_window, open_session
from mala_context.agent.telemetry.records import SessionRestarted
from mala_context.tracking.events import SessionStart
from tests.helpers import sdk_messages

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def said(words):
    return AssistantMessage(content=[TextBlock(text=words)], model="claude-sonnet-4-5")


def result(*uuids, **fields):
    usage = {"input_tokens": 900, "output_tokens": 0}
    return sdk_messages.result(**{"usage": usage, "user_message_uuids": list(uuids) or None, **fields})


NOTIFIED = {"kind": "task-notification"}


class Client:
    """Stands in for the SDK's client: `answer(prompt, uuid)` gives the messages that a prompt causes.

    An exception among the messages is raised where they are read, and `END` ends them.
    """

    END = object()

    def __init__(self, answer=lambda prompt, uuid: [said(prompt), result(uuid)], **failing):
        self.answer = answer
        self.failing = failing
        self.done = []
        self.prompts = []
        self._sending, self._receiving = anyio.create_memory_object_stream(1000)
        self.server_info = None

    async def get_server_info(self):
        return self.server_info

    async def _do(self, step):
        await anyio.lowlevel.checkpoint()
        self.done.append(step)
        if step in self.failing:
            raise self.failing[step]

    async def connect(self):
        await self._do("connect")

    async def disconnect(self):
        await self._do("disconnect")

    async def query(self, prompts):
        await self._do("query")
        async for message in prompts:
            self.prompts.append(message)
            self.put(*self.answer(message["message"]["content"], message["uuid"]))

    def put(self, *messages):
        for message in messages:
            self._sending.send_nowait(message)

    async def receive_messages(self):
        async for message in self._receiving:
            if message is self.END:
                return
            if isinstance(message, Exception):
                raise message
            yield message

    async def close(self):
        self.done.append("close")
        self._sending.close()
        self._receiving.close()


def run(backend, test, client=None, processor=None, *, steward=None, last=None):
    """Run `test(session, client)` inside a session; whatever happens, the client is disconnected and then closed.

    `last` is the client that the session has at its end, where the steward gives it another one.
    """

    async def main():
        nonlocal client, last
        client = client() if client is not None else Client()
        clients = {client, last or client}
        last = last or client

        async def close():
            for each in clients:
                await each.close()

        async with open_session(client, processor or MessageStreamProcessor(), close, steward) as session:
            assert isinstance(session, AgentSession)
            return await test(session, client)

    try:
        return anyio.run(main, backend=backend)
    finally:
        assert last.done[-2:] == ["disconnect", "close"]


async def everything(messages):
    return [message async for message in messages]


async def collect(messages, seen):
    """Append messages to `seen`, which keeps what came before an error."""
    async for message in messages:
        seen.append(message)


def words(messages):
    return [
        message.content[0].text if isinstance(message, AssistantMessage) else type(message).__name__
        for message in messages
    ]


# -- matching ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "right"),
    [
        (result("mine"), True),
        (result("other"), False),
        (result("other", "mine"), True),
        (result(*(str(n) for n in range(64))), True),
        (result(*(str(n) for n in range(63))), False),
        (result(user_message_uuid="mine"), True),
        (result(user_message_uuid="other"), False),
        (result(user_message_uuids=[], user_message_uuid="other"), False),
        (result(user_message_uuids="mine, too", user_message_uuid="other"), False),
        (result(usage=3, model_usage=7, num_turns="x"), True),
        (result(), True),
        (result(origin=NOTIFIED), False),
        (result(origin={"kind": "human"}), True),
        (result(origin={}), True),
        (result("mine", origin=NOTIFIED), True),
    ],
)
def test_which_result_answers_a_prompt(message, right):
    assert answers(MessageStreamProcessor().turn_end(message), "mine") is right


def test_a_result_that_cannot_be_read_names_no_prompt():
    odd = result("mine")
    odd.model_usage = types.SimpleNamespace
    odd.user_message_uuids = property
    assert answers(MessageStreamProcessor().turn_end(odd), "mine")


@BACKENDS
def test_a_prompt_is_sent_with_a_uuid_and_ends_with_its_result(backend):
    async def test(session, client):
        first = await everything(session.send("one"))
        second = await everything(session.send([{"type": "text", "text": "two"}]))
        return first, second, client.prompts

    first, second, prompts = run(
        backend, test, lambda: Client(lambda prompt, uuid: [said(str(prompt)), result(uuid), said("late")])
    )
    assert words(first) == ["one", "ResultMessage"]
    assert words(second) == ["late", "[{'type': 'text', 'text': 'two'}]", "ResultMessage"]
    assert [prompt["type"] for prompt in prompts] == ["user", "user"]
    assert [prompt["parent_tool_use_id"] for prompt in prompts] == [None, None]
    assert prompts[0]["message"] == {"role": "user", "content": "one"}
    assert prompts[1]["message"] == {"role": "user", "content": [{"type": "text", "text": "two"}]}
    assert prompts[0]["uuid"] != prompts[1]["uuid"]


@BACKENDS
def test_a_turn_that_nobody_asked_for_is_passed_on_and_not_taken_for_the_answer(backend):
    def answer(prompt, uuid):
        return [said("background"), result(origin=NOTIFIED), result("of another prompt"), said("mine"), result(uuid)]

    messages = run(backend, lambda session, _: everything(session.send("go")), lambda: Client(answer))
    assert words(messages) == ["background", "ResultMessage", "ResultMessage", "mine", "ResultMessage"]


@BACKENDS
def test_messages_come_without_a_prompt_until_the_cli_ends(backend):
    async def test(session, client):
        client.put(said("a"), result(origin=NOTIFIED), said("b"), client.END)
        messages = session.receive()
        received = await everything(messages)
        assert await everything(messages) == []
        return received

    assert words(run(backend, test)) == ["a", "ResultMessage", "b"]


@BACKENDS
def test_a_cli_that_ends_before_the_answer_ends_the_messages(backend):
    messages = run(
        backend,
        lambda session, _: everything(session.send("go")),
        lambda: Client(lambda prompt, uuid: [said("half"), Client.END]),
    )
    assert words(messages) == ["half"]


@BACKENDS
def test_messages_are_read_while_nobody_asks_for_them(backend):
    processor = MessageStreamProcessor()

    async def test(session, client):
        client.put(*(said(str(number)) for number in range(500)))
        while processor.messages_seen < 500:
            await anyio.lowlevel.checkpoint()
        client.put(client.END)
        return len(await everything(session.receive()))

    assert run(backend, test, processor=processor) == 500


# -- leaving and taking over -------------------------------------------------------------------------------------------


@BACKENDS
def test_a_caller_who_leaves_early_loses_nothing(backend):
    async def test(session, client):
        async for message in session.send("one"):
            assert words([message]) == ["one"]
            break
        return await everything(session.send("two"))

    assert words(run(backend, test)) == ["ResultMessage", "two", "ResultMessage"]


@BACKENDS
def test_going_on_with_an_older_one_is_an_error(backend):
    async def test(session, client):
        older = session.send("one")
        await anext(older)
        newer = session.send("two")
        await anext(newer)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a later"):
                await anext(older)
        return await everything(newer)

    assert words(run(backend, test)) == ["two", "ResultMessage"]


@BACKENDS
def test_an_older_one_that_waits_is_told_that_another_took_over(backend):
    async def test(session, client):
        told = anyio.Event()

        async def wait():
            with pytest.raises(RuntimeError, match="a later"):
                await anext(session.receive())
            told.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            messages = await everything(session.send("one"))
            await told.wait()
        return messages

    assert words(run(backend, test)) == ["one", "ResultMessage"]


@BACKENDS
def test_a_prompt_goes_out_when_its_first_message_is_asked_for(backend):
    async def test(session, client):
        messages = session.send("one")
        assert client.prompts == []
        await anext(messages)
        assert len(client.prompts) == 1

    run(backend, test)


@BACKENDS
def test_a_wait_that_is_given_up_can_be_taken_up(backend):
    async def test(session, client):
        messages = session.send("one")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, messages)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        client.put(said("late"), result(client.prompts[0]["uuid"]))
        return await everything(messages), len(client.prompts)

    messages, prompts = run(backend, test, lambda: Client(lambda prompt, uuid: []))
    assert (words(messages), prompts) == (["late", "ResultMessage"], 1)


# -- pressure ----------------------------------------------------------------------------------------------------------


def pressed():
    tracker = ContextTracker(estimator="cumulative", window=1000)
    return MessageStreamProcessor(tracker, restart_at=0.5)


@BACKENDS
def test_pressure_is_raised_behind_the_answer(backend):
    seen = []

    async def test(session, client):
        with pytest.raises(ContextPressureError) as caught:
            await collect(session.send("one"), seen)
        assert caught.value.pressure_ratio == 0.9

    run(backend, test, processor=pressed())
    assert words(seen) == ["one", "ResultMessage"]


@BACKENDS
def test_pressure_waits_for_a_caller_who_left_at_the_answer(backend):
    async def test(session, client):
        async for message in session.send("one"):
            if isinstance(message, ResultMessage):
                break
        messages = session.send("two")
        with pytest.raises(ContextPressureError):
            await anext(messages)
        client.put(said("more"))
        return await anext(messages)

    def answer(prompt, uuid):
        return [said("one"), result(uuid)] if prompt == "one" else []

    assert words([run(backend, test, lambda: Client(answer), pressed())]) == ["more"]


@BACKENDS
def test_pressure_of_a_background_turn_is_raised_in_its_place_and_once(backend):
    seen = []

    async def test(session, client):
        messages = session.send("one")
        with pytest.raises(ContextPressureError):
            await collect(messages, seen)
        return await everything(messages)

    def answer(prompt, uuid):
        return [result(origin=NOTIFIED), said("mine"), result(uuid, usage=None)]

    processor = pressed()
    processor.take(SessionStart("s1", "init"))
    rest = run(backend, test, lambda: Client(answer), processor)
    assert words(seen) == ["ResultMessage"]
    assert words(rest) == ["mine", "ResultMessage"]


# -- errors and endings ------------------------------------------------------------------------------------------------


@BACKENDS
def test_what_the_sdk_raises_reaches_whoever_reads_behind_the_messages_before_it(backend):
    seen = []

    async def test(session, client):
        for _ in range(2):
            with pytest.raises(ConnectionError, match="gone"):
                await collect(session.receive(), seen)

    def client():
        made = Client()
        made.put(said("a"), ConnectionError("gone"))
        return made

    run(backend, test, client)
    assert words(seen) == ["a"]


@BACKENDS
def test_a_prompt_that_cannot_be_sent(backend):
    async def test(session, client):
        messages = session.send("one")
        with pytest.raises(OSError, match="pipe"):
            await anext(messages)
        assert await everything(messages) == []

    run(backend, test, lambda: Client(query=OSError("pipe")))


@BACKENDS
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt("mine")])
def test_an_error_of_the_body_comes_out_as_itself(backend, error):
    async def test(session, client):
        raise error

    with pytest.raises(type(error), match="mine"):
        run(backend, test)


@BACKENDS
def test_a_client_that_cannot_connect_is_disconnected_all_the_same(backend):
    async def test(session, client):
        raise AssertionError("there is no session")

    with pytest.raises(OSError, match="no CLI"):
        run(backend, test, lambda: Client(connect=OSError("no CLI")))


@BACKENDS
@pytest.mark.parametrize("connected", [True, False])
def test_what_is_cancelled_still_disconnects_and_closes(backend, connected):
    client = []

    async def main():
        client.append(Client())
        with anyio.CancelScope() as scope:
            if not connected:
                scope.cancel()
            async with open_session(client[0], MessageStreamProcessor(), client[0].close) as session:
                scope.cancel()
                await anext(session.receive())
        assert scope.cancelled_caught

    anyio.run(main, backend=backend)
    assert client[0].done == [*(["connect"] if connected else []), "disconnect", "close"]


def test_it_closes_even_where_its_task_is_cancelled_while_it_disconnects():
    """As asyncio does at Ctrl-C, behind any shield."""
    client = []

    class Impatient(Client):
        async def disconnect(self):
            asyncio.current_task().cancel()
            await super().disconnect()

    async def main():
        client.append(Impatient())
        async with open_session(client[0], MessageStreamProcessor(), client[0].close):
            pass

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert client[0].done == ["connect", "close"]


@BACKENDS
def test_it_closes_even_where_disconnecting_fails(backend):
    async def test(session, client):
        return await everything(session.send("one"))

    with pytest.raises(OSError, match="still"):
        run(backend, test, lambda: Client(disconnect=OSError("still")))


@BACKENDS
def test_the_bodys_own_error_comes_before_one_of_disconnecting(backend):
    async def test(session, client):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(backend, test, lambda: Client(disconnect=OSError("still")))


@BACKENDS
def test_the_context_is_the_trackers(backend):
    processor = MessageStreamProcessor()

    async def test(session, client):
        await everything(session.send("one"))
        assert session.tracker is processor.tracker
        return session.context

    snapshot = run(backend, test, processor=processor)
    assert snapshot == processor.tracker.snapshot()
    assert snapshot.session_id == "s1"


# -- the CLI's window --------------------------------------------------------------------------------------------------


class Query:
    """Stands in for the query object of the SDK's client: says windows one after the other, and notes each question."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def _send_control_request(self, request, timeout):  # noqa: ASYNC109 - the SDK's own name
        self.asked.append(request)
        await anyio.lowlevel.checkpoint()
        answer = self.answers.pop(0) if self.answers else Exception("unknown subtype")
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await anyio.sleep_forever()
        return {"rawMaxTokens": answer, "model": "claude-sonnet-4-5"}


def asking(*answers, messages=(), version="2.1.332"):
    """Return a client that says these windows, and its version at connect, and sends `messages` before each answer."""
    made = Client(lambda prompt, uuid: [*messages, said(prompt), result(uuid)])
    made._query = Query(*answers)
    made.server_info = {"claude_code_version": version}
    return made


COMPACTED = SystemMessage("compact_boundary", {"session_id": "s1"})


def started(model="claude-sonnet-4-5", version=None):
    return SystemMessage("init", {"session_id": "s1", "model": model, "claude_code_version": version})


@BACKENDS
def test_the_cli_says_its_window_at_connect_and_no_turn_asks_again(backend):
    async def test(session, client):
        await anyio.wait_all_tasks_blocked()
        assert session.context.window_source == "context_usage"
        await everything(session.send("one"))
        return session.context.window, client._query.asked

    window, asked = run(backend, test, lambda: asking(300_000, messages=[started()]))
    assert window == 300_000
    assert asked == [{"subtype": "get_context_usage", "detail": "summary"}]


@BACKENDS
@pytest.mark.parametrize(
    "message",
    [started("claude-opus-10"), COMPACTED],
    ids=["model", "compacted"],
)
def test_it_is_asked_again_where_its_window_may_be_another(backend, message):
    async def test(session, client):
        await anyio.wait_all_tasks_blocked()
        await everything(session.send("one"))
        await anyio.wait_all_tasks_blocked()
        return len(client._query.asked)

    assert run(backend, test, lambda: asking(300_000, 300_000, messages=[message])) == 2


@BACKENDS
@pytest.mark.parametrize("answer", [Exception("unknown subtype"), None, "many"])
def test_a_cli_that_does_not_say_its_window_leaves_the_table(backend, answer, monkeypatch):
    monkeypatch.setattr("mala_context.agent.session.WINDOW_SECONDS", 0.01)

    async def test(session, client):
        messages = await everything(session.send("one"))
        return words(messages), session.context.window_source

    assert run(backend, test, lambda: asking(answer)) == (["one", "ResultMessage"], "table")


@BACKENDS
@pytest.mark.parametrize("connect", [None, "{}", 2, "2.1.119", "2.1.252"])
@pytest.mark.parametrize("first", [None, "x", "2.0.76", "2.1.119", "2.1.252"])
def test_a_cli_that_may_count_through_the_api_is_never_asked(backend, connect, first, caplog):
    """At connect, after another model, after a compaction, after an alarm, on its own client and at a restart."""

    def made():
        messages = [started(version=first), started("claude-opus-10", first), COMPACTED]
        return asking(300_000, messages=messages, version=connect)

    async def test(session, client):
        await anyio.wait_all_tasks_blocked()
        await everything(session.send("one"))
        session._processor.asks_why()
        await client.disconnect()
        await session.enter(fresh, RESTARTED)
        await everything(session.send("two"))
        await anyio.wait_all_tasks_blocked()
        assert await ask_window(fresh, session.tracker) is None
        assert session.context.window_source == "table"
        return client._query.asked + fresh._query.asked

    fresh = made()
    caplog.set_level(logging.DEBUG, "mala_context.agent.session")
    assert run(backend, test, made, last=fresh) == []
    assert "too old, or has not named its version" in caplog.text


@BACKENDS
@pytest.mark.parametrize(
    ("connect", "first", "asked"),
    [("2.1.257", None, 1), (None, "2.1.257", 0), (None, "2.1.295", 0), ("2.1.296", "2.1.296", 1), ("2.2.0", None, 1)],
)
def test_a_cli_is_asked_from_when_its_version_is_known(backend, connect, first, asked):
    async def test(session, client):
        await anyio.wait_all_tasks_blocked()
        before = len(client._query.asked)
        await everything(session.send("one"))
        await anyio.wait_all_tasks_blocked()
        return before, session.context.window_source, len(client._query.asked)

    made = run(backend, test, lambda: asking(300_000, messages=[started(version=first)], version=connect))
    assert made == (asked, "context_usage", 1)


def test_a_processor_that_looks_at_nothing_asks_nothing():
    async def test(session, client):
        await anyio.wait_all_tasks_blocked()
        return client._query.asked

    assert run("asyncio", test, lambda: asking(300_000), MessageStreamProcessor(enabled=False)) == []


@BACKENDS
def test_the_callers_words_stay_verbatim_beside_a_command(backend):
    """Case guard-15."""

    async def main():
        client = Client()
        async with open_session(client, MessageStreamProcessor(), client.close, verbatim=True) as session:
            await session.put("/compact", own=True)
            await everything(session.send("/compact"))
        return [(message["message"]["content"], message.get("client_composed")) for message in client.prompts]

    assert anyio.run(main, backend=backend) == [("/compact", None), ("/compact", True)]


# -- with a steward ----------------------------------------------------------------------------------------------------


RESTARTED = SessionRestarted("s1", "s2", "threshold", 1, checkpoint=True)


class SessionSupervisor:
    """Does what a test says: `before(session, prompt)` and `after(session, result)` are coroutine functions."""

    def __init__(self, before=None, after=None):
        self.session = None
        self._before, self._after = before, after

    def serve(self, session):
        self.session = session

    async def before(self, prompt):
        return prompt if self._before is None else await self._before(self.session, prompt)

    async def prompt_after(self, result):
        return None if self._after is None else await self._after(self.session, result)


@BACKENDS
def test_what_is_due_before_a_prompt_comes_before_it_and_is_not_its_answer(backend):
    async def before(session, prompt):
        await session.put("/compact", own=True)
        assert session.awaits_answer
        await session.answered()
        assert not session.awaits_answer
        return f"{prompt}, please"

    async def test(session, client):
        return await everything(session.send("one")), await everything(session.send("two"))

    first, second = run(backend, test, steward=SessionSupervisor(before))
    assert words(first) == ["/compact", "ResultMessage", "one, please", "ResultMessage"]
    assert words(second) == ["/compact", "ResultMessage", "two, please", "ResultMessage"]


@BACKENDS
def test_nobody_waits_for_the_answer_of_a_cli_that_has_ended(backend):
    async def before(session, prompt):
        await session.put("/compact", own=True)
        await session.answered()
        return prompt

    async def test(session, client):
        return await everything(session.send("one"))

    messages = run(
        backend,
        test,
        lambda: Client(lambda prompt, uuid: [said(prompt), Client.END]),
        steward=SessionSupervisor(before),
    )
    assert words(messages) == ["/compact"]


@BACKENDS
def test_a_turn_that_was_cut_goes_on_in_the_fresh_session(backend):
    """The cut turn's result is no answer; what was read of the old session is not lost."""
    fresh = Client(lambda prompt, uuid: [said(prompt), result(uuid)])

    async def prompt_after(session, result):
        if session.client is fresh:
            return None
        await session.leave()
        await session.enter(fresh, RESTARTED)
        return "go on"

    async def test(session, client):
        messages = await everything(session.send("one"))
        assert session.client is fresh
        return messages, list(client.done)

    messages, done = run(backend, test, last=fresh, steward=SessionSupervisor(after=prompt_after))
    assert words(messages) == ["one", "SessionRestarted", "go on", "ResultMessage"]
    assert done == ["connect", "query", "disconnect"]


@BACKENDS
def test_a_client_that_ended_for_another_does_not_end_the_session(backend):
    fresh = Client(lambda prompt, uuid: [said(prompt), result(uuid)])

    async def before(session, prompt):
        if session.client is not fresh:
            await session.leave()
            await session.enter(fresh, RESTARTED)
        return prompt

    def broken():
        made = Client()
        made.put(said("last words"), ConnectionError("gone"))
        return made

    async def test(session, client):
        await anyio.wait_all_tasks_blocked()
        return await everything(session.send("one"))

    messages = run(backend, test, broken, last=fresh, steward=SessionSupervisor(before))
    assert words(messages) == ["last words", "SessionRestarted", "one", "ResultMessage"]


@BACKENDS
def test_whoever_asks_is_noted_before_the_prompt_goes_out(backend):
    noted = []

    async def main():
        client = Client()

        def asked():
            noted.append(len(client.prompts))

        async with open_session(client, MessageStreamProcessor(), client.close, asked=asked) as session:
            for prompt in ("one", "two"):
                await everything(session.send(prompt))

    anyio.run(main, backend=backend)
    assert noted == [0, 1]


@BACKENDS
def test_the_cli_is_asked_why_a_request_is_not_as_projected(backend):
    def counted(identity, tokens):
        usage = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": tokens}
        block = [TextBlock("so")]
        return sdk_messages.build(
            AssistantMessage,
            content=block,
            model="claude-sonnet-4-5",
            usage=usage,
            message_id=identity,
            session_id="s1",
        )

    async def test(session, client):
        heard = []
        session._processor.alarm_observers.append(heard.append)
        await anyio.wait_all_tasks_blocked()
        await everything(session.send("one"))
        await anyio.wait_all_tasks_blocked()
        return len(client._query.asked), [each.cause for each in heard], session._processor

    messages = [started(), counted("a", 50_000), counted("b", 90_000)]
    times, causes, processor = run(backend, test, lambda: asking(300_000, 300_000, messages=messages))
    assert (times, causes) == (2, ["unexplained"])
    assert processor.asks_why is None, "the session that it belonged to is over"
