"""Reads many recordings in several processes, and joins the results.

An engine applies a reader to recordings: `LocalEngine` on this machine, `cluster.DaskEngine` on a cluster. The result
of a reader must depend neither on its process nor on the recordings read before.

`LocalEngine` gives each process a fixed share of the recordings, dealt out from the largest to the smallest, and each
process sends its results back once. The processes are forks, so they import little again. If a system cannot fork, or
if other threads run, this process reads everything. The result is the same in all cases.
"""

from __future__ import annotations

import gc
import mmap
import os
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.record import SessionRecord
from mala_context.analysis.replay.sessions import join
from mala_context.archive.remote.address import is_address

SMALL: Final = 16 << 20
"""Total bytes up to which one process is quicker than two."""

Progress = Callable[[int], object]
"""Called with the bytes of each recording after it was read. If it has a method `expect(bytes, recordings)`, this is
called first, with the totals. If it has a method `within(bytes)`, this is called with the bytes done so far of the
recordings that are being read."""
LOOK_EVERY: Final = 0.2
"""Seconds between two looks at the progress of the other processes, while this process waits for them."""
_COUNT: Final = 8
"""Bytes of each of a child's two counters: recordings read, and bytes done of the recording that it is reading."""


Reader = Callable[[Recording], list[Any]]
"""Reads one recording; never raises. It must be importable by its name, because a cluster's workers look it up."""


class Engine(Protocol):
    """Reads recordings. `read_all` calls the progress with the totals, and the engine with each finished recording."""

    def read(self, recordings: Sequence[Recording], reader: Reader, progress: Progress | None) -> list[Any]:
        """Apply a reader to every recording and return all results, in no promised order."""


def replay(
    paths: Iterable[str],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    estimates: bool = True,
) -> list[SessionRecord]:
    """Return every session in the files of the paths (see `files.find`), in the order of their start.

    `jobs` is the number of processes; `None` means one for each core. `progress` is called for each recording that was
    read. An `engine` reads instead of these processes. Without `estimates` only the API's own counts are right. Raises
    `RecordingNotFoundError` for a path that does not exist. A part of a recording that cannot be read is named in the
    session's `problems`.
    """
    reader: Reader
    if estimates:
        from mala_context.analysis.replay import scan

        reader = scan.read
    else:
        from mala_context.analysis.replay.counts import read_counts

        reader = read_counts
    with no_collection():
        return join(read_all(find(paths, progress), reader, jobs=jobs, progress=progress, engine=engine))


def read_all(
    recordings: Sequence[Recording],
    reader: Reader,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> list[Any]:
    """Apply a reader to every recording and return all results, in no promised order."""
    expect = getattr(progress, "expect", None)
    if expect is not None:
        expect(_total(recordings), len(recordings))
    return (LocalEngine(jobs) if engine is None else engine).read(recordings, reader, progress)


class LocalEngine:
    """Reads with `jobs` processes of this machine; `None` for one for each core if there is enough to read."""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs

    def read(self, recordings: Sequence[Recording], reader: Reader, progress: Progress | None) -> list[Any]:
        """Apply a reader to every recording and return all results, in no promised order."""
        wanted = (_cpus() if _total(recordings) > SMALL else 1) if self._jobs is None else max(1, self._jobs)
        wanted = min(wanted, len(recordings))
        with no_collection():
            if wanted < 2 or not _can_fork(recordings):
                return read_here(recordings, reader, progress)
            return _read_in_forks(_shares(recordings, wanted), reader, progress)


def _can_fork(recordings: Iterable[Recording]) -> bool:
    """Tell whether a fork is safe: no thread runs, neither of ours nor of an object store's library."""
    import threading

    # A child has only the thread that forked. A lock that another thread held stays locked in the child for ever.
    quiet = hasattr(os, "fork") and threading.active_count() == 1
    return quiet and not any(is_address(recording.path) for recording in recordings)


def _total(recordings: Iterable[Recording]) -> int:
    return sum(recording.size for recording in recordings)


def _cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the cycle collector off for a while: rows have no cycles, but their number would start it often."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_here(recordings: Iterable[Recording], reader: Reader, progress: Progress | None = None) -> list[Any]:
    """Apply a reader to each recording in this process."""
    found: list[Any] = []
    within = getattr(progress, "within", None)
    for recording in recordings:
        found.extend(reader(recording if within is None else _watched(recording, within)))
        if progress is not None:
            progress(recording.size)
    return found


def _watched(recording: Recording, within: Callable[[int], object]) -> Recording:
    """Return the recording with a `watch` that passes its bytes on to `within`."""
    # A packed recording gives more bytes than its file has. More than its size would take the progress past its end.
    size = recording.size
    return recording._replace(watch=lambda done: within(min(done, size) if size else done))


def _shares(recordings: Sequence[Recording], count: int) -> list[list[Recording]]:
    """Divide recordings into shares: from the largest on, each goes to the share with the fewest bytes."""
    shares: list[list[Recording]] = [[] for _ in range(count)]
    sizes = [0] * count
    for recording in sorted(recordings, key=lambda each: (-each.size, each.path)):
        place = sizes.index(min(sizes))
        shares[place].append(recording)
        sizes[place] += recording.size
    return shares


def _read_in_forks(shares: Sequence[list[Recording]], reader: Reader, progress: Progress | None) -> list[Any]:
    """Read the first share here and each other share in a child; the children count their progress in shared memory."""
    import pickle  # before the forks, so that no child imports it again

    with mmap.mmap(-1, 2 * _COUNT * len(shares)) as memory:
        children = [_Child(share, reader, memory, place) for place, share in enumerate(shares[1:], 1)]
        teller = None if progress is None else _Teller(progress, children)
        found = read_here(shares[0], reader, teller)
        for child in children:
            data = child.wait(teller)
            # A child that died (killed for its memory, say) sends nothing whole: its share is read here.
            try:
                found.extend(pickle.loads(data))  # noqa: S301  (our own fork wrote it)
            except (EOFError, pickle.UnpicklingError):
                found.extend(read_here(child.share, reader, None))
            if progress is not None:
                child.tell(progress, all_of_it=True)
    return found


class _Teller:
    """The progress of the share that is read here; each call also passes on the progress of the children."""

    def __init__(self, progress: Progress, children: Sequence[_Child]) -> None:
        self._progress = progress
        self._children = children
        self._within = getattr(progress, "within", None)

    def __call__(self, size: int) -> None:
        self._progress(size)
        self.within(0)

    def within(self, size: int) -> None:
        """Take the bytes done of the recording that is being read here."""
        for child in self._children:
            child.tell(self._progress)
        if self._within is not None:
            self._within(size + sum(child.within() for child in self._children))


class _Child:
    """A fork that reads a share, and sends its results back once, at the end."""

    def __init__(self, share: Sequence[Recording], reader: Reader, memory: mmap.mmap, place: int) -> None:
        self.share = share
        self._memory = memory
        self._at = 2 * _COUNT * place
        self._told = 0
        self._process, self._pipe = self._fork(reader)

    def tell(self, progress: Progress, *, all_of_it: bool = False) -> None:
        """Pass on the recordings that the child has read since the last call; all of its share if `all_of_it`."""
        done = len(self.share) if all_of_it else self._count(self._at)
        for recording in self.share[self._told : done]:
            progress(recording.size)
        self._told = max(self._told, done)

    def within(self) -> int:
        """Return the bytes done of the recording that the child is reading."""
        return self._count(self._at + _COUNT)

    def _count(self, at: int) -> int:
        return int.from_bytes(self._memory[at : at + _COUNT], "little")

    def wait(self, teller: _Teller | None) -> bytes:
        """Wait for the child's end and return the bytes that it sent; call the teller every `LOOK_EVERY` seconds."""
        parts: list[bytes] = []
        # First the pipe to its end, then the process: a child that has more to send than the pipe holds does not end
        # before somebody reads.
        with os.fdopen(self._pipe, "rb", buffering=0) as pipe:
            while True:
                if not select.select([pipe], [], [], LOOK_EVERY)[0]:
                    if teller is not None:
                        teller.within(0)
                elif part := pipe.read(1 << 20):
                    parts.append(part)
                else:
                    break
        os.waitpid(self._process, 0)
        self._memory[self._at + _COUNT : self._at + 2 * _COUNT] = bytes(_COUNT)  # it may have died within a recording
        return b"".join(parts)

    def _fork(self, reader: Reader) -> tuple[int, int]:
        receiving, sending = os.pipe()
        process = os.fork()
        if process:
            os.close(sending)
            return process, receiving
        # `_exit` in every case: an exception that went up from here would run the parent's code a second time, with its
        # `finally` blocks and its exit handlers.
        status = 1
        try:
            os.close(receiving)
            self._work(sending, reader)
            status = 0
        finally:
            os._exit(status)

    def _work(self, sending: int, reader: Reader) -> None:
        """Read the share and send the results; this runs in the child."""
        import pickle

        with os.fdopen(sending, "wb") as pipe:
            found = read_here(self.share, reader, _Counts(self._memory, self._at))
            pickle.dump(found, pipe, protocol=pickle.HIGHEST_PROTOCOL)


class _Counts:
    """A child's progress, which writes its two counters into the memory that it shares with its parent."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory = memory
        self._at = at
        self._done = 0

    def __call__(self, _: int) -> None:
        self._done += 1
        self._write(self._at, self._done)
        self.within(0)

    def within(self, size: int) -> None:
        """Take the bytes done of the recording that is being read."""
        self._write(self._at + _COUNT, size)

    def _write(self, at: int, count: int) -> None:
        self._memory[at : at + _COUNT] = count.to_bytes(_COUNT, "little")
