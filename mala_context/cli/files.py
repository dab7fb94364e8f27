"""Files that a command writes where its user says: whole or not at all.

What is written goes into a temporary file beside the target, which takes its place once it is complete. So Ctrl-C, a
full disk or a bug leave what was there before. A target that is no regular file (a pipe, `/dev/stdout`) is written to
as it is, since nothing can take its place.

A link that this user made is followed. A link or a pipe that another user put into a directory where everybody may
write, such as `/tmp`, is refused: `report -o /tmp/report.html` replaced the file that another user's link led to, and a
pipe would hand our output to that user. Linux refuses such a link only if it follows the link itself, and here the path
is resolved before anything is opened.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mala_context.transcripts.projects import config_dir

_MODE: Final = 0o644
"""Mode of a new file before the umask: only its owner may write to it, whatever the umask is."""
_PRIVATE: Final = 0o600
_MOST_LINKS: Final = 40


@contextlib.contextmanager
def publish(path: str, *, replace: bool = True, private: bool = False) -> Iterator[str]:
    """Yield the path to write to; if the block ends without an error, the file is then at `path`.

    The yielded path has the target's extension. The file keeps the target's mode, if there is a target; with `private`
    only its owner can read it. Raises `FileExistsError` if something is there and `replace` is false, or if it is a
    transcript, and `OSError` that names the target if it cannot be written.
    """
    _refuse_traps(path)
    target = os.path.realpath(path)
    status = _status(target)
    if status is not None and not replace:
        raise FileExistsError(errno.EEXIST, "it is there already", path)
    if status is not None and _is_transcript(target):
        raise FileExistsError(errno.EEXIST, "it is a transcript of Claude Code, which is never replaced", path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with _named(path, target):
            if stat.S_ISFIFO(status.st_mode):
                _must_have_reader(target)
            yield target
        return
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".tmp-{os.urandom(6).hex()}{os.path.splitext(name)[1]}")
    try:
        with _named(path, temporary):
            mode = _PRIVATE if private else _MODE
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode))
            if status is not None and not private:
                os.chmod(temporary, stat.S_IMODE(status.st_mode))
            yield temporary
            _take_place(temporary, target, replace=replace)
    finally:
        try:
            with contextlib.suppress(OSError):  # it has its name already, or could not be made at all
                os.unlink(temporary)
        except KeyboardInterrupt:  # inside the clean-up, as seen on Python 3.12: it may have removed nothing yet
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


class _File(io.FileIO):
    """A file for writing; a write that takes nothing is an error, since Python's buffer would repeat it for ever."""

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        if not count and memoryview(data):
            raise OSError(errno.EIO, "nothing could be written", self.name)
        return count


def writer(path: str) -> io.BufferedWriter:
    """Open the path that `publish` yields for writing; a write that takes no byte raises `OSError`."""
    return io.BufferedWriter(_File(path, "w"))


def text_writer(path: str) -> io.TextIOWrapper:
    """Like `writer`, for text in UTF-8; line ends are written as they are."""
    return io.TextIOWrapper(writer(path), encoding="utf-8", newline="")


def _must_have_reader(pipe: str) -> None:
    """Raise `OSError` for a pipe that no program reads: opening it would wait for a reader, perhaps for ever."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "no program reads this pipe", pipe) from error


def _is_transcript(target: str) -> bool:
    """Tell whether a file lies where the CLI keeps transcripts: it may be the only copy of a session."""
    home = config_dir(os.environ)
    return home is not None and target.startswith(os.path.join(os.path.realpath(home), "projects", ""))


def _refuse_traps(path: str) -> None:
    """Raise `PermissionError` for a link or a pipe on the way that another user put where everybody may write."""
    done, pending, links = os.sep, _parts(os.path.join(os.getcwd(), path)), 0
    while pending:
        name = pending.pop()
        here = os.path.normpath(os.path.join(done, name))
        try:
            status = os.lstat(here)
        except OSError:
            return  # nothing is here, so no link can follow
        if (stat.S_ISLNK(status.st_mode) or stat.S_ISFIFO(status.st_mode)) and _is_a_trap(status, os.stat(done)):
            raise PermissionError(errno.EACCES, f"user {status.st_uid} has put a link or a pipe there", here)
        if not stat.S_ISLNK(status.st_mode):
            done = here
            continue
        links += 1
        if links > _MOST_LINKS:
            return  # the attempt to open it gives the error
        leads = os.readlink(here)
        done = os.sep if os.path.isabs(leads) else done
        pending.extend(_parts(leads))


def _parts(path: str) -> list[str]:
    """Return a path's parts, the last one first."""
    return [part for part in reversed(path.split(os.sep)) if part]


def _is_a_trap(status: os.stat_result, directory: os.stat_result) -> bool:
    anybody = bool(directory.st_mode & stat.S_IWOTH)
    return anybody and hasattr(os, "geteuid") and status.st_uid not in {os.geteuid(), directory.st_uid}


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _take_place(temporary: str, target: str, *, replace: bool) -> None:
    if replace:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)  # unlike a rename it never replaces anything
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        # No links here (exFAT, some network mounts): an empty file takes the name, which only one program can do, and
        # the rename replaces that file.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE))
        os.replace(temporary, target)


@contextlib.contextmanager
def _named(path: str, temporary: str) -> Iterator[None]:
    """Name the user's path in an `OSError`, not the temporary file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename in {None, temporary}:
            raise type(error)(error.errno, error.strerror or str(error), path) from error
        raise


def write_parquet(rows: Sequence[Mapping[str, Any]], path: str) -> None:
    """Write rows of plain values as a Parquet file, whole or not at all; raises `ClickException` without pyarrow."""
    try:
        from pyarrow import Table, parquet  # type: ignore[import-not-found,unused-ignore]  # an extra that type checks do without
    except ImportError:
        import click

        raise click.ClickException("parquet needs a package: pip install 'mala-context[parquet]'") from None
    with publish(path) as temporary, writer(temporary) as file:
        parquet.write_table(Table.from_pylist(list(rows)), file)
