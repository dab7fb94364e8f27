"""What is fuzzed: one function for each thing that reads what others wrote.

Each takes bytes and returns; it raises where our promise is broken: an error that is not documented, a value that
cannot be, a number that is no number. `run.py` steers them by coverage, `test_targets.py` tries what was found.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from mala_context import ContextTracker, MessageStreamProcessor
from mala_context.agent.claude_code import statusline
from mala_context.agent.claude_code.command_hooks import answer_hook
from mala_context.archive import manifests
from mala_context.archive.codecs import Codec
from mala_context.config import parse
from mala_context.errors import ArchiveError, ConfigError
from mala_context.tracking.events import Event
from mala_context.tracking.readers import read_openai, read_row, read_stream_json
from mala_context.tracking.snapshot import ContextSnapshot
from tests.fuzz.shapes import Shapes, values

_NAMES = (
    "AssistantMessage UserMessage SystemMessage ResultMessage StreamEvent TaskStartedMessage ConversationResetMessage"
    " SomethingNewMessage"
)
_CLASSES = _NAMES.split()


def sane(snapshot: ContextSnapshot) -> None:
    """Check that a snapshot's numbers are numbers that can be."""
    for name in ("tokens", "output_tokens", "projected", "cli_estimate", "estimate", "tokens_left"):
        value = getattr(snapshot, name)
        assert value is None or (isinstance(value, int) and value >= 0), (name, value)
    assert snapshot.window > 0, snapshot.window
    json.dumps(snapshot.as_dict())


def _track(read: Callable[[Any], Iterable[Event]], data: bytes) -> None:
    tracker = ContextTracker()
    for value in values(data):
        for event in read(value):
            snapshot = tracker.apply(event)
            if snapshot is not None:
                sane(snapshot)
    sane(tracker.snapshot())
    for each in tracker.agents().values():
        sane(each)
    tracker.estimates()


def rows(data: bytes) -> None:
    """Transcript rows into a tracker."""
    _track(read_row, data)


def stream_json(data: bytes) -> None:
    """Lines of stream-json into a tracker."""
    _track(read_stream_json, data)


def openai(data: bytes) -> None:
    """Answers of an OpenAI-compatible server into a tracker."""
    _track(read_openai, data)


def sdk(data: bytes) -> None:
    """Objects with the names of the SDK's messages, whatever is in them, through the processor."""
    shapes = Shapes(data)
    processor = MessageStreamProcessor()
    while shapes.more():
        name = _CLASSES[shapes.byte() % len(_CLASSES)]
        fields = {shapes.key(): shapes.value() for _ in range(shapes.byte() % 12)}
        processor.process(type(name, (), fields)())
    sane(processor.tracker.snapshot())


def status_line(data: bytes) -> None:
    """Claude Code's JSON for the status line: one line, whatever it is."""
    for value in values(data):
        if isinstance(value, dict):
            gauge = statusline.measure({**value, "transcript_path": None}, {})
            said = statusline.line(gauge, color=False)
            assert said.isprintable(), said
            json.dumps(gauge.as_dict())


def hook(data: bytes) -> None:
    """A command hook's input: an object as the answer, and never an error."""
    with tempfile.TemporaryDirectory() as folder:
        for value in values(data) or [None]:
            path = os.path.join(folder, "input")
            with open(path, "wb") as file:
                file.write(data if value is None else json.dumps(value).encode())
            kept, given = os.dup(0), os.open(path, os.O_RDONLY)
            try:
                os.dup2(given, 0)
                answer, words = answer_hook([], {"MALA_RUNS_DIR": os.path.join(folder, "runs"), "HOME": folder})
            finally:
                os.dup2(kept, 0)
                os.close(kept)
                os.close(given)
            assert isinstance(json.loads(answer), dict)
            assert "\n" not in words.strip()


def mala_yaml(data: bytes) -> None:
    """A configuration, of which all mistakes are one error."""
    try:
        parse(data.decode("utf-8", "replace"))
    except ConfigError as error:
        str(error)  # the error is what people read


def manifest(data: bytes) -> None:
    """A manifest of an archive: what is no row is counted, what is one is written again as it was."""
    read = manifests.parse(data)
    read.pieces()
    read.open_piece()
    again = manifests.parse(manifests.dump(read.rows))
    assert len(again.rows) == len(read.rows)


def packed(data: bytes) -> None:
    """A packed piece: bytes or an error, and never more memory than a block."""
    reader = Codec().reader(io.BytesIO(data))
    buffer = bytearray(65_536)
    try:
        for _ in range(4_096):
            if not reader.readinto(buffer):
                break
    except ArchiveError:
        pass
    finally:
        reader.close()


def transcript(data: bytes) -> None:
    """A recorded file through the whole of `replay`: a record, however little of it can be read."""
    from mala_context.analysis.replay import replay

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "11111111-2222-3333-4444-555555555555.jsonl")
        lines = [json.dumps(value).encode() for value in values(data)] if not data.startswith(b"{") else [data]
        with open(path, "wb") as file:
            file.write(b"\n".join(lines))
        for record in replay([path]):
            json.dumps(record.as_dict(), allow_nan=False)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (rows, stream_json, openai, sdk, status_line, hook, mala_yaml, manifest, packed, transcript)
}
"""What can be fuzzed, by name."""
