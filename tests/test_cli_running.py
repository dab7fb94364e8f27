"""Running an agent from the command line: errors in one line, signals, and what is left as it was."""

import os
import signal
import subprocess
import sys
import threading

import anyio.lowlevel
import pytest
from claude_agent_sdk import CLIConnectionError, CLINotFoundError, ProcessError

from mala_context.cli.running import AgentUnusableError, first_line, load_sdk, run_agent


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
    script = (
        "import atexit\nfrom mala_context.cli.running import load_sdk\natexit.register(print, 'late')\nload_sdk()\n"
    )
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
