"""What somebody else wrote takes no more memory than a small multiple of a line, and no stack."""

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest
import zstandard
from click.testing import CliRunner

from mala_context.agent.claude_code.statusline import measure
from mala_context.analysis.audit import collect
from mala_context.analysis.replay import replay
from mala_context.analysis.report import ReportOptions, build_report
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from mala_context.config import parse
from mala_context.errors import ConfigError, MalaContextError
from tests.helpers.variants import variants

SID = "6d616c61-0000-4000-8000-00000000000b"
MEASURED = """
import os, sys
given, *words = sys.argv[1:]
given = os.open(given, os.O_RDONLY)
pid = os.posix_spawn(sys.executable, [sys.executable, *words], os.environ, file_actions=[
    (os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss // (1 if sys.platform == "darwin" else 1024))
"""
"""Starts a program and prints its exit status and its largest memory: what is started counts as much as its parent
has, so the parent is a small one."""
ALL = """
import json, os, resource, sys
from mala_context.cli import main
for words in json.load(sys.stdin):
    sys.argv[1:] = words
    try:
        main()
        status = 0
    except SystemExit as error:
        status = error.code or 0
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform == "darwin" else 1024)
    os.write(2, json.dumps([status, size, words]).encode() + b"\\n")
"""
"""Runs commands one after the other and tells of each the largest memory up to its end."""
SEARCH = """
import asyncio, sys
from mala_context.archive.store import TranscriptArchive
from mala_context.agent.search_tool import HistorySearch
async def main():
    tool = HistorySearch(TranscriptArchive(sys.argv[1]), lambda: sys.argv[2])
    said = "too long"
    while "too long" in said:  # it says so after a while, and goes on
        said = (await tool.answer({"query": "needle"}))["content"][0]["text"]
    return said
sys.exit("needle" not in asyncio.run(main()))
"""
HOOK = str(pathlib.Path(__file__).parents[2] / "hooks" / "hook.py")


def row(kind, number, **fields):
    about = {"type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number > 1 else None}
    about |= {"sessionId": SID, "isSidechain": False, "timestamp": f"2026-11-01T12:00:{number:02d}.000Z", "cwd": "/p"}
    return json.dumps(about | fields).encode() + b"\n"


def answer(number, tokens=20_000, content=()):
    usage = {"input_tokens": 3, "cache_read_input_tokens": tokens, "output_tokens": 9}
    message = {"id": f"m{number}", "model": "claude-sonnet-4-5", "role": "assistant", "usage": usage}
    return row("assistant", number, requestId=f"r{number}", message={**message, "content": list(content)})


def deep(depth, opening="[", closing="]"):
    return (opening * depth + "1" + closing * depth).encode()


def nested(depth, opening="[", closing="]"):
    """A session in which every value that may hold others does so, very deep."""
    result = {"role": "user", "content": [{"type": "tool_result", "content": "DEEP"}]}
    meta = {"trigger": "auto", "preTokens": 22_000, "x": "DEEP"}
    data = b"".join(
        (
            row("user", 1, message={"role": "user", "content": "hello"}),
            answer(2),
            row("user", 3, message=result, toolUseResult="DEEP"),
            answer(4, 21_000, [{"type": "tool_use", "id": "t", "name": "n", "input": "DEEP"}]),
            row("attachment", 5, attachment={"type": "x", "content": "DEEP"}),
            row("system", 6, subtype="compact_boundary", compactMetadata=meta, content="DEEP"),
            row("user", 7, isCompactSummary=True, message={"role": "user", "content": "DEEP"}),
            answer(8, 9_000),
            b'"DEEP"\n',
        )
    )
    return data.replace(b'"DEEP"', deep(depth, opening, closing))


@pytest.mark.parametrize("shape", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("depth", [100, 900, *range(950, 1_002, 10), 5_000, 100_000])
def test_nesting(depth, shape, tmp_path):
    path = tmp_path / f"{SID}.jsonl"
    path.write_bytes(nested(depth, *shape))
    (found,) = replay([str(path)], jobs=1)
    assert found.main.responses in {2, 3}  # the row that is too deep is one that cannot be read
    assert found.main.tokens == 9_003
    collect([str(path)])
    assert build_report([str(path)], ReportOptions(None, None, 0.7, 5_000), jobs=1).sessions
    assert measure({"transcript_path": str(path)}, {}).tokens is not None


@pytest.mark.parametrize(
    "command",
    [
        "archives show {0}",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("archives search deep", "archives restore {0}")),
        pytest.param("watch --once", marks=pytest.mark.long),
    ],
)
def test_nesting_in_other_commands(command, tmp_path):
    place = Measured(tmp_path, nested(100_000))
    assert place.run(*command.format(SID).split())[0] == 0


INPUTS = {
    "whole": b"DEEP",
    "a field": b'{"hook_event_name": "EVENT", "session_id": "SID", "transcript_path": DEEP}',
    "a further field": b'{"hook_event_name": "EVENT", "session_id": "SID", "transcript_path": "PATH", "x": DEEP}',
    "without an end": b'{"hook_event_name": "EVENT", "session_id": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("event", ["PreCompact", "UserPromptSubmit"])
def test_a_hooks_input_that_is_nested_deep(kind, event, tmp_path):
    """It is answered, and what it is about is left alone, for nothing of it can be read."""
    place = Measured(tmp_path, answer(1), archived=False)
    given = INPUTS[kind]
    for key, value in {"EVENT": event, "SID": SID, "PATH": str(place.path)}.items():
        given = given.replace(key.encode(), value.encode())
    words = [HOOK] if event == "PreCompact" else [HOOK, "warn"]
    done = subprocess.run(
        [sys.executable, *words],
        input=given.replace(b"DEEP", deep(100_000)),
        capture_output=True,
        env=place.env,
        check=True,
    )
    assert done.stdout == b"{}\n"
    assert done.stderr.decode() == "mala-context: the hook's input is no JSON: nothing archived\n"
    assert not os.path.exists(place.archive.location)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("depth", [700, 100_000])
def test_a_session_with_nested_rows_in_every_command(depth, shape, tmp_path):
    """Compacted, with the hooks of that, so that each command has such rows to read; 700 deep they can be decoded."""
    place = Measured(tmp_path, nested(depth, *shape), archived=False)
    statuses = [place.hook("PreCompact", trigger="auto")[0]]
    with place.path.open("ab") as file:
        file.write(after_a_compaction())
    told = {"compact_summary": "Summary: hello", "source": "compact", "prompt": "go on", "reason": "exit"}
    events = ("PostCompact", "SessionStart", "UserPromptSubmit", "SessionEnd")
    statuses += [place.hook(event, trigger="auto", **told)[0] for event in events]
    assert statuses == [0] * 5
    for command in ("statusline", "doctor"):
        assert place.run(command)[0] == int(command == "doctor")  # which finds no CLI's settings here
    commands = [words_of(each, place) for each in COMMANDS if each not in ("statusline", "doctor")]
    found = place.all(commands)
    assert [words for status, _, words in found if status] == [words_of(NO_AGENT, place)]
    assert len(found) == len(commands)


class Measured:
    """A machine with one transcript, archived, on which commands run in processes of their own."""

    def __init__(self, root, data, *, archived=True):
        self.root = root
        self.folder = root / "claude" / "projects" / "-p"
        self.folder.mkdir(parents=True)
        self.path = self.folder / f"{SID}.jsonl"
        parts = [data] if isinstance(data, bytes) else data
        with self.path.open("wb") as file:
            for part in parts:
                file.write(part)
        (root / "mala.yaml").write_text("context:\n  warn_at: 0.01\n")
        self.env = {
            **os.environ,
            "MALA_RUNS_DIR": str(root / "runs"),
            "CLAUDE_CONFIG_DIR": str(root / "claude"),
            "CLAUDE_PROJECT_DIR": str(root),
            "MALA_WARN_AT": "0.01",
        }
        self.archive = TranscriptArchive(root / "runs" / str(root).replace("/", "-") / "archives")
        if archived:
            self.archive.archive(str(self.path), SID)

    def run(self, *words):
        """Return a command's exit status and its largest memory in MiB."""
        return self.python("-m", "mala_context.cli", *words)

    def hook(self, event, **fields):
        """Likewise of a hook of Claude Code's."""
        about = {"hook_event_name": event, "session_id": SID, "transcript_path": str(self.path), "cwd": str(self.root)}
        return self.python(HOOK, *["warn"][: event == "UserPromptSubmit"], given={**about, **fields})

    def python(self, *words, given=None):
        """Likewise of Python with these arguments."""
        done = self._measured(words, {"transcript_path": str(self.path)} if given is None else given)
        status, size = done.stdout.split()
        assert "Traceback" not in done.stderr, done.stderr
        return int(status), int(size)

    def all(self, commands):
        """Run commands in one process; return each one's status, the largest memory until then, and its words."""
        done = self._measured(["-c", ALL], commands)
        assert "Traceback" not in done.stderr, done.stderr
        return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]

    def _measured(self, words, given):
        path = self.root / "given.json"
        path.write_text(json.dumps(given))
        return subprocess.run(
            [sys.executable, "-c", MEASURED, str(path), *words],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.root,
            check=True,
        )


NO_AGENT = "archives show {sid} --agent main-is-none"
COMMANDS = {
    "statusline": 40,
    "replay {path} --jobs 1": 200,
    "audit {path} --jobs 1": 200,
    "simulate {path} --jobs 1 --policy mala.yaml": 200,
    "report {path} --jobs 1 -o -": 200,
    "watch --once": 60,
    "archives list": 60,
    "archives verify": 60,
    "archives cat {sid}": 60,
    "archives lost {sid}": 60,
    "archives search needle": 100,
    "archives search x": 60,
    "archives show {sid}": 60,
    "archives show {sid} --full --json": 60,
    "archives show {sid} --dropped-by 1": 60,
    "archives show {sid} --before 2026-11-01T12:00:05Z": 60,
    "archives export {sid} whole.jsonl": 60,
    "archives export {sid} redacted.jsonl --redact": 120,
    "archives restore {sid}": 60,
    "archives catch-up": 60,
    "archives pack": 60,
    NO_AGENT: 60,
    "archives prune --days 1": 60,
    "doctor": 300,
}
"""Commands that read a transcript or an archive, and the most MiB that each may take for a line of 200 MB. `replay` and
its kin hold a line up to 64 MiB, a search and masking up to 16, nothing else more than 4."""
LINES = {
    "text": (b'"needle ', b"x y z ", b'"'),
    "wide": ('"needle 😀 '.encode(), b"x y z ", b'"'),
    "escaped": (b'"needle ', b"\\u20ac\\n", b'"'),
    "lists": (b'["needle",', b"[],", b"[]]"),
    "words": (b'["needle",', b'"ab",', b"[]]"),
}
"""Lines that take the more memory when they are decoded: how one begins, goes on and ends."""


def with_a_line(kind, size):
    """The parts of a session in which one row is so long, and of which one compaction is told."""
    first, part, last = LINES[kind]
    content = {"role": "user", "content": "CUT" if kind not in ("lists", "words") else ["CUT"]}
    before, _, after = row("user", 3, message=content).partition(b'"CUT"')
    yield row("user", 1, message={"role": "user", "content": "hello"}) + answer(2) + before + first
    block = part * ((1 << 20) // len(part))
    for _ in range(size):
        yield block
    yield last + after + answer(4, 20_500)


def after_a_compaction():
    meta = {"trigger": "auto", "preTokens": 20_500, "postTokens": 2_000}
    summary = row("user", 6, isCompactSummary=True, message={"role": "user", "content": "Summary: hello"})
    return row("system", 5, subtype="compact_boundary", compactMetadata=meta, content="Compacted") + summary + answer(7)


def words_of(command, place):
    return command.format(path=place.path, sid=SID).split()


LONG = int(os.environ.get("MALA_LONG_LINE", "70"))
"""MB, beyond what `replay` decodes; 200 were measured, in all shapes, and take over two minutes each."""
SHAPES = LINES if "MALA_LONG_LINE" in os.environ else ("text", "words")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", SHAPES)
def test_a_very_long_line(kind, tmp_path):
    place = Measured(tmp_path, with_a_line(kind, LONG), archived=False)
    assert place.path.stat().st_size > LONG << 20
    found = {"PreCompact": (place.hook("PreCompact", trigger="auto"), 60)}
    with place.path.open("ab") as file:
        file.write(after_a_compaction())
    told = {"compact_summary": "Summary: hello", "source": "compact", "prompt": "go on", "reason": "exit"}
    for event in ("PostCompact", "SessionStart", "UserPromptSubmit", "SessionEnd"):
        found[event] = place.hook(event, trigger="auto", **told), 60
    found["search tool"] = place.python("-c", SEARCH, place.archive.location, SID), 100
    for command, bound in COMMANDS.items():
        found[command] = place.run(*words_of(command, place)), bound
    wrong = {name: size for name, ((_, size), bound) in found.items() if size > bound}
    assert not wrong
    failed = {name for name, ((status, _), _) in found.items() if status}
    assert failed == {NO_AGENT, "doctor"}  # which finds no CLI's settings here


@pytest.mark.parametrize("kind", variants(["lists", "wide"]))
def test_a_line_of_some_megabytes(kind, tmp_path):
    """Eight: decoded, the lists would take 220."""
    place = Measured(tmp_path, with_a_line(kind, 8))
    with place.path.open("ab") as file:
        file.write(after_a_compaction())
    place.archive.archive(str(place.path), SID)
    commands = [words_of(each, place) for each in COMMANDS if each not in ("doctor", "statusline")]
    commands = [words for words in commands if kind == "lists" or "--redact" not in words]  # which takes its time
    found = place.all(commands)
    assert [words for _, _, words in found] == commands
    assert found[-1][1] < 200, found


PACKED = {"gz": gzip.compress, "zst": zstandard.compress}
RECORDINGS = [
    "replay {path} --jobs 1",
    "audit {path} --jobs 1",
    "simulate {path} --jobs 1 --policy mala.yaml",
    "report {path} --jobs 1 -o -",
]
PIECES = {
    "archives cat {sid}": 1,
    "archives verify": 1,
    "archives show {sid}": 1,
    "archives export {sid} whole.jsonl": 1,
    "archives export {sid} redacted.jsonl --redact": 1,
    "archives restore {sid} --cwd .": 1,
    "archives search needle": 0,
    "archives catch-up": 0,
    "archives list": 0,
    "archives lost {sid}": 0,
}
"""Commands that read a packed piece, and how they end where it is not what was archived. The last one reads a session
whose manifest names no compaction as `report` does, and may take as much memory."""


def bomb(suffix, size):
    """Bytes that unpack to so many MiB, in one line, and a row behind it."""
    pack = PACKED[suffix]
    return pack(b"x" * (10 << 20)) * (size // 10) + pack(b"\n" + answer(1))


@pytest.mark.parametrize(
    ("suffix", "size"),
    [
        pytest.param("gz", 120, marks=pytest.mark.long),
        ("zst", 120),
        *(pytest.param(each, 2_000, marks=pytest.mark.long) for each in PACKED),
    ],
)
def test_a_recording_that_unpacks_to_much_more(suffix, size, tmp_path):
    """Read block by block; a line that is too long is left out."""
    place = Measured(tmp_path, answer(1))
    place.path = tmp_path / f"{SID}.jsonl.{suffix}"
    place.path.write_bytes(bomb(suffix, size))
    assert place.path.stat().st_size < size << 11
    found = place.all([words_of(each, place) for each in RECORDINGS])
    assert [status for status, _, _ in found] == [0, 0, 0, 0]
    assert found[-1][1] < 200, found


@pytest.mark.parametrize("size", variants([120, 2_000]))
def test_a_piece_that_unpacks_to_much_more(size, tmp_path):
    """A packed piece that is no longer what was archived: it is read no further, and said to be damaged."""
    place = Measured(tmp_path, answer(1))
    place.archive.pack([SID])
    (piece,) = pathlib.Path(place.archive.location).glob("*.zst")
    piece.write_bytes(bomb("zst", size))
    place.path.unlink()
    found = place.all([words_of(each, place) for each in PIECES])
    assert [status for status, _, _ in found] == list(PIECES.values()), found
    assert found[-2][1] < 120, found
    assert found[-1][1] < 200, found


@pytest.mark.long
def test_a_piece_of_which_nothing_is_known_unpacks_to_much_more(tmp_path):
    place = Measured(tmp_path, answer(1))
    place.archive.pack([SID])
    (piece,) = pathlib.Path(place.archive.location).glob("*.zst")
    piece.write_bytes(bomb("zst", 300))
    (manifest,) = pathlib.Path(place.archive.location).glob("*.manifest.jsonl")
    manifest.unlink()
    place.path.unlink()
    found = place.all([words_of(each, place) for each in PIECES])
    assert found[-1][1] < 150, found


SESSIONS = int(os.environ.get("MALA_MANY_SESSIONS", "2000"))
"""1,000,000 were measured; these show the same in less time."""
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "aliases"),
        ("a: &a [*a]\n", "holds itself"),
        ("[" * 100_000, "nesting|nested"),  # the parser, or before it we
        ("{a: " * 100_000, "nested"),
        ("- " * 100_000 + "x", "nested"),
        ("x" * (1 << 21), "characters"),
        ("context: !!python/object/apply:os.system [id]\n", "tag"),
    ],
    ids=["a billion laughs", "a loop", "lists", "mappings", "dashes", "size", "a tag that would run something"],
)
def test_yaml_bombs(text, words):
    with pytest.raises(ConfigError, match=words):
        parse(text)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_sessions_in_one_folder(tmp_path):
    place = Measured(tmp_path, row("user", 1, message={"role": "user", "content": "hello"}) + answer(2))
    data, archived = place.path.read_bytes(), place.archive.location
    for number in range(SESSIONS):
        name = f"6d616c61-0000-4000-8000-1{number:011d}"
        mine = data.replace(SID.encode(), name.encode()).replace(b'"u', f'"u{number}-'.encode())
        (place.folder / f"{name}.jsonl").write_bytes(mine.replace(b'"m2"', f'"m{number}"'.encode()))
        piece = os.path.join(archived, f"{name}_20261101T120000.000000Z_transcript.jsonl")
        with open(os.open(piece, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(mine)
    folder, there = str(place.folder), ["--dir", archived]
    for command, least, each in (
        (["replay", folder, "--jobs", "1", "--totals"], 100, 5_000),
        (["report", folder, "--jobs", "1", "-o", "-"], 100, 2_000),
        (["archives", "list", *there], 60, 2_000),
        (["archives", "verify", *there], 60, 3_000),  # of which a third is for what is wrong with each
        (["archives", "prune", "--days", "1", *there], 60, 2_000),
        (["archives", "catch-up", *there], 60, 2_000),
        (["archives", "show", SID, *there], 60, 0),
        (["watch", "--once"], 60, 1_000),
        (["doctor", "--no-session", "--repo", str(tmp_path)], 120, 200),
    ):
        status, size = place.run(*command)
        assert status == int(command[0] == "doctor" or command[1] == "verify"), command  # pieces without a row
        assert size < least + each * SESSIONS / (1 << 20), command  # MiB, and bytes for each session


@pytest.mark.parametrize("command", ["replay", "report", "audit"])
@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_a_fifo_that_a_command_line_names_holds_nothing_up(tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    for each in ("HOME", "MALA_RUNS_DIR", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(each, str(tmp_path))
    os.mkfifo(tmp_path / name)
    done = CliRunner().invoke(app, [command, name])  # the test's own timeout is what would end it
    assert done.exception is None or isinstance(done.exception, SystemExit | MalaContextError | OSError)
