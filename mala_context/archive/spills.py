"""Files that are made from a session and go when the session is gone: full texts of capped tool results, indexes.

They lie beside the archives, in `spills/{session}/` and `search/`, and never below the repository. A full text is named
by its content, so that the same result is kept once, and appears in one step. `sweep` removes what belongs to sessions
of which neither transcript nor archive is left.
"""

from __future__ import annotations

import os
import shutil
import stat
import time

from mala_context.archive import layout, log
from mala_context.archive.directory import claim_repository, open_archives
from mala_context.archive.projects import find_transcript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.archive.kept import Kept

SPILLS = "spills"
SEARCH = "search"
NAME_LENGTH = 32
SUFFIX = ".txt"
_TRANSCRIPT = ".transcript"
RECENT = 3_600.0
"""Seconds in which a session counts as at work, so that nothing of it is removed."""


def spill_name(data: bytes) -> str:
    """Return the name of a full text. An end of line at its end makes no other text: `cat` and shells change it."""
    from hashlib import sha256

    return sha256(data.rstrip(b"\r\n")).hexdigest()[:NAME_LENGTH] + SUFFIX


class Spills:
    """The full texts of one repository's capped tool results.

    Args:
        repo_path: the repository.
    """

    def __init__(self, repo_path: str | os.PathLike[str]) -> None:
        self._repo = os.fspath(repo_path)
        self._root: str | None = None
        self._claimed = False

    @property
    def root(self) -> str:
        """Where they are; raises `ArchiveUnavailableError` where there is no place for them."""
        if self._root is None:
            self._root = os.path.join(os.path.realpath(layout.repo_runs_dir(self._repo)), SPILLS)
        return self._root

    def path(self, session_id: str, data: bytes) -> str:
        """Return where a text is kept, whether or not it is. Raises `InvalidSessionIdError`."""
        return os.path.join(self.root, layout.check_session_id(session_id), spill_name(data))

    def owner(self, path: str) -> str | None:
        """Return the real path if a path leads to one of our files, through links or not; `None` otherwise."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return None
        inside = real.startswith(self.root + os.sep) and real.endswith(SUFFIX)
        return real if inside and os.path.isfile(real) else None

    def write(self, session_id: str, data: bytes, transcript: str | None = None) -> str:
        """Keep a text and return its path; one that is kept already stays as it is.

        `transcript` is where the session's transcript is: the text is kept as long as that is there. Raises
        `ArchiveUnavailableError` where there is no place and `OSError` where it cannot be written.
        """
        if not self._claimed:
            claim_repository(self._repo)
            self._claimed = True
        path = self.path(session_id, data)
        os.close(open_archives(self.root, create=True))
        fd = open_archives(os.path.dirname(path), create=True)
        try:
            if transcript is not None:
                _publish(fd, _TRANSCRIPT, os.fsencode(transcript))
            _publish(fd, os.path.basename(path), data)
        finally:
            os.close(fd)
        return path


def _publish(directory: int, name: str, data: bytes) -> None:
    """Write a private file under its name in one step, unless it is there and whole."""
    from mala_context.archive.naming import create, discard, rename_to, write_all

    try:
        there = os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except FileNotFoundError:
        there = -1
    if there >= len(data.rstrip(b"\r\n")):
        return
    fd, temporary = create(directory, layout.TEMPORARY)
    try:
        os.fchmod(fd, 0o600)
        write_all(fd, data)
        rename_to(directory, fd, temporary, name)
    except BaseException:
        discard(directory, temporary)
        raise
    finally:
        os.close(fd)


def derived_dir(archive: Kept, kind: str) -> str | None:
    """Return where an archive keeps what is made from its sessions; `None` where there is no place on this machine."""
    from mala_context.errors import ArchiveUnavailableError

    if archive.repo_path is not None:
        try:
            return os.path.join(layout.repo_runs_dir(archive.repo_path), kind)
        except ArchiveUnavailableError:
            pass  # then beside the archive, if it has a place of its own
    try:
        location = archive.location
    except ArchiveUnavailableError:
        return None
    if not os.path.isabs(location):
        return None
    base, name = os.path.split(location)
    claimed = name == layout.ARCHIVES and layout.read_marker(base) is not None
    return os.path.join(base if claimed else location, kind)


def sweep(archive: Kept, projects_dirs: Sequence[str] | None = None, *, dry_run: bool = False) -> list[str]:
    """Remove what belongs to sessions that are gone, transcript and archive, and return their ids.

    In a dry run they are only named. What was written to within the last hour stays. Raises `OSError` where a file
    cannot be removed.
    """
    gone = set()
    for kind in (SPILLS, SEARCH):
        directory = derived_dir(archive, kind)
        try:
            names = [] if directory is None else sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            path = os.path.join(str(directory), name)
            session_id = name.partition(".")[0]
            if _is_recent(path) or not _is_gone(archive, session_id, path, projects_dirs):
                continue
            gone.add(session_id)
            if not dry_run:
                _remove(path)
    if gone and not dry_run:
        log.info("Full texts and indexes of %d sessions removed", len(gone))
    return sorted(gone)


def _is_recent(path: str) -> bool:
    try:
        newest = os.lstat(path).st_mtime
    except FileNotFoundError:
        return True
    return time.time() - newest < RECENT


def _is_gone(archive: Kept, session_id: str, path: str, projects_dirs: Sequence[str] | None) -> bool:
    from mala_context.errors import InvalidSessionIdError

    try:
        layout.check_session_id(session_id)
    except InvalidSessionIdError:
        return False  # not a name that we gave
    with archive.store(create=False).view(session_id) as files:
        if files.list():
            return False
    try:
        with open(os.path.join(path, _TRANSCRIPT), "rb") as file:
            if os.path.exists(os.fsdecode(file.read(65_536))):
                return False
    except (OSError, ValueError):
        pass
    return find_transcript(session_id, projects_dirs=projects_dirs) is None


def _remove(path: str) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
