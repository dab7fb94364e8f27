"""Which store of pieces an archive has."""

import os

import pytest

from mala_context.archive.layout import get_repo_runs_dir
from mala_context.archive.reader import absolute, open_store
from mala_context.archive.remote.reading import RemoteStore
from mala_context.errors import ArchiveUnavailableError


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "repo"


def test_a_directory_is_below_the_repository_or_the_working_directory_unless_it_says_all(repo, tmp_path):
    assert absolute("kept", repo) == str(repo / "kept")
    assert absolute("kept", None) == str(tmp_path / "kept")
    assert absolute("/kept", repo) == "/kept"
    assert absolute("~/kept", repo) == str(tmp_path / "home" / "kept")


def test_an_address_stays_what_it_is(repo):
    assert absolute("s3://bucket/kept", repo) == "s3://bucket/kept"
    assert isinstance(open_store("s3://bucket/kept", None, create=True), RemoteStore)


def test_nothing_is_created_by_looking(repo, tmp_path):
    assert open_store(str(tmp_path / "kept"), None, create=True).location == str(tmp_path / "kept")
    assert open_store(None, repo, create=False).location == os.path.join(get_repo_runs_dir(repo), "archives")
    assert list(tmp_path.iterdir()) == []


def test_a_repositorys_place_is_claimed_where_it_is_to_be_written_to(repo, tmp_path):
    store = open_store(None, repo, create=True)
    assert store.location == os.path.join(get_repo_runs_dir(repo), "archives")
    assert (tmp_path / "runs").is_dir()


def test_where_there_is_no_place_that_is_said(repo, tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ArchiveUnavailableError):
        open_store(None, repo, create=True)


def test_a_relative_home_is_no_place(monkeypatch):
    monkeypatch.setenv("HOME", "rel")
    with pytest.raises(ArchiveUnavailableError, match="no home directory"):
        absolute("~/archives", "/repo")
    monkeypatch.setenv("HOME", "/home/dev")
    assert absolute("~/archives", "/repo") == "/home/dev/archives"
