"""Files that are made from a session and go when it is gone."""

import os
import stat
import threading
import time

import pytest

from mala_context.archive import full_outputs as spills_module
from mala_context.archive.full_outputs import SPILLS, Spills, derived_dir, spill_name, sweep
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveUnavailableError, InvalidSessionIdError


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    path = tmp_path / "repo"
    path.mkdir()
    return path


def age(path, seconds=7_200):
    when = time.time() - seconds
    os.utime(path, (when, when))


def test_a_text_is_private_outside_of_the_repository_and_kept_once(repo, tmp_path):
    spills = Spills(repo)
    path = spills.write("s1", "ä full text\n".encode())
    assert path == spills.path("s1", "ä full text\n".encode())
    assert spills.write("s1", "ä full text".encode()) == path
    with open(path, "rb") as file:
        assert file.read() == "ä full text\n".encode()
    assert path.startswith(os.path.realpath(tmp_path / "runs") + os.sep)
    assert not path.startswith(str(repo) + os.sep)
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    place = os.path.dirname(path)
    while place != str(tmp_path):
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o700, place
        place = os.path.dirname(place)


def test_only_the_end_of_line_at_the_end_makes_no_other_text():
    assert spill_name(b"a\n") == spill_name(b"a") == spill_name(b"a\r\n\n")
    assert len({spill_name(data) for data in (b"a", b"b", b"a\nb", b" a")}) == 4


def test_a_text_that_was_cut_by_a_crash_is_written_again(repo):
    spills = Spills(repo)
    path = spills.write("s1", b"whole text")
    with open(path, "wb"):
        pass
    spills.write("s1", b"whole text")
    with open(path, "rb") as file:
        assert file.read() == b"whole text"


def test_many_writers_at_once(repo):
    spills = Spills(repo)
    threads = [threading.Thread(target=spills.write, args=("s1", b"x" * 10_000)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir(os.path.dirname(spills.path("s1", b"")))) == 1


def test_a_failed_write_leaves_nothing(repo, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    spills = Spills(repo)
    spills.write("s0", b"the place is there")
    monkeypatch.setattr("mala_context.archive.atomic_write.write_all", full)
    with pytest.raises(OSError, match="No space"):
        spills.write("s1", b"text")
    assert os.listdir(os.path.dirname(spills.path("s1", b""))) == []


def test_whose_file_it_is(repo, tmp_path):
    spills = Spills(repo)
    path = spills.write("s1", b"text")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert spills.owner(path) == spills.owner(str(link)) == os.path.realpath(path)
    other = tmp_path / "other.txt"
    other.write_text("text")
    for each in (str(other), os.path.dirname(path), path + "x", "", "\0", str(tmp_path / "missing")):
        assert spills.owner(each) is None


def test_an_id_that_is_no_name_is_refused(repo):
    with pytest.raises(InvalidSessionIdError):
        Spills(repo).write("../s1", b"text")


def test_no_place(repo, monkeypatch):
    monkeypatch.delenv("MALA_RUNS_DIR")
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", "/")
    with pytest.raises(ArchiveUnavailableError):
        Spills(repo).write("s1", b"text")


def test_where_derived_files_are(repo, tmp_path):
    runs = derived_dir(TranscriptArchive(repo_path=repo), SPILLS)
    assert runs == os.path.join(os.path.dirname(TranscriptArchive(repo_path=repo).location), SPILLS)
    beside = TranscriptArchive(os.path.join(os.path.dirname(runs), "archives"))
    assert derived_dir(beside, SPILLS) == os.path.join(beside.location, SPILLS)  # nobody's runs directory yet
    Spills(repo).write("s1", b"text")
    assert derived_dir(beside, SPILLS) == runs
    assert derived_dir(TranscriptArchive(tmp_path / "x"), SPILLS) == str(tmp_path / "x" / SPILLS)


class Remote:
    location = "s3://bucket/archives"


def test_where_there_is_no_place(repo, tmp_path, monkeypatch):
    assert derived_dir(TranscriptArchive(store=Remote()), SPILLS) is None
    for name, value in (("MALA_RUNS_DIR", ""), ("XDG_CONFIG_HOME", ""), ("HOME", "/")):
        monkeypatch.setenv(name, value)
    assert derived_dir(TranscriptArchive(repo_path=repo), SPILLS) is None
    own = TranscriptArchive(tmp_path / "x", repo_path=repo)
    assert derived_dir(own, SPILLS) == str(tmp_path / "x" / SPILLS)
    assert sweep(own) == []


def test_texts_live_as_long_as_transcript_or_archive(repo, tmp_path):
    """A session's texts go once neither is left, also if the transcript lies where nobody else would look."""
    projects = tmp_path / "projects"
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[str(projects)])
    (projects / "p").mkdir(parents=True)
    transcript = tmp_path / "elsewhere.jsonl"
    transcript.write_text('{"type":"user"}\n')
    found = projects / "p" / "s2.jsonl"
    found.write_text('{"type":"user"}\n')
    spills = Spills(repo)
    one = os.path.dirname(spills.write("s1", b"text", str(transcript)))
    two = os.path.dirname(spills.write("s2", b"text"))
    three = os.path.dirname(spills.write("s3", b"text"))
    archive.archive(str(found), "s3")

    def left():
        for each in (one, two, three):
            if os.path.isdir(each):
                age(each)
        archive.prune(dry_run=False)
        return [os.path.isdir(each) for each in (one, two, three)]

    assert left() == [True, True, True]
    transcript.unlink()
    assert left() == [False, True, True]
    found.unlink()
    assert left() == [False, False, True]
    archive.prune(session_ids=["s3"], dry_run=True)
    assert os.path.isdir(three)
    archive.prune(session_ids=["s3"], dry_run=False)
    assert os.path.exists(three) is False


def test_a_session_at_work_and_foreign_files_stay(repo):
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
    path = os.path.dirname(Spills(repo).write("s1", b"text"))
    foreign = os.path.join(os.path.dirname(path), "not a session")
    os.mkdir(foreign)
    age(foreign)
    assert sweep(archive) == []
    age(path)
    assert sweep(archive, dry_run=True) == ["s1"]
    assert os.path.isdir(path)
    assert sweep(archive) == ["s1"]
    assert os.listdir(os.path.dirname(path)) == ["not a session"]


def test_an_index_goes_too(repo):
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
    directory = derived_dir(archive, spills_module.SEARCH)
    os.makedirs(directory)
    path = os.path.join(directory, "s1.sqlite")
    with open(path, "wb") as file:
        file.write(b"x")
    age(path)
    assert sweep(archive) == ["s1"]
    assert os.listdir(directory) == []


def test_two_at_once_remove_all_of_it(repo):
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
    for number in range(40):
        age(os.path.dirname(Spills(repo).write(f"s{number}", b"text")))
    threads = [threading.Thread(target=sweep, args=(archive,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(derived_dir(archive, SPILLS)) == []


@pytest.mark.parametrize("kind", [SPILLS, spills_module.SEARCH])
def test_a_link_in_place_of_their_directory_has_nothing_behind_it_removed(kind, repo, tmp_path):
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
    directory = derived_dir(archive, kind)
    os.makedirs(os.path.dirname(directory))
    theirs = tmp_path / "documents"
    (theirs / "thesis").mkdir(parents=True)
    (theirs / "thesis" / "one.txt").write_text("keep me")
    (theirs / "thesis.sqlite").write_text("keep me")
    for each in theirs.iterdir():
        age(each)
    os.symlink(theirs, directory)
    assert sweep(archive) == []
    archive.prune(dry_run=False)
    assert sorted(os.listdir(theirs)) == ["thesis", "thesis.sqlite"]
    assert (theirs / "thesis" / "one.txt").read_text() == "keep me"


def test_only_what_has_a_name_of_ours_is_removed(repo):
    """A link further up may lead to a directory that is the user's and happens to have such a name."""
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
    path = os.path.dirname(Spills(repo).write("s1", b"text", "/nowhere"))
    for name in ("notes.txt", "0" * 32, "g" * 32 + ".txt", "sub"):
        os.mkdir(os.path.join(path, name))
    search = derived_dir(archive, spills_module.SEARCH)
    os.makedirs(search)
    for name in ("query.py", "s1.sqlite", "s1.sqlite-journal", "s1.sqlite.bak", "s2", ".sqlite"):
        with open(os.path.join(search, name), "wb"):
            pass
        age(os.path.join(search, name))
    age(path)
    assert sweep(archive) == ["s1"]
    assert sorted(os.listdir(path)) == ["0" * 32, "g" * 32 + ".txt", "notes.txt", "sub"]
    assert sorted(os.listdir(search)) == [".sqlite", "query.py", "s1.sqlite.bak", "s2"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/passwd", path)])
def test_what_stands_in_place_of_the_transcripts_path_says_nothing(make, repo):
    archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
    path = os.path.dirname(Spills(repo).write("s1", b"text"))
    make(os.path.join(path, ".transcript"))
    age(path)
    assert sweep(archive) == ["s1"]
