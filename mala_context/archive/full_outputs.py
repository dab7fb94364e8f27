"""Files that are made from a session and are removed with it: full texts of capped tool results, and search indexes.

They lie beside the archives, in `spills/{session}/` and `search/`, and never below the repository. A full text is named
by its content, so that the same result is kept once. It appears in one step. `sweep` removes the files of sessions of
which neither transcript nor archive is left. It removes only names that this package gives, in a directory of this
user: it once removed a whole folder through a link that another user had put there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

from mala_context._util.safe_open import DIRECTORY, READ, Held
from mala_context.archive import layout, log
from mala_context.archive.atomic_write import ARCHIVE_TEMPORARY
from mala_context.archive.directory import claim_repository, open_archives
from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mala_context.archive.reader import ArchiveReader

SPILLS = "spills"
SEARCH = "search"
NAME_LENGTH = 32
SUFFIX = ".txt"
INDEX_SUFFIXES = (".sqlite", ".sqlite-journal")
_TRANSCRIPT = ".transcript"
_HEX = frozenset("0123456789abcdef")
RECENT = 3_600.0
"""Seconds since its last write in which a session counts as running, so that none of its files is removed."""


def spill_name(data: bytes) -> str:
    """Return the name of a full text. Line ends at its end do not count: `cat` and shells add or remove them."""
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
        """The directory of the texts; raises `ArchiveUnavailableError` if there is no place for it."""
        if self._root is None:
            self._root = os.path.join(os.path.realpath(layout.repo_runs_dir(self._repo)), SPILLS)
        return self._root

    def path(self, session_id: str, data: bytes) -> str:
        """Return the path at which a text is kept, or would be. Raises `InvalidSessionIdError`."""
        return os.path.join(self.root, check_session_id(session_id), spill_name(data))

    def owner(self, path: str) -> str | None:
        """Return the real path if a path leads to one of our files, through links or not; `None` otherwise."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return None
        inside = real.startswith(self.root + os.sep) and real.endswith(SUFFIX)
        return real if inside and os.path.isfile(real) else None

    def write(self, session_id: str, data: bytes, transcript: str | None = None) -> str:
        """Keep a text and return its path; a text that is kept already stays as it is.

        `transcript` is the path of the session's transcript: `sweep` keeps the text as long as that file exists. Raises
        `ArchiveUnavailableError` if there is no place, and `OSError` if the text cannot be written.
        """
        if not self._claimed:
            claim_repository(self._repo)
            self._claimed = True
        path = self.path(session_id, data)
        os.close(open_archives(self.root, create=True))
        with Held(open_archives(os.path.dirname(path), create=True)) as fd:
            if transcript is not None:
                publish(fd, _TRANSCRIPT, os.fsencode(transcript))
            publish(fd, os.path.basename(path), data)
        return path


def publish(directory: int, name: str, data: bytes) -> None:
    """Write a private file in one step, unless it is there already with all its bytes.

    Only the size is compared, since the name is a hash of the content. A crash of the machine may leave a shorter file:
    these files are not made durable.
    """
    from mala_context.archive.atomic_write import publish

    try:
        there = os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except FileNotFoundError:
        there = -1
    if there >= len(data.rstrip(b"\r\n")):
        return

    publish(directory, ARCHIVE_TEMPORARY, lambda write: write(data), name=name, replace=True, durable=False)


def derived_dir(archive: ArchiveReader, kind: str) -> str | None:
    """Return the directory for files of this kind (`SPILLS`, `SEARCH`); `None` if this machine has no place for it."""
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


def sweep(archive: ArchiveReader, *, dry_run: bool = False) -> list[str]:
    """Remove the files of sessions that have neither transcript nor archive any more, and return these sessions' ids.

    A dry run removes nothing. Files that were written within the last hour stay: their session may still run. Raises
    `OSError` if a file cannot be removed.
    """
    gone: set[str] = set()
    for kind, session_of in ((SPILLS, _session_of_texts), (SEARCH, _session_of_index)):
        directory = derived_dir(archive, kind)
        fd = None if directory is None else _open(directory)
        if fd is None:
            continue
        with Held(fd):
            for name in sorted(os.listdir(fd)):
                session_id = session_of(name)
                if session_id is None or _is_recent(fd, name) or not _is_gone(archive, session_id, fd):
                    continue
                gone.add(session_id)
                if not dry_run:
                    with contextlib.suppress(FileNotFoundError):  # another process removes it too
                        _remove(fd, name)
    if gone and not dry_run:
        log.info("Full texts and indexes of %d sessions removed", len(gone))
    return sorted(gone)


def _open(directory: str) -> int | None:
    """Open a directory of ours; `None` if it does not exist, is a link, or belongs to another user."""
    from mala_context.errors import ArchiveUnavailableError

    try:
        return open_archives(directory, create=False)
    except (FileNotFoundError, ArchiveUnavailableError):
        return None


def _session_of_texts(name: str) -> str | None:
    """Return the session whose full texts a directory of this name holds; `None` for a name that we did not give."""
    from mala_context.errors import InvalidSessionIdError

    try:
        return check_session_id(name)
    except InvalidSessionIdError:
        return None


def _session_of_index(name: str) -> str | None:
    """Return the session whose index, or its journal, has this name."""
    for suffix in INDEX_SUFFIXES:
        if name.endswith(suffix):
            return _session_of_texts(name.removesuffix(suffix))
    return None


def _is_recent(directory: int, name: str) -> bool:
    try:
        newest = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return True
    return time.time() - newest < RECENT


def _is_gone(archive: ArchiveReader, session_id: str, directory: int) -> bool:
    with archive.view(session_id) as files:
        if files.list():
            return False
    return not _has_transcript(directory, session_id) and archive.find_transcript(session_id) is None


def _has_transcript(directory: int, session_id: str) -> bool:
    """Tell whether the transcript that was named when the session's texts were written still exists."""
    try:
        fd = os.open(os.path.join(session_id, _TRANSCRIPT), READ, dir_fd=directory)
    except OSError:
        return False
    try:
        return os.path.exists(os.fsdecode(os.read(fd, 65_536)))
    except (OSError, ValueError):
        return False
    finally:
        os.close(fd)


def _remove(directory: int, name: str) -> None:
    """Remove an index, or a session's directory with its texts. A file that is not ours stays, and so its directory."""
    if not _is_directory(directory, name):
        os.unlink(name, dir_fd=directory)
        return
    with Held(os.open(name, DIRECTORY, dir_fd=directory)) as fd:
        for each in os.listdir(fd):
            ours = each == _TRANSCRIPT or each.startswith(ARCHIVE_TEMPORARY) or _is_text(each)
            if ours and not _is_directory(fd, each):
                os.unlink(each, dir_fd=fd)
    with contextlib.suppress(OSError):  # of a file that is not ours
        os.rmdir(name, dir_fd=directory)


def _is_directory(directory: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def _is_text(name: str) -> bool:
    return len(name) == NAME_LENGTH + len(SUFFIX) and name.endswith(SUFFIX) and set(name[:NAME_LENGTH]) <= _HEX
