"""Kills writers of an archive with SIGKILL and looks at what they left.

Run as a process of its own, `archive_killer.py DIRECTORY random COUNT SEED` or `archive_killer.py DIRECTORY steps`,
since it forks: in `random` a child archives, packs and prunes in a loop until it is killed at a random moment; in
`steps` one operation is killed before each of its calls into the system in turn. What a child was told to be archived
it acknowledges through a pipe. The last line of the output says how many kills there were and how many acknowledged
pieces were checked; a promise that is broken is an AssertionError.
"""

import os
import random
import signal
import sys
import time

from mala_context.archive import directory, increment, packing, retention, writer  # noqa: F401  # before the forks
from mala_context.archive.source import digest_of
from mala_context.archive.store import TranscriptArchive
from tests.helpers.archive_tools import cat, rows
from tests.helpers.fork_work import Fork

CALLS = ("open", "write", "fsync", "link", "unlink", "rename", "utime", "fchmod", "mkdir", "close")
KILLS_A_SESSION = 15


class Site:
    """One session's transcript, its archive, and what was acknowledged."""

    def __init__(self, base, session):
        self.base, self.session = base, session
        self.archive = TranscriptArchive(os.path.join(base, "archives"), projects_dirs=[])
        self.transcript = os.path.join(base, f"{session}.jsonl")
        self.acknowledged = {}
        self.next_row = 0

    def grow(self, count):
        with open(self.transcript, "ab") as file:
            file.write(rows(self.next_row, self.next_row + count))
        self.next_row += count

    def acknowledge(self, pipe):
        result = self.archive.archive(self.transcript, self.session, trigger="auto")
        if result.path is not None:
            os.write(pipe, f"{os.path.basename(result.path)} {result.sha256}\n".encode())

    def work(self, pipe):
        for number in range(10_000):
            self.grow(50)
            self.acknowledge(pipe)
            self.archive.record_outcome(self.session, "compacted")
            if number % 3 == 2:
                self.archive.pack([self.session])
            victim = f"victim{number % 4}"
            self.archive.archive(self.transcript, victim)
            self.archive.prune(session_ids=[victim], dry_run=False)

    def check(self, *, one_chain=True):
        """Look at what is there after a kill, then go on as the next run does."""
        manifest = self.archive.manifest(self.session)
        assert manifest.unreadable == (), manifest.unreadable
        self.check_acknowledged()
        with open(self.transcript, "ab") as file:
            file.write(b"\n")  # the killed child may have torn its row
        self.archive.catch_up()
        self.archive.archive(self.transcript, self.session)
        with open(self.transcript, "rb") as file:
            assert cat(self.archive, self.session) == file.read(), "pieces are not the transcript"
        chains = {piece.chain for piece in self.archive.pieces(self.session)}
        assert chains == {1} or not one_chain, "a chain was broken"
        left = [name for name in os.listdir(self.archive.location) if name.startswith(".tmp")]
        assert not left, left
        self.check_acknowledged()

    def check_acknowledged(self):
        there = {piece.plain: piece for piece in self.archive.pieces(self.session)}
        with self.archive.view(self.session) as files:
            for name, digest in self.acknowledged.items():
                reader = increment.open_plain(files, there[name])
                assert digest_of(reader)[0] == digest, name
                reader.close()


def kill_one(site, work, when):
    """Fork a child that works, kill it (or let it kill itself), and take what it acknowledged.

    `when` is a number of acknowledgements to wait for and then a pause in seconds. Waiting for work and not for time
    alone keeps a busy machine from killing every child before it has done anything.
    """
    child, lines = Fork(work), []
    if when is not None:
        lines = [child.pipe.readline() for _ in range(when[0])]
        time.sleep(when[1])
        child.kill()
    rest, killed = child.end()
    for line in [*lines, *rest.splitlines()]:
        name, digest = line.decode().split()
        site.acknowledged[name] = digest
    return killed


def at_random(base, count, seed):
    chance = random.Random(seed)
    kills = checked = 0
    while kills < count:
        site = Site(base, f"s{kills}")
        for _ in range(min(KILLS_A_SESSION, count - kills)):
            with open(site.transcript, "ab") as file:
                site.next_row = file.tell()
            kills += kill_one(site, site.work, (chance.randint(0, 4), chance.uniform(0, 0.03)))
            site.check()
        checked += len(site.acknowledged)
    return kills, checked


def dying(operation, step):
    """Return the operation with a kill before its call number `step` into the system."""

    def work(_pipe):
        count = 0

        def wrap(real):
            def call(*args, **kwargs):
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            return call

        for name in CALLS:
            setattr(os, name, wrap(getattr(os, name)))
        operation()

    return work


def at_each_step(base):
    kills = 0
    for number, operation in enumerate(("first", "next", "pack", "outcome", "side", "prune")):
        step, alive = 0, True
        while alive:
            step += 1
            site = Site(os.path.join(base, f"{number}-{step}"), "s")
            os.makedirs(os.path.join(site.base, "s"))
            site.grow(20)
            if operation != "first":
                site.archive.archive(site.transcript, "s", trigger="auto")
                site.grow(20)
            site.archive.archive(site.transcript, "other")
            with open(os.path.join(site.base, "s", "side.txt"), "wb") as file:
                file.write(b"side")
            site.acknowledged = {piece.plain: piece.sha256 for piece in site.archive.pieces("s")}
            run = {
                "first": lambda site=site: site.archive.archive(site.transcript, "s"),
                "next": lambda site=site: site.archive.archive(site.transcript, "s"),
                "pack": lambda site=site: site.archive.pack(["s"]),
                "outcome": lambda site=site: site.archive.record_outcome("s", "compacted"),
                "side": lambda site=site: site.archive.archive_side_files(site.transcript, "s"),
                "prune": lambda site=site: site.archive.prune(session_ids=["other"], dry_run=False),
            }[operation]
            alive = kill_one(site, dying(run, step), None)
            kills += alive
            site.check()
        assert step > 5, f"{operation} made {step} calls only"
    return kills, kills


if __name__ == "__main__":
    base, how, *numbers = sys.argv[1:]
    os.makedirs(base, exist_ok=True)
    done = at_each_step(base) if how == "steps" else at_random(base, *map(int, numbers))
    print("kills={} checked={}".format(*done))
