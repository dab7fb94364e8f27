"""Kills a process with SIGKILL at random moments of each operation of an archive, and looks at what is left.

Run with `python -m tests.faults.kills --kills 500`. A child does one operation over and over; a kill comes a random
time after a random one of its rounds began. What the child was told to be committed it hands over through a pipe, and
which call into the system it is in stands in memory that both share. After each kill: every committed byte is there,
`verify` says exactly what the disk says (and the command's exit code with it), the next run mends, and no temporary
file of a dead process stays. A hook asks right after the kill, and how long it waited is measured.
"""

import argparse
import asyncio
import collections
import contextlib
import functools
import itertools
import logging
import mmap
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import obstore  # noqa: F401  # before the forks; its threads begin with its first request
from archive_tools import cat
from places import MENDED, Place

from mala_context.archive import packing, pruning, restore, search, writer  # noqa: F401  # before the forks
from mala_context.archive.remote import bucket, push  # noqa: F401  # likewise
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify
from mala_context.archivist import Archivist

FAILED = 3
KILLS_A_PLACE = 10
CALLS = ("open", "read", "write", "fsync", "link", "rename", "unlink", "utime", "fchmod", "mkdir", "stat", "listdir")
BESIDE = {"index": (search, "_bring_up"), "store": (bucket.Bucket, "put"), "read back": (bucket.Bucket, "digest")}
PLACES = ("Python", *CALLS, *BESIDE)
VICTIMS = tuple(f"v{number}" for number in range(6))
OTHERS = tuple(f"o{number}" for number in range(4))


class Operation:
    """One operation: what is there before, one round of the work, and what has to hold after the next run."""

    mode = "incremental"
    remote = False
    kept = ("s",)
    """Sessions whose transcript must be what is archived once the next run is done."""

    def prepare(self, place):
        for _ in range(2):
            place.grow("s")
            place.keep("s")

    def round(self, place, tell):
        place.grow("s")
        place.keep("s", tell)
        place.archive.record_outcome("s", "compacted")

    def next_run(self, place):
        """Do what the next run does, without a kill."""
        for session in self.kept:
            with open(place.transcript(session), "ab") as file:
                file.write(b"\n")  # the killed child may have torn its row
        place.opened().catch_up([place.projects])
        for session in self.kept:
            place.keep(session)

    def check(self, place):
        for session in self.kept:
            place.check_whole(session)


class Incremental(Operation):
    """Archiving what is new."""


class Full(Operation):
    """Archiving whole copies."""

    mode = "full"


class First(Operation):
    """Archiving in a repository that has no archive yet, each round in another."""

    kept = ()

    def prepare(self, place):
        place.grow("s")
        self.repo = place.repo

    def round(self, place, tell):
        number = 0
        while os.path.exists(os.path.join(place.base, f"repo{number}")):
            number += 1
        place.repo = os.path.join(place.base, f"repo{number}")
        os.mkdir(place.repo)
        TranscriptArchive(repo_path=place.repo).archive(place.transcript("s"), "s", trigger="auto")

    def next_run(self, place):
        for name in sorted(os.listdir(place.base)):
            if name.startswith("repo"):
                place.repo = os.path.join(place.base, name)
                place.opened().archive(place.transcript("s"), "s", trigger="auto")
                place.opened().catch_up([place.projects])
                place.check_whole("s")
        place.repo = self.repo


class Pack(Operation):
    """Packing pieces."""

    def round(self, place, tell):
        super().round(place, tell)
        place.archive.pack(["s"])


class Prune(Operation):
    """Removing sessions; those that the kill leaves are archived again."""

    kept = ("s", *VICTIMS)

    def prepare(self, place):
        super().prepare(place)
        place.pruned = set(VICTIMS)
        for session in VICTIMS:
            self.fill(place, session)

    def fill(self, place, session):
        place.side_file(session)
        for _ in range(3):
            place.grow(session, 5)
            place.archive.archive(place.transcript(session), session, trigger="auto")
        place.archive.archive_side_files(place.transcript(session), session)

    def round(self, place, tell):
        place.archive.prune(session_ids=VICTIMS, dry_run=False, projects_dirs=[])
        for session in VICTIMS:
            self.fill(place, session)
            place.archive.prune(session_ids=[session], dry_run=False, projects_dirs=[])
            self.fill(place, session)


class Restore(Operation):
    """Making a session of an archived one."""

    kept = ()

    def prepare(self, place):
        place.talk("t", 40)
        place.keep("t")
        self.elsewhere = os.path.join(place.base, "restored")

    def round(self, place, tell):
        place.archive.restore("t", projects=self.elsewhere)

    def next_run(self, place):
        for folder, _, names in os.walk(self.elsewhere):
            for name in (each for each in names if each.endswith(".jsonl")):
                with open(os.path.join(folder, name), "rb") as file:
                    assert len(file.readlines()) == 40, f"{name} is no whole session"
        place.opened().restore("t", projects=self.elsewhere)
        shutil.rmtree(self.elsewhere) if len(os.listdir(self.elsewhere)) > 20 else None


class Rebuild(Operation):
    """Making manifests again that were lost or cut."""

    kept = ("s", *OTHERS)

    def prepare(self, place):
        for session in self.kept:
            for _ in range(3):
                place.grow(session, 5)
                place.keep(session)

    def round(self, place, tell):
        for number, session in enumerate(self.kept):
            path = os.path.join(place.archive.location, f"{session}.manifest.jsonl")
            if number % 2:
                os.unlink(path)
            else:
                with open(path, "ab") as file:
                    file.write(b'{"v":1,"row":"pie')
        verify(place.archive, repair=True)


class Index(Operation):
    """Bringing the search index up to date, or making it again."""

    def prepare(self, place):
        place.talk("s", 40)
        place.keep("s")

    def round(self, place, tell):
        place.talk("s", 400)
        place.keep("s", tell)
        search.search(place.archive, "s", "word1")

    def check(self, place):
        super().check(place)
        found = search.search(place.opened(), "s", "word1*", limit=10_000)
        plain = TranscriptArchive(place.archive.location)
        again = os.path.join(place.base, "again")
        shutil.copytree(plain.location, os.path.join(again, "archives"))
        fresh = search.search(TranscriptArchive(os.path.join(again, "archives")), "s", "word1*", limit=10_000)
        shutil.rmtree(again)
        assert len(found) == len(fresh), f"the index finds {len(found)} places, one made anew {len(fresh)}"


class CatchUp(Operation):
    """Archiving what several sessions left."""

    kept = OTHERS

    def prepare(self, place):
        for session in OTHERS:
            place.grow(session, 5)
            place.keep(session)

    def round(self, place, tell):
        for session in OTHERS:
            place.grow(session, 5)
            place.side_file(session, os.urandom(8))
        for result in place.archive.catch_up([place.projects]):
            if result.path is not None:
                tell(f"piece {result.session_id} {os.path.basename(result.path)} {result.sha256} {result.bytes}")


class Upload(Operation):
    """Sending pieces to a folder as an object store, and removing them here."""

    remote = True

    def prepare(self, place):
        place.grow("s")
        place.keep("s")

    def round(self, place, tell):
        super().round(place, tell)
        place.archive.push(["s"])
        place.archive.prune(session_ids=["s"], dry_run=False, projects_dirs=[])

    def next_run(self, place):
        super().next_run(place)
        result = place.opened().push()
        assert result.pending == (), result

    def check(self, place):
        super().check(place)
        with open(place.transcript("s"), "rb") as file:
            assert cat(TranscriptArchive(f"file://{place.bucket}"), "s") == file.read(), "the store has something else"


OPERATIONS = {
    "archive": Incremental,
    "archive in full": Full,
    "first archive": First,
    "pack": Pack,
    "prune": Prune,
    "restore": Restore,
    "rebuild manifests": Rebuild,
    "search index": Index,
    "catch-up": CatchUp,
    "upload": Upload,
}


def watched(shared):
    """Have each call into the system write down that it is in progress."""

    def wrap(real, number):
        def call(*args, **kwargs):
            before, shared[0] = shared[0], number
            try:
                return real(*args, **kwargs)
            finally:
                shared[0] = before

        return call

    for number, name in enumerate(PLACES):
        if number:
            owner, attribute = BESIDE.get(name, (os, name))
            setattr(owner, attribute, wrap(getattr(owner, attribute), number))


def kill(place, operation, chance, pace):
    """Let a child work and kill it; return where it was and the seconds that a round takes."""
    shared = mmap.mmap(-1, 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            watched(shared)
            for _ in range(10_000):
                os.write(write, b"round\n")
                operation.round(place, lambda line: os.write(write, line.encode() + b"\n"))
        except BaseException:  # noqa: BLE001  # the child must not run the rest of this program
            traceback.print_exc()
        os._exit(FAILED)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        lines = _rounds(pipe, chance.randint(2, 3))
        time.sleep(chance.uniform(0, pace))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        lines += pipe.readlines()
    assert os.WIFSIGNALED(status), "the child failed by itself"
    for line in lines:
        if line.startswith(b"piece"):
            place.commit(*line.decode().split()[1:])
    return PLACES[shared[0]]


def _rounds(pipe, count):
    lines = []
    while count:
        lines.append(pipe.readline())
        assert lines[-1], "the child ended"
        count -= lines[-1] == b"round\n"
    return lines


def pace_of(place, operation):
    """Return the seconds of one round, without a kill."""
    operation.round(place, lambda _: None)
    begun = time.monotonic()
    operation.round(place, lambda _: None)
    return time.monotonic() - begun


def asked(place, session):
    """Return the seconds that a hook waits that asks now."""
    archivist = Archivist(place.opened(), [place.projects])
    archivist.archive.changed = None
    begun = time.monotonic()
    found = {"session_id": session, "transcript_path": place.transcript(session), "trigger": "auto", "cwd": place.repo}
    asyncio.run(archivist.before_compaction(found))
    return time.monotonic() - begun


class Count:
    """What the kills of one operation came to."""

    def __init__(self):
        self.kills = self.committed = self.lost = 0
        self.wait = 0.0
        self.where = collections.Counter()
        self.mended = collections.Counter()

    def line(self, name):
        where = ", ".join(f"{what} {count}" for what, count in self.where.most_common())
        mended = ", ".join(f"{what} {count}" for what, count in self.mended.most_common()) or "nothing"
        return (
            f"{name}: {self.kills} kills, {self.committed} committed pieces, {self.lost} bytes lost, "
            f"hook at most {self.wait:.3f} s\n  in: {where}\n  mended: {mended}"
        )


def aftermath(place, operation):
    """Look at everything after a kill and do the next run; return the bytes lost, what was mended, and the wait."""
    lost = place.lost()
    kinds = place.check_verify()
    assert set(kinds) <= MENDED, kinds
    left = place.left()
    wait = asked(place, operation.kept[0]) if operation.kept else 0.0
    operation.next_run(place)
    verify(place.opened(), repair=True)
    assert place.check_verify() == [], "what is wrong was not mended"
    assert place.left() == [], f"left for ever: {place.left()}"
    operation.check(place)
    mended = [*kinds, *("temporary file" for _ in left)]
    return lost + place.lost(), mended, wait, place.committed


def apart(work):
    """Return what `work` returns, done in a child: threads that a library starts there are not forked."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, pickle.dumps(work()))
            os._exit(0)
        except BaseException:  # noqa: BLE001  # the child must not run the rest of this program
            traceback.print_exc()
        os._exit(FAILED)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "a promise is broken"
    return pickle.loads(data)


def one(place, operation, chance, pace, count):
    """Kill once and look at everything."""
    count.where[kill(place, operation, chance, pace)] += 1
    count.kills += 1
    lost, mended, wait, place.committed = apart(lambda: aftermath(place, operation))
    count.lost += lost
    count.mended.update(mended)
    count.wait = max(count.wait, wait)
    assert not count.lost, "committed bytes are lost"


def kills(bases, name, number, seed):
    """Kill an operation so many times, on each base in turn; return the count."""
    chance = random.Random(f"{seed} {name}")
    count = Count()
    turns = itertools.cycle(bases)
    while count.kills < number:
        operation = OPERATIONS[name]()
        base = os.path.join(next(turns), f"{name}{count.kills}")
        place = Place(base, mode=operation.mode, remote=operation.remote)
        operation.prepare(place)
        pace = apart(functools.partial(pace_of, place, operation))
        for _ in range(min(KILLS_A_PLACE, number - count.kills)):
            one(place, operation, chance, pace, count)
        count.committed += len(place.committed)
        shutil.rmtree(place.base)
    return count


def main():
    """Kill, print what came of it, and return 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(OPERATIONS), action="append")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    chosen = options.only or list(OPERATIONS)
    counts = []
    with contextlib.ExitStack() as stack:  # in memory `fsync` takes no time, so other calls are met there
        places = [None, *(each for each in ("/dev/shm",) if os.access(each, os.W_OK))]
        bases = [stack.enter_context(tempfile.TemporaryDirectory(dir=each)) for each in places]
        for place, name in enumerate(chosen):
            share = (place + 1) * options.kills // len(chosen) - place * options.kills // len(chosen)
            counts.append(kills(bases, name, share, options.seed))
            print(counts[-1].line(name), flush=True)
    print(
        f"kills={sum(each.kills for each in counts)} committed={sum(each.committed for each in counts)} "
        f"lost={sum(each.lost for each in counts)} mended={sum(sum(each.mended.values()) for each in counts)} "
        f"wait={max(each.wait for each in counts):.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
