"""A program that archives, uploads and prunes, and is killed: `upload_killer.py BASE ADDRESS KILLS SEED`.

Each child is forked before the object store's library has begun a thread, works in a loop, and is killed at a random
moment. What it was told to be archived it acknowledges through a pipe. In the end a child that is not killed does what
the next start would do. The transcripts stay in BASE, for whoever compares them with what the store has; the last line
says how many kills there were and how many acknowledged pieces were checked.
"""

import os
import random
import sys

import obstore  # noqa: F401  # before the forks; its threads begin with its first request

from mala_context.archive import increment, pruning, writer  # noqa: F401  # before the forks
from mala_context.archive.remote import bucket, push  # noqa: F401  # likewise
from mala_context.archive.remote.address import Target
from mala_context.archive.store import TranscriptArchive
from tests.helpers.archive_killer import Site, kill_one


class RemoteSite(Site):
    """One session that is uploaded while it grows."""

    def __init__(self, base, session, address):
        super().__init__(base, session)
        target = Target(address=address, prefix="")
        self.archive = TranscriptArchive(os.path.join(base, "archives"), target=target, projects_dirs=[])

    def work(self, pipe):
        for number in range(10_000):
            self.grow(20)
            self.acknowledge(pipe)
            self.archive.push([self.session])
            if number % 3 == 2:
                self.archive.record_outcome(self.session, "compacted")
                self.archive.push([self.session])
                self.archive.prune(session_ids=[self.session], dry_run=False)

    def finish(self, _pipe):
        with open(self.transcript, "ab") as file:
            file.write(b"\n")  # a killed child may have torn its row
        self.archive.catch_up()
        self.archive.archive(self.transcript, self.session)
        result = self.archive.push()
        assert result.pending == (), result

    def check_after_kill(self):
        """Every acknowledged piece is listed, here or in the store, with the hash that was acknowledged."""
        assert self.archive.manifest(self.session).unreadable == ()
        there = {piece.plain: piece for piece in self.archive.pieces(self.session)}
        for name, digest in self.acknowledged.items():
            piece = there[name]
            if piece.remote is None:
                assert os.path.getsize(os.path.join(self.base, "archives", name)) == piece.stored
            assert piece.sha256 in {None, digest}, name


def main(base, address, count, seed):
    chance = random.Random(seed)
    kills = checked = 0
    while kills < count:
        site = RemoteSite(base, f"s{kills}", address)
        for _ in range(min(20, count - kills)):
            with open(site.transcript, "ab") as file:
                site.next_row = file.tell()
            kills += kill_one(site, site.work, (chance.randint(0, 3), chance.uniform(0, 0.15)))
            site.check_after_kill()
        assert not kill_one(site, site.finish, None)
        site.check_after_kill()
        checked += len(site.acknowledged)
    print(f"kills={kills} checked={checked}")


if __name__ == "__main__":
    base, address, *numbers = sys.argv[1:]
    os.makedirs(base, exist_ok=True)
    main(base, address, *map(int, numbers))
