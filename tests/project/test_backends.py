"""What is public and asynchronous, on asyncio and on trio; what has a file of its own for both is not here again."""

import json
import pathlib

import anyio
import pytest

from mala_context import MessageStreamProcessor, TranscriptArchive, make_precompact_hook
from tests.helpers.sdk_stream import SESSION, assistant, init

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
SID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


async def source(messages):
    for message in messages:
        await anyio.lowlevel.checkpoint()
        yield message


@BACKENDS
def test_a_stream_is_passed_on_and_may_be_left(backend):
    messages = [init(), assistant("m1", 5000), assistant("m2", 6000)]

    async def main():
        processor = MessageStreamProcessor()
        whole = [message async for message in processor.stream(source(messages))]
        given = source(messages)
        left = processor.stream(given)
        first = await anext(left)
        await left.aclose()
        await given.aclose()  # it stays the caller's
        return whole, first, processor.tracker.snapshot()

    whole, first, snapshot = anyio.run(main, backend=backend)
    assert [id(message) for message in whole] == [id(message) for message in messages]
    assert first is messages[0]
    assert snapshot.session_id == SESSION


@BACKENDS
def test_the_archives_hook_archives(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    transcript = tmp_path / f"{SID}.jsonl"
    rows = [{"type": "user", "uuid": "u", "sessionId": SID, "message": {"role": "user", "content": "hello"}}]
    transcript.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {
        "hook_event_name": "PreCompact",
        "session_id": SID,
        "transcript_path": str(transcript),
        "cwd": str(tmp_path),
        "trigger": "auto",
    }

    async def main():
        return await make_precompact_hook(tmp_path)(found, None, {"signal": None})

    assert anyio.run(main, backend=backend) == {}
    (directory,) = pathlib.Path(tmp_path / "runs").glob("*/archives")
    archive = TranscriptArchive(str(directory))
    assert [piece.row["trigger"] for piece in archive.pieces(SID) if piece.row] == ["auto"]
