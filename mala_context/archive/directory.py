"""Open the archives' directory so that everything written through its descriptor stays private.

Another user may have made the directory first. So it is opened without following a link, and checked through the
descriptor: it must be a directory and belong to us. All later work goes through that descriptor, so swapping the path
changes nothing.

A writer tightens a directory to 0700 where it was wider, but only one that is surely for archives: it is empty, holds a
file of an archive, or lies in a repository's claimed place. A reader changes nothing: `--dir /etc`, read as root, must
not lock every other user out of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

from mala_context._util.safe_open import DIRECTORY, READ, Held
from mala_context.archive import layout
from mala_context.archive.atomic_write import publish, sync_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


_MARKERS = f"{layout.REPO_MARKER}."
"""Beginning of a marker's name while it is written."""
_CLAIM_SECONDS = 60.0
"""An empty marker that is older than this was left by a killed process, on a file system without hard links."""


def refuse(path: str, reason: str) -> NoReturn:
    """Raise `ArchiveUnavailableError`, which names the variable that gives another place."""
    from mala_context.errors import ArchiveUnavailableError

    raise ArchiveUnavailableError(
        f"cannot keep archives in {path}: {reason}; MALA_RUNS_DIR names another place", path=path
    )


def check_platform() -> None:
    """Raise `ArchiveUnavailableError` on Windows, whose files have neither the modes nor the locks that we rely on."""
    if os.name != "posix":
        from mala_context.errors import ArchiveUnavailableError

        raise ArchiveUnavailableError("archives need Linux or macOS; on Windows only the tracker works")


def make_directories(path: str) -> None:
    """Create a directory and what is missing above it, each 0700 whatever the umask; raises `OSError`."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path) or os.curdir
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            continue
        if stat.S_IMODE(os.lstat(each).st_mode) != 0o700:
            # The umask took some of our own rights. `set_mode` follows no link and checks the owner: since the `mkdir`
            # another user may have put something else in its place.
            set_mode(each, 0o700)
        sync_parent(each)


def set_mode(path: str, mode: int) -> bool:
    """Set the mode of a file or directory of ours, never through a link; false where that cannot be done."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return False
        if not status.st_mode & 0o400:
            os.chmod(path, mode)  # without the right to read, `os.open` below fails
        fd = os.open(path, READ)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid():  # as root, `fchmod` would work on another user's file
            return False
        os.fchmod(fd, mode)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def sync_parent(path: str) -> None:
    """Make a new directory entry durable, where the parent can be opened for it."""
    try:
        fd = os.open(os.path.dirname(path), DIRECTORY)
    except OSError:
        return
    with Held(fd):
        sync_directory(fd)


def open_archives(path: str, *, create: bool) -> int:
    """Open the archives' directory and return its descriptor.

    Raises `ArchiveUnavailableError` where the place cannot be used, and `FileNotFoundError` where it is not there and
    `create` is false. Close the descriptor.
    """
    check_platform()
    try:
        if create:
            make_directories(path)
        fd = os.open(path, DIRECTORY)
    except FileNotFoundError:
        if not create:
            raise
        refuse(path, "it cannot be created")
    except OSError as error:
        if os.path.islink(path):
            refuse(path, "it is a symbolic link")
        refuse(path, "it is not a directory" if error.errno in {errno.ENOTDIR, errno.EEXIST} else str(error.strerror))
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            refuse(path, f"it belongs to user {status.st_uid}, not to us")
        if create:
            _tighten(fd, path, stat.S_IMODE(status.st_mode))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _tighten(fd: int, path: str, mode: int) -> None:
    if not mode & 0o077 and mode & 0o700 == 0o700:
        return
    from mala_context.archive.log import info, warning

    if mode & 0o400 and not is_for_archives(path):
        warning("Archive directory %s has mode %04o and files of other programs: the mode stays", path, mode)
        return
    os.fchmod(fd, 0o700)
    say = warning if mode & 0o022 else info
    say("Archive directory %s had mode %04o: set to 0700", path, mode)


def is_for_archives(path: str) -> bool:
    """Tell whether a directory is empty, holds a file of an archive, or lies in a repository's claimed place."""
    above = os.path.dirname(path)
    if any(layout.read_marker(each) is not None for each in (path, above, os.path.dirname(above))):
        return True
    names = os.listdir(path)
    return not names or any(layout.session_of(name) is not None for name in names)


def others_may_swap(path: str) -> bool:
    """Tell whether another user may put something else at a directory's path, so that no path through it is to be used.

    They can if a directory on the way belongs to them, or if it is writable by others and not sticky. Root and the
    user's own group are trusted.
    """
    here = os.path.realpath(path)
    while True:
        status = os.lstat(here)
        wide = status.st_mode & (stat.S_IWOTH if status.st_gid in {0, os.getegid()} else stat.S_IWOTH | stat.S_IWGRP)
        if status.st_uid not in {0, os.geteuid()} or (wide and not status.st_mode & stat.S_ISVTX):
            return True
        if here == (parent := os.path.dirname(here)):
            return False
        here = parent


def claim_repository(repo_path: str | os.PathLike[str]) -> str:
    """Return the archives' directory of a repository, after marking its runs directory as that repository's own.

    Two repositories whose keys are the same end up in two directories, also when they start at the same moment. Raises
    `ArchiveUnavailableError`.
    """
    check_platform()
    path = os.path.realpath(os.fspath(repo_path))
    # Twice: between looking and writing the marker, a second repository with the same key may claim the directory. The
    # second round then finds its marker and takes the name with a hash.
    for _ in range(2):
        directory = layout.repo_runs_dir(path)
        try:
            make_directories(directory)
            _write_marker(directory, path)
        except OSError as error:
            refuse(directory, str(error.strerror))
        if layout.read_marker(directory) in {None, path}:
            break
    return os.path.join(directory, layout.ARCHIVES)


def _write_marker(directory: str, path: str) -> None:
    """Claim a runs directory. The first process to name a marker keeps it; a marker is never visible half-written."""
    marker = os.path.join(directory, layout.REPO_MARKER)
    if _is_claimed(marker):
        return
    place = os.open(directory, DIRECTORY)
    try:
        publish(place, _MARKERS, lambda write: write(os.fsencode(path)), name=layout.REPO_MARKER)
    except OSError:
        # Another process may have claimed it in between, and `drop_markers` there removed our temporary file.
        if not _is_claimed(marker):
            raise
    finally:
        os.close(place)


def _is_claimed(marker: str) -> bool:
    """Tell whether there is a marker; remove an empty one that a killed process left."""
    try:
        status = os.lstat(marker)
    except FileNotFoundError:
        return False
    if status.st_size or abs(time.time() - status.st_mtime) < _CLAIM_SECONDS:
        return True
    with contextlib.suppress(OSError):
        os.unlink(marker)
    return False


def drop_markers(directory: str) -> None:
    """Remove temporary files of killed claims from a directory. It must be claimed, so no claim is under way."""
    if layout.read_marker(directory) is None:
        return
    for name in os.listdir(directory):
        if name.startswith(_MARKERS):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, name))
