"""The side of an archive that only looks."""

import os

import pytest

from mala_context.archive import layout, manifests
from mala_context.archive.local_store import LocalStore
from mala_context.archive.reader import ArchiveReader
from mala_context.archive.remote.address import Target
from mala_context.errors import ArchiveBusyError, ArchiveUnavailableError
from tests.helpers.archive_memory import MemoryStore
from tests.helpers.archive_tools import rows


def keep(store, session_id, count=1):
    """Write pieces of ten bytes with their rows."""
    with store.lock(session_id, 1.0) as files:
        for number in range(count):
            name = layout.piece_name(session_id, None, 1, layout.stamp(10**15 + number), ".jsonl")
            files.publish(name, lambda write: write(b'{"n":"1"}\n'))
            files.append(manifests.dump([manifests.new_row("piece", 10**15, name=name, offset=10 * number, length=10)]))


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_it_says_what_is_archived():
    kept = ArchiveReader(store=MemoryStore())
    keep(kept.store(create=True), "s1", 2)
    keep(kept.store(create=True), "s2")
    assert [(each.offset, each.end) for each in kept.pieces("s1")] == [(0, 10), (10, 20)]
    assert len(kept.manifest("s1").rows) == 2
    assert sorted(each.session_id for each in kept.sessions()) == ["s1", "s2"]
    assert [each.session_id for each in kept.sessions("s2")] == ["s2"]
    assert kept.usage_bytes() == sum(each.stored for each in kept.sessions())
    assert (kept.pieces("s3"), kept.manifest("s3").rows) == ([], ())
    assert kept.location == "memory"


def test_it_needs_a_place(tmp_path):
    with pytest.raises(ValueError, match="a directory, a repo_path or a store"):
        ArchiveReader()


def test_a_relative_directory_is_the_repositorys_else_the_working_directorys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ArchiveReader("a/b").location == str(tmp_path / "a" / "b")
    assert ArchiveReader("a/b", repo_path=tmp_path / "repo").location == str(tmp_path / "repo" / "a" / "b")
    assert os.listdir(tmp_path) == []


def test_a_repositorys_place_is_claimed_by_who_writes(tmp_path, runs):
    kept = ArchiveReader(repo_path=tmp_path / "repo")
    assert kept.sessions() == []
    assert not runs.exists()
    place = kept.store(create=True).location
    assert place == kept.location == str(runs / layout.repo_key(str(tmp_path / "repo")) / "archives")
    assert kept.store(create=False) is kept.store(create=True)


def test_the_place_of_another_repository_is_not_taken(tmp_path, runs):
    """Two paths may have one key; what is looked at before and after that is known must not be mixed up."""
    first = ArchiveReader(repo_path="/a/b-c")
    keep(first.store(create=True), "s1")
    second = ArchiveReader(repo_path="/a-b/c")
    assert second.sessions() == []
    keep(second.store(create=True), "s2")
    assert [each.session_id for each in second.sessions()] == ["s2"]
    assert [each.session_id for each in ArchiveReader(repo_path="/a/b-c").sessions()] == ["s1"]


def test_for_many_sessions_it_lists_its_directory_once(tmp_path):
    kept = ArchiveReader(tmp_path)
    keep(kept.store(create=True), "s1")
    listed = kept.listed()
    assert type(listed) is ArchiveReader
    assert listed.sessions() == kept.sessions()
    assert listed.pieces("s1") == kept.pieces("s1")
    assert type(kept.store(create=False)) is LocalStore


def test_it_finds_a_transcript_by_its_name(tmp_path):
    path = tmp_path / "projects" / "-p" / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(rows(0, 1))
    kept = ArchiveReader(tmp_path / "archives", projects_dirs=[str(tmp_path / "projects")])
    assert kept.find_transcript("s1") == kept.listed().find_transcript("s1") == str(path)
    assert kept.find_transcript("s2") is None


def test_by_default_it_looks_where_this_process_has_its_transcripts_by_then(tmp_path, monkeypatch):
    path = tmp_path / "projects" / "-p" / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(rows(0, 1))
    kept = ArchiveReader(tmp_path / "archives")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    assert kept.find_transcript("s1") == str(path)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "other"))
    assert kept.find_transcript("s1") is None
    assert ArchiveReader(tmp_path / "archives", projects_dirs=[]).find_transcript("s1") is None


class TestObjectStore:
    def test_an_address_is_where_a_repositorys_archive_goes(self, tmp_path, runs):
        kept = ArchiveReader("memory://bucket/prefix", repo_path=tmp_path / "repo")
        assert kept.location.startswith(str(runs))
        assert kept.base().startswith("memory://bucket/prefix/")
        assert kept.base().endswith(layout.repo_key(str(tmp_path / "repo")))

    def test_a_target_goes_before_an_address(self, tmp_path):
        target = Target(address="memory://other")
        assert ArchiveReader("memory://bucket", repo_path=tmp_path, target=target).base().startswith("memory://other/")
        assert ArchiveReader(tmp_path / "archives", target=target).base().startswith("memory://other/")

    def test_an_address_without_a_repository_is_a_place_to_read(self):
        kept = ArchiveReader("memory://a-place-to-read")
        assert kept.location == "memory://a-place-to-read"
        assert kept.sessions() == []

    def test_one_that_goes_nowhere_says_what_would_name_a_place(self, tmp_path):
        with pytest.raises(ArchiveUnavailableError, match=r"archive\.directory names one"):
            ArchiveReader(tmp_path).base()
        with pytest.raises(ArchiveUnavailableError, match="goes to no object store"):
            ArchiveReader(tmp_path).bucket()

    def test_there_is_one_bucket(self, tmp_path):
        kept = ArchiveReader(tmp_path, target=Target(address="memory://bucket"))
        assert kept.bucket() is kept.bucket()
        assert kept.bucket().base == kept.base()

    @pytest.mark.parametrize("address", ["s3://user:secret@bucket", "ftp://somewhere"])
    def test_an_address_that_is_none_or_holds_a_secret_is_refused(self, tmp_path, address):
        with pytest.raises(ValueError, match="address") as caught:
            ArchiveReader(tmp_path, target=Target(address=address))
        assert "secret" not in str(caught.value)


def test_a_session_is_opened_and_locked_for_a_block(tmp_path):
    kept = ArchiveReader(tmp_path / "archives", timeout=0.05)
    with kept.view("s1") as files:
        assert list(files.list()) == []
    with kept.lock("s1") as files:
        files.append(b"{}\n")
        with pytest.raises(ArchiveBusyError):
            kept.lock("s1")
    with kept.view("s1") as files:
        assert files.manifest() == b"{}\n"
    with kept.lock("s1"):
        pass
