"""Opening the archives' directory."""

import errno
import logging
import os
import stat
import threading

import pytest

from mala_context.archive import directory, layout
from mala_context.archive.directory import claim_repository, drop_markers
from mala_context.errors import ArchiveUnavailableError


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_new_directories_are_private_whatever_the_umask(tmp_path, umask):
    path = tmp_path / "a" / "b" / "archives"
    old = os.umask(umask)
    try:
        os.close(directory.open_archives(str(path), create=True))
    finally:
        os.umask(old)
    assert {stat.S_IMODE(os.stat(each).st_mode) for each in (path, path.parent, path.parent.parent)} == {0o700}


@pytest.mark.parametrize(("mode", "level"), [(0o777, logging.WARNING), (0o755, logging.INFO), (0o500, logging.INFO)])
def test_a_directory_of_ours_is_tightened_and_that_is_said(tmp_path, mode, level, caplog):
    caplog.set_level(logging.INFO, logger="mala_context.archive")
    path = tmp_path / "archives"
    path.mkdir()
    path.chmod(mode)
    os.close(directory.open_archives(str(path), create=True))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [(record.levelno, f"{mode:04o}" in record.getMessage()) for record in caplog.records] == [(level, True)]
    os.close(directory.open_archives(str(path), create=True))
    assert len(caplog.records) == 1


def test_a_directory_of_other_files_is_no_place_to_tighten(tmp_path, caplog):
    path = tmp_path / "etc"
    path.mkdir()
    (path / "passwd").write_text("x")
    path.chmod(0o755)
    os.close(directory.open_archives(str(path), create=True))
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert "mode 0755 and files of other programs: the mode stays" in caplog.text
    (path / "s1.manifest.jsonl").write_text("")
    os.close(directory.open_archives(str(path), create=False))
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    os.close(directory.open_archives(str(path), create=True))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_link_is_refused_and_nothing_is_made_behind_it(tmp_path):
    (tmp_path / "target").mkdir()
    os.symlink(tmp_path / "target", tmp_path / "archives")
    with pytest.raises(ArchiveUnavailableError, match="symbolic link"):
        directory.open_archives(str(tmp_path / "archives"), create=True)
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling")
    with pytest.raises(ArchiveUnavailableError, match="symbolic link"):
        directory.open_archives(str(tmp_path / "dangling"), create=True)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["archives", "archives/below"])
def test_a_file_in_its_place_is_refused(tmp_path, name):
    (tmp_path / "archives").write_text("x")
    with pytest.raises(ArchiveUnavailableError, match="not a directory"):
        directory.open_archives(str(tmp_path / name), create=True)


def test_a_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "archives"
    path.mkdir(mode=0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ArchiveUnavailableError, match="belongs to user"):
        directory.open_archives(str(path), create=True)


def test_reading_makes_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        directory.open_archives(str(tmp_path / "archives"), create=False)
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_names_the_variable(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(ArchiveUnavailableError, match=r"Permission denied.*MALA_RUNS_DIR"):
        directory.open_archives(str(tmp_path / "archives"), create=True)
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    with pytest.raises(ArchiveUnavailableError, match=r"Permission denied.*MALA_RUNS_DIR"):
        directory.claim_repository("/a/b")


def test_windows_is_told_plainly(monkeypatch):
    monkeypatch.setattr(directory.os, "name", "nt")
    with pytest.raises(ArchiveUnavailableError, match="Windows"):
        directory.check_platform()


def test_two_repositories_of_one_key_get_two_directories_also_at_the_same_moment(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path))
    paths = ["/a/b-c", "/a-b/c", "/a-b-c", "/a/b/c"]
    barrier = threading.Barrier(len(paths))
    found = {}

    def claim(path):
        barrier.wait()
        found[path] = directory.claim_repository(path)

    threads = [threading.Thread(target=claim, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found.values())) == len(paths)
    for path, place in found.items():
        assert directory.claim_repository(path) == place
        assert layout.read_marker(os.path.dirname(place)) == path
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name != layout.REPO_MARKER]


def test_what_a_killed_claim_left_is_mended(tmp_path, monkeypatch):
    """A marker half-written under another name, and one that was held but never filled."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    place = os.path.dirname(claim_repository(tmp_path))
    (tmp_path / "runs").chmod(0o700)
    left = os.path.join(place, f"{layout.REPO_MARKER}.0123456789abcdef")
    with open(left, "w") as file:
        file.write("half")
    drop_markers(place)
    assert os.listdir(place) == [layout.REPO_MARKER]
    marker = os.path.join(place, layout.REPO_MARKER)
    with open(marker, "w"):
        pass
    drop_markers(place)  # nothing is dropped where nobody has claimed it
    claim_repository(tmp_path)
    assert layout.read_marker(place) is None  # just now: somebody may be about to fill it
    os.utime(marker, (10**9, 10**9))
    claim_repository(tmp_path)
    assert layout.read_marker(place) == str(tmp_path)


def test_a_repository_is_claimed_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "no links here")

    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr(os, "link", refuse)
    place = os.path.dirname(claim_repository(tmp_path))
    assert os.listdir(place) == [layout.REPO_MARKER]
    assert layout.read_marker(place) == str(tmp_path)


def test_a_claim_that_another_made_meanwhile_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))

    def lose(source, target, *, dst_dir_fd, **_):
        fd = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=dst_dir_fd)
        os.write(fd, os.fsencode(str(tmp_path)))
        os.close(fd)
        raise FileNotFoundError(2, "dropped by another")

    monkeypatch.setattr(os, "link", lose)
    place = os.path.dirname(claim_repository(tmp_path))
    assert layout.read_marker(place) == str(tmp_path)


@pytest.mark.parametrize("what", ["a file", "a directory"])
def test_what_is_swapped_in_for_a_new_directory_keeps_its_mode(what, tmp_path, monkeypatch):
    """Where its directory's group is inherited a new one has another mode than it should, and is changed."""
    victim = tmp_path / "victim"
    victim.mkdir() if what == "a directory" else victim.write_text("x")
    victim.chmod(0o755)
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o2777)
    mkdir = os.mkdir

    def and_swap(path, *args, **more):
        mkdir(path, *args, **more)
        os.rmdir(path)
        os.symlink(victim, path)

    monkeypatch.setattr(os, "mkdir", and_swap)
    with pytest.raises(ArchiveUnavailableError, match=r"symbolic link|not a directory"):
        directory.open_archives(str(place / "archives"), create=True)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


def test_a_mode_is_set_on_ours_alone(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("x")
    link = tmp_path / "link"
    link.symlink_to(path)
    for mode in (0o000, 0o200, 0o666):
        path.chmod(mode)
        assert not directory.set_mode(str(link), 0o600)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert directory.set_mode(str(path), 0o600)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not directory.set_mode(str(tmp_path / "none"), 0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert not directory.set_mode(str(path), 0o640)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("mode", "group", "swapped"),
    [
        (0o700, None, False),
        (0o755, None, False),
        (0o775, None, False),  # a group of one's own
        (0o775, 54321, True),
        (0o777, None, True),
        (0o1777, None, False),
    ],
)
def test_whether_others_may_swap_a_directory_on_the_way(mode, group, swapped, tmp_path, monkeypatch):
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    place.parent.chmod(mode)
    if group is not None:
        monkeypatch.setattr(os, "getegid", lambda: group)
        monkeypatch.setattr(os, "lstat", lambda path, real=os.lstat: Group(real(path)))
    assert directory.others_may_swap(str(place)) is swapped
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert directory.others_may_swap(str(place)) is (swapped or os.getuid() != 0)


class Group:
    """A status whose group is not ours."""

    def __init__(self, status):
        self.st_mode, self.st_uid, self.st_gid = status.st_mode, status.st_uid, 12345


def test_a_relative_directory_is_made_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory.make_directories(os.path.join("a", "b"))
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_directory_that_another_makes_at_the_same_moment_is_no_error(tmp_path, monkeypatch):
    mkdir = os.mkdir

    def second(path, *args, **more):
        mkdir(path, *args, **more)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "mkdir", second)
    os.close(directory.open_archives(str(tmp_path / "a" / "archives"), create=True))
    assert stat.S_IMODE((tmp_path / "a" / "archives").stat().st_mode) == 0o700


def test_a_directory_that_goes_while_it_is_made_is_said(tmp_path, monkeypatch):
    mkdir = os.mkdir

    def and_remove(path, *args, **more):
        mkdir(path, *args, **more)
        os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", and_remove)
    with pytest.raises(ArchiveUnavailableError, match="cannot be created"):
        directory.open_archives(str(tmp_path / "archives"), create=True)


def test_a_parent_that_cannot_be_opened_is_not_waited_for_on_the_disk(tmp_path, monkeypatch):
    """One that may be passed through and not read is no reason to archive nothing."""
    real = os.open

    def passing_only(path, *args, **more):
        if path == str(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", passing_only)
    os.close(directory.open_archives(str(tmp_path / "archives"), create=True))


def test_a_mode_that_the_file_system_does_not_keep_is_not_set(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    assert not directory.set_mode(str(tmp_path), 0o700)


def test_a_claim_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))

    def full(fd):
        if stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("mala_context.archive.atomic_write.sync", full)
        with pytest.raises(ArchiveUnavailableError, match="No space left"):
            claim_repository("/a/b")
    assert os.listdir(tmp_path / "runs" / "-a-b") == []
    assert claim_repository("/a/b") == str(tmp_path / "runs" / "-a-b" / "archives")
