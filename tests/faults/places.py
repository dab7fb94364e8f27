"""An archive under test: its sessions, what of them is committed, and what the disk says without asking the archive.

`Place` keeps transcripts, their archive and an object store's folder below one directory. `truth` reads the archive's
directory with means of its own (names, raw lines, hashes), so that `verify` can be held against it.
"""

import hashlib
import json
import os
import re

import zstandard
from click.testing import CliRunner

from mala_context.archive.remote.address import Target
from mala_context.archive.source import digest_of
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.cli.archives import archives
from tests.helpers.archive_tools import cat, rows

PIECE = re.compile(r"(?P<stream>[^.]+(?:\..+)?)_(?P<stamp>\d{8}T\d{6}\.\d{6}Z)_transcript\.\w+?(?P<packed>\.zst)?$")
MENDED = {"row", "manifest", "offset", "empty", "mode"}
"""Kinds of what is wrong that `verify --repair` mends; after a fault there may be no others."""
LEFT = re.compile(r"^\.tmp-|^\.mala-context-|^\.repo-path\.|-journal$|#\d+$|^\.nfs")
"""Names of what a killed writer may leave for the next run, and nobody for ever."""


class Place:
    """A repository with sessions, their archive, and what was acknowledged as committed."""

    def __init__(self, base, *, mode="incremental", remote=False):
        self.base = base
        self.repo = os.path.join(base, "repo")
        self.projects = os.path.join(base, "projects")
        self.folder = os.path.join(self.projects, "-repo")
        self.bucket = os.path.join(base, "bucket")
        for each in (self.repo, self.folder):
            os.makedirs(each, exist_ok=True)
        os.environ["MALA_RUNS_DIR"] = os.path.join(base, "runs")
        os.environ["CLAUDE_CONFIG_DIR"] = base
        self.mode = mode
        self.target = Target(address=f"file://{self.bucket}", prefix="") if remote else None
        self.archive = self.opened()
        self.committed = {}
        self.pruned = set()
        self.rows = {}

    def opened(self):
        """The archive, as another process opens it."""
        return TranscriptArchive(repo_path=self.repo, mode=self.mode, target=self.target, projects_dirs=[self.projects])

    def transcript(self, session):
        return os.path.join(self.folder, f"{session}.jsonl")

    def grow(self, session, count=20):
        """Write rows behind a transcript; a row that a killed process tore is ended first."""
        path = self.transcript(session)
        first = self.rows.get(session, 0)
        with open(path, "ab") as file:
            file.write(rows(first, first + count))
        self.rows[session] = first + count

    def talk(self, session, turns):
        """Write a conversation that can be restored."""
        said = [
            {
                "type": ("user", "assistant")[number % 2],
                "uuid": f"{session}-{number}",
                "parentUuid": f"{session}-{number - 1}" if number else None,
                "sessionId": session,
                "cwd": self.repo,
                "message": {"role": ("user", "assistant")[number % 2], "content": f"word{number} " * 20},
            }
            for number in range(turns)
        ]
        with open(self.transcript(session), "ab") as file:
            file.writelines(json.dumps(row).encode() + b"\n" for row in said)

    def side_file(self, session, data=b"side"):
        folder = os.path.join(self.folder, session, "tool-results")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "one.txt"), "wb") as file:
            file.write(data)

    def keep(self, session, tell=None):
        """Archive a session; what was said to be written counts as committed."""
        result = self.archive.archive(self.transcript(session), session, trigger="auto")
        if result.path is not None:
            name = os.path.basename(result.path)
            self.commit(session, name, result.sha256, result.bytes)
            if tell is not None:
                tell(f"piece {session} {name} {result.sha256} {result.bytes}")
        return result

    def commit(self, session, name, digest, size):
        self.committed[name] = (session, digest, int(size))

    def lost(self):
        """Return the committed bytes that cannot be read back as they were; those of pruned sessions were let go."""
        return sum(
            size for name, (session, digest, size) in self.committed.items() if not self.reads(session, name, digest)
        )

    def reads(self, session, name, digest):
        if session in self.pruned:
            return True
        from mala_context.archive.increment import open_plain

        archive = self.opened()
        piece = {each.plain: each for each in archive.pieces(session)}.get(name)
        if piece is None:
            return False
        with archive.view(session) as files:
            reader = open_plain(files, piece)
            try:
                return digest_of(reader)[0] == digest
            finally:
                reader.close()

    def left(self):
        """Return what lies anywhere and is nobody's: temporary files, journals, parts of uploads."""
        return sorted(
            os.path.relpath(os.path.join(folder, name), self.base)
            for folder, _, names in os.walk(self.base)
            for name in names
            if LEFT.search(name)
        )

    def check_verify(self):
        """Hold `verify`, and the command's exit code, against the disk; return the problems' kinds."""
        archive = self.opened()
        said = {(each.kind, os.path.basename(each.path)) for each in verify_archive(archive).problems}
        there = truth(archive.location)
        assert said == there, f"verify says {sorted(said - there)} and does not say {sorted(there - said)}"
        if os.path.isdir(archive.location):
            done = CliRunner().invoke(archives, ["verify", "--dir", archive.location])
            assert done.exit_code == (1 if said else 0), (done.output, said)
        return sorted(kind for kind, _ in said)

    def check_whole(self, session):
        """What is archived of a session's newest chain is its transcript."""
        with open(self.transcript(session), "rb") as file:
            expected = file.read()
        archive = self.opened()
        if self.mode == "full":
            newest = [each for each in archive.pieces(session) if each.subagent is None][-1]
            with open(os.path.join(archive.location, newest.name), "rb") as file:
                assert file.read() == expected, f"the newest copy of {session} is not its transcript"
        else:
            assert cat(archive, session) == expected, f"the pieces of {session} are not its transcript"


def truth(location):
    """Return what is wrong in an archive's directory, as kinds and names, read without the archive's own code."""
    wrong, sessions = set(), {}
    for name in os.listdir(location) if os.path.isdir(location) else ():
        path = os.path.join(location, name)
        if not os.path.isfile(path) or name.startswith(".") or os.path.getsize(path) == 0:
            continue
        if os.stat(path).st_mode & 0o177:
            wrong.add(("mode", name))
        sessions.setdefault(re.split(r"[._]", name)[0], []).append(name)
    for session, names in sessions.items():
        wrong |= _truth_of(location, session, names)
    return wrong


def _truth_of(location, session, names):
    wrong, known = set(), []
    manifest = f"{session}.manifest.jsonl"
    if manifest in names:
        with open(os.path.join(location, manifest), "rb") as file:
            for line in filter(bytes.strip, file.read().split(b"\n")):
                try:
                    known.append(json.loads(line))
                except ValueError:
                    wrong.add(("manifest", manifest))
    pieces = {each["name"]: each for each in known if each["row"] == "piece"}
    gone = {name for each in known if each["row"] == "removing" for name in each["names"]}
    sent = {each["name"].removesuffix(".zst") for each in known if each["row"] == "uploaded"}
    there = sorted({name.removesuffix(".zst") for name in names if PIECE.match(name)})
    wrong |= {("row", _stored(name, names)) for name in there if name not in pieces}
    wrong |= {("gone", name) for name in pieces if name not in {*there, *sent, *gone}}
    if not there and not sent and not any(each["row"] == "session" for each in known):
        wrong.add(("empty", manifest))
    ends = {}
    for name in sorted({*there, *(sent & pieces.keys())}):
        row = pieces.get(name, {})
        digest, length = (
            _digest(os.path.join(location, _stored(name, names))) if name in there else (None, row["length"])
        )
        if digest is not None and row.get("sha256", digest) != digest:
            wrong.add(("hash", _stored(name, names)))
        stream = PIECE.match(name)["stream"]
        start = 0 if row.get("mode") == "full" else ends.get(stream, 0)
        if row.get("offset", start) != start:
            wrong.add(("gap" if row["offset"] > start else "offset", _stored(name, names)))
        ends[stream] = start + length
    side = {each["name"] for each in known if each["row"] == "file"}
    kept = {name for name in names if ".file-" in name}
    wrong |= {("side file", name) for name in side - kept - sent - gone}
    return wrong | {
        ("side file", name) for name in kept if _digest(os.path.join(location, name))[0] != name.partition(".file-")[2]
    }


def _stored(name, names):
    return name if name in names else f"{name}.zst"


def _digest(path):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".zst"):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return hashlib.sha256(data).hexdigest(), len(data)
