"""Running an agent from the command line: errors in one line, signals, and what is left as it was."""

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import anyio.lowlevel
import pytest
from claude_agent_sdk import CLIConnectionError, CLINotFoundError, ProcessError

from mala_context.cli.agent_runner import (
    AgentUnusableError,
    ended_like_ctrl_c,
    first_line,
    load_sdk,
    run_agent,
    terminal_reason,
    why_failed,
)
from tests.helpers import sdk_messages


async def echo(*values):
    await anyio.lowlevel.checkpoint()
    return values


def raising(error):
    async def main():
        raise error

    return main


def test_the_result_comes_back():
    assert run_agent(echo, 1, 2) == (1, 2)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CLINotFoundError("Not here.\nInstall it", "/bin/no"), "the Claude Code CLI was not found: Not here."),
        (CLIConnectionError("no pipe"), "the Claude Code CLI failed: no pipe"),
        (
            ProcessError("It fell", exit_code=7, stderr="long\nstory"),
            "the Claude Code CLI failed: It fell (exit code: 7)",
        ),
    ],
)
def test_the_sdks_errors_become_one_line(error, words):
    with pytest.raises(AgentUnusableError) as raised:
        run_agent(raising(error))
    assert str(raised.value) == words


def test_other_errors_stay():
    with pytest.raises(ZeroDivisionError):
        run_agent(raising(ZeroDivisionError()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_agent_in_good_order(number):
    ended = []

    async def main():
        try:
            os.kill(os.getpid(), number)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        run_agent(main)
    assert ended == [number]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_job_in_the_background(number):
    """A shell without job control starts these with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), ended_like_ctrl_c():
            os.kill(os.getpid(), number)
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupted:
    """Runs a coroutine and raises SIGINT as it goes on for the n-th time, if it does that often."""

    def __init__(self, coroutine, number):
        self.coroutine, self.number, self.count = coroutine, number, 0

    def __await__(self):
        inner = self.coroutine.__await__()
        go_on, value = inner.send, None
        while True:
            self.count += 1
            if self.count == self.number:
                signal.raise_signal(signal.SIGINT)
            try:
                waits_for = go_on(value)
            except StopIteration as end:
                return end.value
            try:
                yield waits_for
                go_on, value = inner.send, None
            except BaseException as error:  # noqa: BLE001 - the coroutine's own to handle
                go_on, value = inner.throw, error


async def talk(child, ended):
    """Talk to a child and leave it as the SDK leaves its own: it gets the end of its input and is waited for."""
    try:
        for _ in range(3):
            await child.stdin.send(b"word")
            assert await child.stdout.receive() == b"word"
    finally:
        with anyio.CancelScope(shield=True):
            await child.stdin.aclose()
            ended.append(await child.wait())
            await child.stdout.aclose()


def test_a_child_is_waited_for_whenever_ctrl_c_comes():
    ended = []

    async def main(number):
        await Interrupted(talk(await anyio.open_process(["/bin/cat"]), ended), number)
        return "not interrupted"

    interrupted = 0
    while True:
        try:
            assert run_agent(main, interrupted + 1) == "not interrupted"  # it went on less often than that
            break
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted > 4  # at each word, and as it is left
    assert ended == [0] * (interrupted + 1)


@pytest.mark.parametrize("when", ["before the loop", "after the result"])
def test_ctrl_c_outside_of_the_session_counts_too(when, monkeypatch):
    run = anyio.run

    def interrupted(main):
        if when == "before the loop":
            signal.raise_signal(signal.SIGINT)
        result = run(main)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(anyio, "run", interrupted)
    reached = []

    async def main():
        await anyio.lowlevel.checkpoint()
        reached.append(when)

    with pytest.raises(KeyboardInterrupt):
        run_agent(main)
    assert reached == ([] if when == "before the loop" else [when])


def test_ctrl_c_comes_before_what_it_breaks():
    """A terminal's reaches the CLI too, which then ends under the SDK."""

    async def main():
        signal.raise_signal(signal.SIGINT)
        raise CLIConnectionError("the CLI ended")

    with pytest.raises(KeyboardInterrupt):
        run_agent(main)


def test_a_second_ctrl_c_waits_for_nothing():
    async def main():
        try:
            signal.raise_signal(signal.SIGINT)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                signal.raise_signal(signal.SIGINT)
                await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run_agent(main)


def test_handlers_are_put_back():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    load_sdk()
    run_agent(echo)
    assert [signal.getsignal(number) for number in numbers] == before


def test_another_thread_leaves_signals_alone():
    results = []

    def work():
        load_sdk()
        results.append(run_agent(echo, 3))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert results == [(3,)]


def test_an_interrupt_while_the_sdk_loads_ends_the_process_at_once(tmp_path):
    (tmp_path / "claude_agent_sdk.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()\n"
    )
    script = "import atexit\nfrom mala_context.cli.agent_runner import load_sdk\n"
    script += "atexit.register(print, 'late')\nload_sdk()\n"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.fspath(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert done.stderr == "mala-context: interrupted\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [("\n  one \ntwo", "one"), ("", "it gave no reason"), (None, "it gave no reason"), ("one", "one")],
)
def test_first_line(text, line):
    assert first_line(text) == line


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"result": "Prompt is too long", "terminal_reason": "prompt_too_long", "errors": ["a"]}, "Prompt is too long"),
        ({"errors": ["a", 7], "terminal_reason": "model_error"}, "a; 7"),
        ({"terminal_reason": "model_error"}, "model_error"),
        ({"subtype": "error_during_execution"}, "error_during_execution"),
    ],
)
def test_the_first_words_that_there_are(fields, words):
    assert why_failed(sdk_messages.result(is_error=True, **fields)) == words


def test_an_sdk_without_the_fields():
    old = SimpleNamespace(result=None, subtype="error_max_turns")
    assert terminal_reason(old) is None
    assert why_failed(old) == "error_max_turns"


def test_the_reason():
    assert terminal_reason(sdk_messages.result(terminal_reason="completed")) == "completed"
    assert terminal_reason(sdk_messages.result()) is None
    assert terminal_reason(None) is None
