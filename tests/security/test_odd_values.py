"""A row may hold anything where a command expects a text, a number, a list or an object: no command ends for it."""

import copy
import json

import pytest
from click.testing import CliRunner

from mala_context import ContextTracker
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from mala_context.tracking.readers import read_row
from mala_context.tracking.text_counts import pieces

SID = "6d616c61-0000-4000-8000-00000000000d"
ODD = ({}, [], {"a": []}, [{}], 7, -1.5, None, True, "x")
USAGE = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 20_000,
    "output_tokens": 9,
    "iterations": [{"type": "message", "input_tokens": 3, "cache_read_input_tokens": 20_000, "output_tokens": 9}],
}
BLOCKS = [
    {"type": "text", "text": "I look at it."},
    {"type": "thinking", "thinking": "Where is it?", "signature": "s"},
    {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/p/a.py"}},
]
RESULT = {
    "type": "tool_result",
    "tool_use_id": "t1",
    "is_error": False,
    "content": [
        {"type": "text", "text": "one line"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "tool_reference", "tool_name": "Bash"},
    ],
}
META = {"trigger": "auto", "preTokens": 22_000, "postTokens": 5_000, "durationMs": 900}
SEGMENT = {"headUuid": "h", "anchorUuid": "a", "tailUuid": "t"}


def answer(**fields):
    message = {"id": "m", "model": "claude-sonnet-4-5", "role": "assistant", "stop_reason": None, "usage": USAGE}
    return {"type": "assistant", "requestId": "r", "message": {**message, "content": BLOCKS}, **fields}


SHAPES = [
    {"type": "user", "message": {"role": "user", "content": "hello"}, "permissionMode": "default"},
    answer(),
    answer(message={**answer()["message"], "usage": {**USAGE, "iterations": []}}, agentId="a1", isSidechain=True),
    {"type": "user", "message": {"role": "user", "content": [RESULT]}, "toolUseResult": {"agentId": "a1", "file": {}}},
    {"type": "attachment", "attachment": {"type": "skill_listing", "content": "skills", "rendered": "skills"}},
    {"type": "attachment", "attachment": {"type": "file", "filename": "/p/a.py", "content": {"file": {"x": "y"}}}},
    {"type": "attachment", "attachment": {"type": "queued_command", "prompt": [{"type": "text", "text": "go on"}]}},
    {"type": "attachment", "attachment": {"type": "deferred_tools_delta", "addedLines": ["a"], "removedNames": ["b"]}},
    {"type": "system", "subtype": "compact_boundary", "compactMetadata": {**META, "preservedSegment": SEGMENT}},
    {
        "type": "user",
        "isCompactSummary": True,
        "message": {"role": "user", "content": "This session is being continued"},
    },
    {
        "type": "user",
        "message": {"role": "user", "content": "<local-command-stdout>27k/200k tokens (14%)</local-command-stdout>"},
    },
    {
        "type": "assistant",
        "isApiErrorMessage": True,
        "error": "invalid_request",
        "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "Prompt is too long"}]},
    },
    {"type": "system", "subtype": "init", "model": "claude-sonnet-4-5", "session_id": SID},
    {
        "type": "result",
        "subtype": "success",
        "usage": USAGE,
        "modelUsage": {"claude-sonnet-4-5": {"contextWindow": 200_000}},
        "num_turns": 1,
    },
    {"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m", "usage": USAGE}}},
    {"type": "progress", "data": {"type": "agent_progress", "message": {"type": "assistant", "message": {"id": "q"}}}},
    {"type": "summary", "summary": "What it was about", "leafUuid": "u"},
    {"type": "queue-operation", "operation": "enqueue", "content": "go on"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {}}},
]
ABOUT = {
    "sessionId": SID,
    "isSidechain": False,
    "timestamp": "2026-11-01T12:00:00.000Z",
    "cwd": "/p",
    "version": "2.1.332",
    "gitBranch": "main",
}


def places(value, path=()):
    """Every place in a value below its top."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def odd_rows():
    """Each shape as it is, and with every place of it replaced by every odd value in turn."""
    number = 0
    for shape in SHAPES:
        whole = {**ABOUT, **shape}
        for path, odd in [(None, None), *((path, odd) for path in places(whole) for odd in ODD)]:
            number += 1
            row = copy.deepcopy({**whole, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number > 1 else None})
            if path is not None:
                inside = row
                for key in path[:-1]:
                    inside = inside[key]
                inside[path[-1]] = odd
            yield row


@pytest.fixture(scope="module")
def rows():
    return list(odd_rows())


def test_the_tracker(rows):
    tracker = ContextTracker()
    for row in rows:
        for event in read_row(row):
            if (snapshot := tracker.apply(event)) is not None:
                json.dumps(snapshot.as_dict())
    for row in rows:
        fresh = ContextTracker()
        for event in read_row(row):
            fresh.apply(event)
        json.dumps(fresh.snapshot().as_dict())
        fresh.estimates()


@pytest.mark.parametrize("kind", ["user", "response", "attachment"])
def test_what_has_a_type_of_another_kind_has_no_size(kind):
    for odd in ODD[:-1]:
        block = {"type": odd, "text": "abc", "content": [{"type": odd, "text": "abc"}]}
        assert pieces(kind, block if kind == "attachment" else [block], {}) == []
        result = {**RESULT, "content": [block]}
        assert sum(piece.counts.chars for piece in pieces("user", [result], {})) == 0


def odd_records(data):
    """A file of JSON lines as it is, and behind it each line with every place replaced by every odd value in turn."""
    yield data
    for line in data.splitlines():
        whole = json.loads(line)
        for path in places(whole):
            for odd in ODD:
                row = copy.deepcopy(whole)
                inside = row
                for key in path[:-1]:
                    inside = inside[key]
                inside[path[-1]] = odd
                yield json.dumps(row).encode() + b"\n"


class Machine:
    """A machine with the odd session, archived."""

    def __init__(self, root, rows):
        folder = root / "claude" / "projects" / "-p"
        folder.mkdir(parents=True)
        self.path = folder / f"{SID}.jsonl"
        self.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (root / "mala.yaml").write_text("context:\n  window: 200000\n")
        self.root = root
        self.archives = root / "runs" / str(root).replace("/", "-") / "archives"
        TranscriptArchive(self.archives).archive(str(self.path), SID)

    def run(self, monkeypatch, words, given=None):
        monkeypatch.setenv("MALA_RUNS_DIR", str(self.root / "runs"))
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(self.root / "claude"))
        monkeypatch.setenv("HOME", str(self.root))
        monkeypatch.chdir(self.root)
        return CliRunner().invoke(app, words, input=given, catch_exceptions=False)


@pytest.fixture(scope="module")
def machine(tmp_path_factory, rows):
    return Machine(tmp_path_factory.mktemp("odd"), rows)


COMMANDS = [
    "replay {path} --jobs 1 --format json",
    "replay {path} --jobs 1 --trace",
    "audit {path} --jobs 1 --json",
    "audit {path} --jobs 1 --held-out",
    "simulate {path} --policy mala.yaml",
    "report {path} --jobs 1 -o report.html",
    "watch --once",
    "statusline",
    "archives list",
    "archives verify",
    "archives show {sid}",
    "archives search line",
    "archives cat {sid}",
    "archives lost {sid}",
    "archives export {sid} odd.jsonl --redact",
    "archives restore {sid}",
    "doctor",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command, machine, monkeypatch):
    words = [word.format(path=machine.path, sid=SID) for word in command.split()]
    given = json.dumps({"session_id": SID, "transcript_path": str(machine.path)}) if command == "statusline" else None
    result = machine.run(monkeypatch, words, given)
    assert result.exit_code == 0 or (command == "doctor" and result.exit_code == 1), result.output + result.stderr
    assert "Traceback" not in result.output + result.stderr


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith(("archives", "doctor", "report"))])
def test_commands_on_an_odd_manifest(command, tmp_path, monkeypatch):
    machine = Machine(tmp_path, [{**ABOUT, **shape, "uuid": f"u{n}"} for n, shape in enumerate(SHAPES)])
    (path,) = machine.archives.glob("*.manifest.jsonl")
    path.write_bytes(b"".join(odd_records(path.read_bytes())))
    words = [word.format(path=machine.path, sid=SID) for word in command.split()]
    result = machine.run(monkeypatch, words)
    assert result.exit_code in {0, 1}, result.output + result.stderr
    assert "Traceback" not in result.output + result.stderr
