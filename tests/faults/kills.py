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
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import obstore  # noqa: F401  # before the forks; its threads begin with its first request
from operations import OPERATIONS
from places import MENDED, Place

from mala_context.agent.archiving import SessionArchiver
from mala_context.archive import packing, pruning, restore, search, writer  # noqa: F401  # before the forks
from mala_context.archive.remote import bucket, push  # noqa: F401  # likewise
from mala_context.archive.verify import verify_archive
from tests.helpers.fork_work import Fork, apart

KILLS_A_PLACE = 10
CALLS = ("open", "read", "write", "fsync", "link", "rename", "unlink", "utime", "fchmod", "mkdir", "stat", "listdir")
BESIDE = {"index": (search, "_bring_up"), "store": (bucket.Bucket, "put"), "read back": (bucket.Bucket, "digest")}
PLACES = ("Python", *CALLS, *BESIDE)


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

    def work(pipe):
        watched(shared)
        for _ in range(10_000):
            os.write(pipe, b"round\n")
            operation.round(place, lambda line: os.write(pipe, line.encode() + b"\n"))

    child = Fork(work)
    lines = _rounds(child.pipe, chance.randint(2, 3))
    time.sleep(chance.uniform(0, pace))
    child.kill()
    rest, killed = child.end()
    assert killed, "the child ended by itself"
    for line in [*lines, *rest.splitlines()]:
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
    archivist = SessionArchiver(place.opened())
    archivist.archive.on_change(None)
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
    verify_archive(place.opened(), repair=True)
    assert place.check_verify() == [], "what is wrong was not mended"
    assert place.left() == [], f"left for ever: {place.left()}"
    operation.check(place)
    mended = [*kinds, *("temporary file" for _ in left)]
    return lost + place.lost(), mended, wait, place.committed


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
