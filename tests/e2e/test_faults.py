"""What happens to an agent when its archive cannot be written: nothing, and somebody is told."""

import logging
import os
import resource
import signal
import subprocess
import sys
import threading

import pytest

from mala_context import instrument
from mala_context.agent.archiving import sessions
from mala_context.archive import writer
from tests.helpers.variants import variants

from .driving import Watch, check_private, check_whole, outcomes, prose, triggers, turn

PROMPTS = ("one", "/compact", "two")
SCRIPT = [prose(6_000), "After."]


async def play(runtime):
    async with runtime.session() as session:
        for prompt in PROMPTS:
            await turn(session, prompt)
        return session.context.session_id


def complaints(caplog, level=logging.WARNING):
    said = [record for record in caplog.records if record.levelno >= level]
    counts = ("than projected", "it grew the context")  # come of the scripted API's own way to count
    return [record for record in said if not any(words in record.getMessage() for words in counts)]


def files_below(*places):
    return [os.path.join(place, name) for root in places for place, _, names in os.walk(root) for name in names]


@pytest.mark.parametrize("home", variants([None, "relative", "", "/", "~/.config", "gone"], default=2))
async def test_no_home(mala_api, mala_options, mala_project, monkeypatch, caplog, tmp_path, home):
    api = mala_api(SCRIPT)
    options = mala_options(api)
    for name in ("MALA_RUNS_DIR", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    if home is None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 17)  # a user without an entry in passwd
    else:
        monkeypatch.setenv("HOME", str(tmp_path / home) if home == "gone" else home)
    monkeypatch.chdir(mala_project)
    runtime = instrument(options)
    watch = Watch(runtime, api)
    await play(runtime)
    watch.check(2)
    watch.check_estimate()
    (record,) = complaints(caplog)
    assert record.levelno == logging.WARNING
    assert "MALA_RUNS_DIR" in record.getMessage()
    assert os.listdir(mala_project) == []
    assert not (tmp_path / "gone").exists()


async def test_an_empty_variable_is_skipped_for_the_next_place(
    mala_api, mala_options, mala_home, monkeypatch, caplog, tmp_path
):
    api = mala_api(SCRIPT)
    options = mala_options(api)
    monkeypatch.setenv("MALA_RUNS_DIR", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    runtime = instrument(options)
    session_id = await play(runtime)
    assert runtime.archive.location.startswith(str(tmp_path / "config" / "mala" / "runs"))
    check_whole(runtime.archive, mala_home, session_id)
    assert complaints(caplog) == []


async def test_a_place_that_cannot_be_written(mala_api, mala_options, mala_home, mala_runs, caplog):
    """Below a regular file not even root can write; once it is gone, the next archive holds everything."""
    api = mala_api(SCRIPT)
    runtime = instrument(mala_options(api))
    watch = Watch(runtime, api)
    mala_runs.write_text("in the way")
    async with runtime.session() as session:
        await turn(session, "one")
        await turn(session, "/compact")
        said = complaints(caplog)
        assert [record.levelno for record in said] == [logging.WARNING]
        assert str(mala_runs) in said[0].getMessage()
        mala_runs.unlink()
        await turn(session, "two")
        session_id = session.context.session_id
    watch.check(2)
    watch.check_estimate()
    assert complaints(caplog) == said
    assert triggers(runtime.archive, session_id) == ["session_end"]
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


async def test_a_disk_that_is_full(mala_api, mala_options, mala_home, mala_runs, caplog):
    """A limit on the size of files stands in for a full disk; the CLI runs already and is not held to it."""
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    api = mala_api(SCRIPT)
    runtime = instrument(mala_options(api))
    watch = Watch(runtime, api)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with runtime.session() as session:
        await turn(session, "one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        try:
            await turn(session, "/compact")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        errors = complaints(caplog, logging.ERROR)
        assert len(errors) == 1
        assert "could not write" in errors[0].getMessage()
        left = [path for path in files_below(mala_runs) if path.endswith(".jsonl") and "manifest" not in path]
        assert left == []
        await turn(session, "two")
        session_id = session.context.session_id
    watch.check(2)
    watch.check_estimate()
    assert triggers(runtime.archive, session_id) == ["session_end"]
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", None)]
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


@pytest.fixture
def gate(monkeypatch):
    """What a hanging disk waits for."""
    event, sync = threading.Event(), os.fsync

    def hang(descriptor):
        assert event.wait(60)
        sync(descriptor)

    monkeypatch.setattr(writer.os, "fsync", hang)
    return event


async def test_a_disk_that_hangs_for_a_while(mala_api, mala_options, mala_home, mala_runs, gate, monkeypatch, caplog):
    api = mala_api([prose(6_000), "Between.", "After."])
    runtime = instrument(mala_options(api))
    watch = Watch(runtime, api)
    monkeypatch.setattr(sessions, "ANSWER_SECONDS", 0.1)
    async with runtime.session() as session:
        for prompt in ("one", "/compact", "two", "/compact"):
            await turn(session, prompt)
        assert len(complaints(caplog)) == 2
        gate.set()
        await turn(session, "three")
        session_id = session.context.session_id
    watch.check(3)
    watch.check_estimate()
    assert triggers(runtime.archive, session_id)[0] == "manual"
    assert [(trigger, outcome) for trigger, outcome, _ in outcomes(runtime.archive, session_id)] == [
        ("manual", "compacted")
    ] * 2
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


async def test_a_hook_that_the_cli_gives_up_on_goes_on_writing(mala_api, mala_options, mala_home, mala_runs, gate):
    api = mala_api(SCRIPT)
    runtime = instrument(mala_options(api))
    watch = Watch(runtime, api)
    for matcher in runtime.options.hooks["PreCompact"]:
        matcher.timeout = 1
    async with runtime.session() as session:
        await turn(session, "one")
        await turn(session, "/compact")
        gate.set()
        await turn(session, "two")
        session_id = session.context.session_id
    watch.check(2)
    watch.check_estimate()
    assert triggers(runtime.archive, session_id)[0] == "manual"
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0)]
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


HANGING = """
import asyncio, os, sys, threading
from mala_context import instrument
from mala_context.agent.archiving import sessions
from mala_context.testing import ScriptedMessagesAPI

sessions.ANSWER_SECONDS = sessions._CLOSE_SECONDS = 0.1

def hang(descriptor):
    print("hanging", flush=True)
    threading.Event().wait()

async def main():
    with ScriptedMessagesAPI(["One.", "After."]) as api:
        runtime = instrument(api.options(cwd=sys.argv[1], home=sys.argv[2]))
        async with runtime.session() as session:
            for prompt in ("one", "/compact", "two"):
                if prompt == "/compact":
                    os.fsync = hang
                async for message in session.send(prompt):
                    pass
            print("tokens", session.context.tokens == api.last.tokens, flush=True)
    print("closed", flush=True)

asyncio.run(main())
"""


@pytest.mark.long
def test_a_process_that_ends_while_an_archive_hangs(mala_project, mala_home, mala_runs):
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING, str(mala_project), str(mala_home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out = [process.stdout.readline().strip() for _ in range(3)]
        assert out == ["hanging", "tokens True", "closed"], process.communicate(timeout=10)
        assert process.wait(timeout=5) == 0  # far below the time for which the disk would hang
    finally:
        process.kill()
        process.communicate()
    check_private(mala_runs)
    assert [path for path in files_below(mala_runs) if path.endswith("_transcript.jsonl")] == []
