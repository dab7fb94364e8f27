"""What an archive does, as rounds of work that may be killed at any moment, and what has to hold afterwards."""

import os
import shutil

from mala_context.archive import search
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from tests.helpers.archive_tools import cat

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
        place.opened().catch_up()
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
                place.opened().catch_up()
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
        place.archive.prune(session_ids=VICTIMS, dry_run=False)
        for session in VICTIMS:
            self.fill(place, session)
            place.archive.prune(session_ids=[session], dry_run=False)
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
        verify_archive(place.archive, repair=True)


class Index(Operation):
    """Bringing the search index up to date, or making it again."""

    def prepare(self, place):
        place.talk("s", 40)
        place.keep("s")

    def round(self, place, tell):
        place.talk("s", 400)
        place.keep("s", tell)
        search.search_session(place.archive, "s", "word1")

    def next_run(self, place):
        super().next_run(place)
        search.search_session(place.opened(), "s", "word1")

    def check(self, place):
        super().check(place)
        found = search.search_session(place.opened(), "s", "word1*", limit=10_000)
        plain = TranscriptArchive(place.archive.location)
        again = os.path.join(place.base, "again")
        shutil.copytree(plain.location, os.path.join(again, "archives"))
        fresh = search.search_session(TranscriptArchive(os.path.join(again, "archives")), "s", "word1*", limit=10_000)
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
        for result in place.archive.catch_up():
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
        place.archive.prune(session_ids=["s"], dry_run=False)

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
