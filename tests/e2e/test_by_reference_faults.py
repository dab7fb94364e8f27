"""Doubt means the CLI: whatever is wrong with an answer, the CLI compacts as ever and the turn goes on."""

import errno
import json
import os
import time

import pytest

from mala_context import instrument
from mala_context.agent.reference import answer as answers
from mala_context.agent.reference import compactor
from mala_context.archive import full_outputs, writer
from mala_context.config import parse
from mala_context.testing import summary, too_long, tool

from .driving import results, turn

CONFIG = "context:\n  compaction: reference\n"
RULE = "Never use tabs."
SUMMARY = "All of it was counted."


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def said(words):
    return {"content": [{"type": "text", "text": words}]}


def answering(given):
    """Make a fault of which the mod is given this instead of our answer."""

    def fault(patch, tmp_path):
        async def compact(self, request):
            return given(request) if callable(given) else given

        patch.setattr(compactor.ByReference, "compact", compact)

    return fault


def asked(**changes):
    """Make a fault of which we are asked something else than the CLI has."""

    def fault(patch, tmp_path):
        real = compactor.ByReference.compact

        async def compact(self, request):
            return await real(self, {**request, **changes})

        patch.setattr(compactor.ByReference, "compact", compact)

    return fault


def row(**changes):
    """Make a fault of which the first row is of another shape."""

    def fault(patch, tmp_path):
        real = compactor.ByReference.compact

        async def compact(self, request):
            first, *rest = request["messages"]
            return await real(self, {**request, "messages": [{**first, **changes}, *rest]})

        patch.setattr(compactor.ByReference, "compact", compact)

    return fault


def replaced(where, name, what):
    def fault(patch, tmp_path):
        patch.setattr(where, name, what)

    return fault


def kept_otherwise(data):
    """Make a fault of which the full text on the disk is not what was written."""

    def fault(patch, tmp_path):
        real = full_outputs.Spills.write

        def write(self, session, given, transcript=None):
            path = real(self, session, given, transcript)
            with open(path, "wb") as file:
                file.write(data(given))
            return path

        patch.setattr(full_outputs.Spills, "write", write)

    return fault


def gone_after_writing(patch, tmp_path):
    real = full_outputs.Spills.write

    def write(self, session, given, transcript=None):
        path = real(self, session, given, transcript)
        os.unlink(path)
        return path

    patch.setattr(full_outputs.Spills, "write", write)


def slow_archive(patch, tmp_path):
    real = answers.archive_from_hook
    patch.setattr(compactor, "SECONDS", 0.2)

    def late(*given, **known):
        time.sleep(0.6)
        return real(*given, **known)

    patch.setattr(answers, "archive_from_hook", late)


def stuck_loop(patch, tmp_path):
    async def compact(self, request):
        time.sleep(3.0)  # noqa: ASYNC251  # the fault itself
        return said("{}")

    patch.setattr(compactor.ByReference, "compact", compact)


def late_answer(patch, tmp_path):
    import anyio

    async def compact(self, request):
        await anyio.sleep(4.0)
        return said("{}")

    patch.setattr(compactor.ByReference, "compact", compact)


def no_place(patch, tmp_path):
    real = answers.answer

    def answer(*given):
        (tmp_path / "file").write_text("")
        patch.setenv("MALA_RUNS_DIR", str(tmp_path / "file"))
        return real(*given)

    patch.setattr("mala_context.agent.archiving.sessions.answer", answer)


def mod(change):
    """Make a fault of the mod's own code."""

    def fault(patch, tmp_path):
        with open(compactor._SOURCE, encoding="utf-8") as file:
            code = change(file.read())
        (tmp_path / "register.ts").write_text(code)
        patch.setattr(compactor, "_SOURCE", str(tmp_path / "register.ts"))

    return fault


async def failing(*_):
    raise RuntimeError("a fault of ours")


def wrong(*_, **__):
    raise RuntimeError("a fault of ours")


ROWS = "\n".join(["x" * 400] * 400)
FAULTS = {
    "the disk is full at the archive": replaced(writer.LocalFiles, "publish", full),
    "the disk is full at the full text": replaced(full_outputs, "publish", full),
    "the full text is cut": kept_otherwise(lambda data: data[:-1]),
    "the full text is longer": kept_otherwise(lambda data: data + b"x"),
    "the full text has another byte": kept_otherwise(lambda data: b"X" + data[1:]),
    "the full text is empty": kept_otherwise(lambda _: b""),
    "the full text is gone": gone_after_writing,
    "the archive takes too long": slow_archive,
    "there is no place for archives any more": no_place,
    "nothing was archived": replaced(answers, "archive_from_hook", lambda *_, **__: None),
    "the archive fails": replaced(answers, "archive_from_hook", wrong),
    "the builder fails": replaced(answers, "build", wrong),
    "the reader fails": replaced(answers, "read_conversation", wrong),
    "the tool fails": replaced(compactor.ByReference, "compact", failing),
    "the event loop stands still": stuck_loop,
    "the tool answers too late": late_answer,
    "the answer is no JSON": answering(said("{")),
    "the answer is JSON of another kind": answering(said("null")),
    "the answer is empty": answering({"content": []}),
    "the answer is an error": answering({"content": [{"type": "text", "text": "no"}], "is_error": True}),
    "the rows are no list": answering(said('{"rows": "x"}')),
    "there are no rows": answering(said('{"rows": []}')),
    "a row is an empty text": answering(said('{"rows": ["", "x"]}')),
    "a row is a number that none has": answering(said('{"rows": [4711]}')),
    "a row is no whole number": answering(said('{"rows": [0.5]}')),
    "a row is an object": answering(said('{"rows": [{"role": "system"}]}')),
    "the trigger is not known": asked(trigger="idle"),
    "the session's id is a path": asked(session="../x"),
    "the subagent's id is a path": asked(agent="../x"),
    "the subagent has no transcript": asked(agent="nobody"),
    "the transcript is a directory": asked(transcript=os.sep, session="nobody"),
    "there are no messages": asked(messages=[]),
    "the messages are no list": asked(messages={"role": "user"}),
    "a message is of an unknown role": row(role="system"),
    "a message has no text": row(text=None),
    "a tool call is of an unknown shape": row(role="assistant", toolUses=[{"name": "Bash"}]),
    "a user calls a tool": row(toolUses=[{"tool": "Bash", "input": {}}]),
    "what stays is more than half of what was there": asked(messages=[{"role": "user", "text": ROWS, "handle": "x"}]),
    "the mod has a fault of syntax": mod(lambda code: code + "\n}"),
    "the mod has a fault that its check finds": mod(lambda code: code + "\nimport('./other.ts')\n"),
    "the mod throws": mod(lambda code: code.replace("const { rows } =", "throw new Error('x'); const { rows } =")),
    "the mod calls another server": mod(lambda code: code.replace("'mala_context_reference'", "'nobody'")),
    "the mod's call is refused": mod(
        lambda code: code.replace("$.mcp.call(SERVER, 'compact'", "$.mcp.call(SERVER, 'no'")
    ),
    "the mod does not know the switch": mod(lambda code: code.replace("'MALA_CONTEXT_REFERENCE'", "'NOTHING'")),
}


def test_there_are_enough_of_them():
    assert len(FAULTS) >= 25


SOONER = ("the disk is full at the full text", "the tool fails", "a row is an object", "there are no messages")
"""Those that are tried in every run; the others take about a second each."""


@pytest.mark.parametrize(
    "name", [name if name in SOONER else pytest.param(name, marks=pytest.mark.long) for name in FAULTS]
)
async def test_the_cli_compacts_and_the_turn_goes_on(mala_api, mala_options, monkeypatch, tmp_path, name):
    FAULTS[name](monkeypatch, tmp_path)
    script = [
        "Noted.",
        tool("Bash", command="seq 3000", description="x"),
        too_long(250_000, 200_000),
        "Done.",
        "After.",
    ]
    api = mala_api(script, compactions=[summary(SUMMARY)])
    runtime = instrument(mala_options(api), config=parse(CONFIG))
    async with runtime.session() as session:
        turns = [await turn(session, prompt) for prompt in (RULE, "count", "go on")]
    assert [request.kind for request in api.requests if request.kind != "count_tokens"] == [
        *["main"] * 3,
        "compaction",
        *["main"] * 2,
    ]
    assert [result.result for messages in turns for result in results(messages)] == ["Noted.", "Done.", "After."]
    assert not any(result.is_error for messages in turns for result in results(messages))
    assert SUMMARY in json.dumps(api.main_requests[-1].body)
    assert runtime.tracker.snapshot().compactions == 1


async def test_too_much_for_its_share_of_the_window(mala_api, mala_options):
    script = ["Noted.", tool("Bash", command="seq 3000", description="x"), too_long(250_000, 200_000), "Done."]
    api = mala_api(script, compactions=[summary(SUMMARY)])
    runtime = instrument(mala_options(api), config=parse(CONFIG + "  window: 2000\n  reference: {budget: 20000}\n"))
    async with runtime.session() as session:
        turns = [await turn(session, prompt) for prompt in (RULE + " x" * 2_000, "count")]
    assert len([request for request in api.requests if request.kind == "compaction"]) == 1
    assert results(turns[-1])[-1].result == "Done."
