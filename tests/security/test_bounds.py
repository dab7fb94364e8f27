"""What somebody else wrote takes no more memory than a small multiple of a line, and no stack."""

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest
import zstandard

from mala_context.archive.store import TranscriptArchive
from mala_context.config import parse
from mala_context.errors import ConfigError
from mala_context.replay import replay
from mala_context.replay.audit import collect
from mala_context.report import Looking, report
from mala_context.statusline import measure

SID = "6d616c61-0000-4000-8000-00000000000b"
MEASURED = """
import os, sys
place, *words = sys.argv[1:]
given = os.open(os.path.join(place, "given.json"), os.O_RDONLY)
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "mala_context.cli", *words], os.environ, file_actions=[
    (os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss // (1 if sys.platform == "darwin" else 1024))
"""


def row(kind, number, **fields):
    about = {"type": kind, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number > 1 else None}
    about |= {"sessionId": SID, "isSidechain": False, "timestamp": f"2026-11-01T12:00:{number:02d}.000Z", "cwd": "/p"}
    return json.dumps(about | fields).encode() + b"\n"


def answer(number, tokens=20_000, content=()):
    usage = {"input_tokens": 3, "cache_read_input_tokens": tokens, "output_tokens": 9}
    message = {"id": f"m{number}", "model": "claude-sonnet-4-5", "role": "assistant", "usage": usage}
    return row("assistant", number, requestId=f"r{number}", message={**message, "content": list(content)})


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
    return data.replace(b'"DEEP"', (opening * depth + "1" + closing * depth).encode())


@pytest.mark.parametrize("shape", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("depth", [100, 900, *range(950, 1_002, 10), 5_000, 100_000])
def test_nesting(depth, shape, tmp_path):
    path = tmp_path / f"{SID}.jsonl"
    path.write_bytes(nested(depth, *shape))
    (found,) = replay([str(path)], jobs=1)
    assert found.main.responses in {2, 3}  # the row that is too deep is one that cannot be read
    assert found.main.tokens == 9_003
    collect([str(path)])
    assert report([str(path)], Looking(None, None, 0.7, 5_000), jobs=1).sessions
    assert measure({"transcript_path": str(path)}, {}).tokens is not None


@pytest.mark.parametrize(
    "command", ["archives show {0}", "archives search deep", "archives restore {0}", "watch --once"]
)
def test_nesting_in_other_commands(command, tmp_path):
    place = Measured(tmp_path, nested(100_000))
    assert place.run(*command.format(SID).split())[0] == 0


class Measured:
    """A machine with one transcript, archived, on which commands run in processes of their own."""

    def __init__(self, root, data):
        self.root = root
        self.folder = root / "claude" / "projects" / "-p"
        self.folder.mkdir(parents=True)
        self.path = self.folder / f"{SID}.jsonl"
        parts = [data] if isinstance(data, bytes) else data
        with self.path.open("wb") as file:
            for part in parts:
                file.write(part)
        (root / "given.json").write_text(json.dumps({"transcript_path": str(self.path)}))
        self.env = {**os.environ, "MALA_RUNS_DIR": str(root / "runs"), "CLAUDE_CONFIG_DIR": str(root / "claude")}
        self.archive = TranscriptArchive(root / "runs" / str(root).replace("/", "-") / "archives")
        self.archive.archive(str(self.path), SID)

    def run(self, *words):
        """Return a command's exit status and its largest memory in MiB."""
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(self.root), *words],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.root,
            check=True,
        )
        status, size = done.stdout.split()
        assert "Traceback" not in done.stderr, done.stderr
        return int(status), int(size)


BOUNDS = {
    "statusline": 40,
    "replay {0} --jobs 1": 200,
    "audit {0} --jobs 1": 200,
    "report {0} --jobs 1 -o -": 250,
    "watch --once": 600,
    "archives list": 60,
    "archives cat {1}": 60,
    "archives search needle": 800,
    "archives show {1}": 1_000,
    "archives restore {1}": 1_000,
}
"""The most MiB that a command may take for a line of 200 MB; what reads rows holds one line, decoded and as it was."""


@pytest.mark.long
def test_a_line_of_200_megabytes(tmp_path):
    def parts():
        yield row("user", 1, message={"role": "user", "content": "hello"})
        yield answer(2)
        yield row("user", 3, message={"role": "user", "content": "CUT"}).partition(b"CUT")[0] + b"needle "
        for _ in range(200):
            yield b"x y z " * 174_763
        yield b'"}}\n'
        yield answer(4, 20_500)

    place = Measured(tmp_path, parts())
    assert place.path.stat().st_size > 200 << 20
    sizes = {each: place.run(*each.format(place.path, SID).split()) for each in BOUNDS}
    for command, bound in BOUNDS.items():
        status, size = sizes[command]
        assert status == 0, command
        assert size <= bound, (command, sizes)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_a_recording_that_unpacks_to_much_more(pack, tmp_path):
    """A bomb of 300 MB in one line, and of rows: read block by block, the line is left out."""
    bomb = b"".join(pack(b"x" * (50 << 20)) for _ in range(6)) + pack(b"\n" + answer(1))
    path = tmp_path / f"{SID}.jsonl.{'gz' if pack is gzip.compress else 'zst'}"
    path.write_bytes(bomb)
    assert path.stat().st_size < 1 << 20
    place = Measured(tmp_path / "m", answer(1))
    status, size = place.run("replay", str(path), "--jobs", "1")
    assert status == 0
    assert size < 250


def test_a_piece_that_unpacks_to_much_more(tmp_path):
    """A packed piece that is no longer what was archived: streamed, and said to be damaged."""
    place = Measured(tmp_path, answer(1))
    place.archive.pack([SID])
    (piece,) = pathlib.Path(place.archive.location).glob("*.zst")
    piece.write_bytes(b"".join(zstandard.compress(bytes(50 << 20)) for _ in range(6)))
    for command in (["archives", "cat", SID], ["archives", "verify"]):
        status, size = place.run(*command)
        assert status == 1, command
        assert size < 150, command


SESSIONS = int(os.environ.get("MALA_MANY_SESSIONS", "5000"))
"""100,000 were measured; these show the same in less time."""
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "aliases"),
        ("a: &a [*a]\n", "holds itself"),
        ("[" * 100_000, "nesting"),
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
    for command, bound in (
        (["replay", str(place.folder), "--jobs", "1", "--totals"], 1_500),
        (["archives", "list", "--dir", archived], 300),
        (["archives", "verify", "--dir", archived], 300),
        (["archives", "prune", "--days", "1", "--dir", archived], 300),
        (["archives", "catch-up", "--dir", archived], 300),
        (["archives", "show", SID, "--dir", archived], 60),
        (["watch", "--once"], 300),
    ):
        status, size = place.run(*command)
        assert status == int(command[1] == "verify"), command  # pieces without a row are reported
        assert size < bound, command
