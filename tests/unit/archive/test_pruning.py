"""What goes past a limit, and what stays: the rows of uploads are written here as a push writes them."""

import hashlib
import json
import os
import time

import pytest

from mala_context.archive import manifests
from mala_context.archive.layout import manifest_name
from mala_context.archive.remote import uploaded
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.writer import LocalView

STORE = "s3://bucket/archives"


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(directory=tmp_path / "archives", projects_dirs=[])


@pytest.fixture
def add(archive, tmp_path):
    def add_session(session_id, *, days=0.0, transcript=True, pieces=1):
        path = tmp_path / f"{session_id}.jsonl"
        for number in range(pieces):
            with path.open("a") as file:
                file.write(json.dumps({"type": "user", "uuid": f"{session_id}-{number}"}) + "\n")
            archive.archive(str(path), session_id, trigger="auto")
        archive.register_session(session_id, str(path))
        age(session_id, days)
        if not transcript:
            path.unlink()

    def age(session_id, days):
        then = time.time() - days * 86_400
        for name in os.listdir(archive.location):
            if name.startswith(session_id):
                os.utime(os.path.join(archive.location, name), (then, then))

    return add_session


def push(archive, session_id, *, manifest=True, but=()):
    """Write down that a store has a session's files, as `push` does once they have arrived."""
    with archive.store(create=False).lock(session_id, 1.0) as files:
        rows = []
        for piece in archive.pieces(session_id):
            if piece.name not in but:
                with open(os.path.join(archive.location, piece.name), "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                rows.append(uploaded.new_row(piece.name, STORE, piece.stored, digest, time.time_ns() // 1000))
        if manifest:
            rows.append(uploaded.new_row(manifest_name(session_id), STORE, 1, "0" * 64, time.time_ns() // 1000))
        files.append(manifests.dump(rows))


def here(archive, session_id):
    return sorted(name for name in os.listdir(archive.location) if name.startswith(session_id))


def prune(archive, **limits):
    return archive.prune(dry_run=False, **limits)


class TestHereAlone:
    def test_a_dry_run_says_what_would_go_and_nothing_goes(self, archive, add):
        add("old", days=10)
        add("new")
        result = archive.prune(days=5)
        assert (result.removed, result.dry_run) == (("old",), True)
        assert result.freed > 0
        assert len(here(archive, "old")) == 2

    def test_what_is_past_the_limit_goes_with_its_manifest(self, archive, add):
        add("old", days=10, pieces=2)
        add("new")
        result = prune(archive, days=5)
        assert (result.removed, result.uploaded, result.not_uploaded) == (("old",), (), ())
        assert (here(archive, "old"), len(here(archive, "new"))) == ([], 2)

    def test_the_only_copy_stays_unless_it_is_named(self, archive, add):
        add("old", days=10, transcript=False)
        assert prune(archive, days=5).only_copies == ("old",)
        assert prune(archive, session_ids=["old"]).removed == ("old",)

    def test_of_many_the_newest_stay(self, archive, add):
        for number in range(4):
            add(f"s{number}", days=number)
        assert set(prune(archive, sessions=2).removed) == {"s2", "s3"}

    def test_keep_is_held_with_nobody_looking_on(self, archive, add):
        archive.keep = {"sessions": 1}
        add("old", days=3)
        add("new")
        assert archive.apply_keep().removed == ("old",)
        assert here(archive, "old") == []


class Told:
    """What is told how far the work is."""

    def __init__(self):
        self.seen, self.done, self.expected = [], [], []

    def __call__(self, size):
        self.done.append(size)

    def found(self, size):
        self.seen.append(size)

    def expect(self, size, sessions):
        self.expected.append((size, sessions))


class TestOfVeryMany:
    @pytest.mark.parametrize("dry", [True, False])
    def test_whoever_waits_is_told_of_each_session(self, archive, add, dry):
        for number in range(5):
            add(f"s{number}", days=number)
        told = Told()
        sizes = sorted(each.stored for each in archive.sessions())
        result = archive.prune(sessions=2, dry_run=dry, progress=told)
        assert len(result.removed) == 3
        assert sorted(told.seen) == sizes
        assert told.expected == [(sum(told.done), len(told.done))]
        assert len(told.done) == (3 if dry else 6)  # each is looked into, and then removed

    def test_no_manifest_is_read_of_what_stays(self, archive, add, monkeypatch):
        for number in range(9):
            add(f"s{number}", days=number)
        read = []
        real = LocalView.manifest
        monkeypatch.setattr(LocalView, "manifest", lambda view: read.append(view.session_id) or real(view))
        assert archive.prune(sessions=8).removed == ("s8",)
        assert set(read) == {"s8"}


class TestInAStore:
    def test_of_one_that_has_arrived_only_the_manifest_stays_here(self, archive, add):
        add("old", days=10, pieces=2)
        push(archive, "old")
        result = prune(archive, session_ids=["old"])
        assert (result.removed, result.uploaded) == (("old",), ("old",))
        assert result.freed > 0
        assert here(archive, "old") == [manifest_name("old")]
        assert len(uploaded.uploads(archive.manifest("old"), STORE)) == 3

    def test_and_what_has_gone_already_does_not_go_again(self, archive, add):
        add("old", days=10)
        push(archive, "old")
        prune(archive, session_ids=["old"])
        assert prune(archive, session_ids=["old"]).removed == ()

    def test_one_whose_transcript_is_gone_is_no_only_copy(self, archive, add):
        add("old", transcript=False)
        push(archive, "old")
        assert prune(archive, bytes=0).uploaded == ("old",)

    @pytest.mark.parametrize("manifest", [True, False], ids=["a piece is missing", "the manifest is missing"])
    def test_one_that_has_not_arrived_whole_stays_even_if_it_is_named(self, archive, add, manifest):
        add("old", days=10, pieces=2)
        first = archive.pieces("old")[0].name
        push(archive, "old", manifest=manifest, but=(first,) if manifest else ())
        before = here(archive, "old")
        result = prune(archive, days=5, session_ids=["old"])
        assert (result.removed, result.not_uploaded) == ((), ("old",))
        assert here(archive, "old") == before

    def test_one_that_somebody_writes_to_is_left_alone(self, archive, add):
        add("old", days=10)
        push(archive, "old")
        with archive.store(create=False).lock("old", 1.0):
            result = prune(archive, session_ids=["old"])
        assert result.freed == 0
        assert len(here(archive, "old")) == 2

    def test_a_dry_run_takes_nothing_there_either(self, archive, add):
        add("old", days=10)
        push(archive, "old")
        assert archive.prune(session_ids=["old"]).uploaded == ("old",)
        assert len(here(archive, "old")) == 2
