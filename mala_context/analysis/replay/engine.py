"""Reads many recordings, on as many processes as are wanted, and joins what they tell.

An engine applies a reader to recordings, wherever it does that: `LocalEngine` on this machine, `cluster.DaskEngine` on
others. What a reader gives must not depend on the process that it runs in, nor on the recordings read before.

Of `LocalEngine` each process gets a fixed share of the recordings, the large ones first dealt out, and sends its
stretches back once. Processes are forks, so that little is imported again; where a system cannot fork, or other threads
run, everything is read here. The result does not depend on any of that.
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
"""Bytes below which one process is quicker than two."""

Progress = Callable[[int], object]
"""Told the bytes of each recording when it was read. One that has `expect(bytes, recordings)` is told first what there
will be in all; one that has `within(bytes)`, how many are done of the recordings that are being read just now."""
LOOK_EVERY: Final = 0.2
"""Seconds between two looks at how far the other processes are, while this one waits for them."""
_COUNT: Final = 8
"""Bytes of each of a child's two counts: recordings that it has read, and bytes done of the one that it reads."""


Reader = Callable[[Recording], list[Any]]
"""Reads one recording; never raises. A cluster's workers have to find it by its name."""


class Engine(Protocol):
    """What reads recordings. `read_all` tells the progress what there will be in all; an engine what is done."""

    def read(self, recordings: Sequence[Recording], reader: Reader, progress: Progress | None) -> list[Any]:
        """Apply a reader to every recording and return all that it gave, in no promised order."""


def replay(
    paths: Iterable[str],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    estimates: bool = True,
) -> list[SessionRecord]:
    """Return every session in the files of the paths (see `files.find`), in the order of their start.

    `jobs` is the number of processes; `None` means one a core. `progress` is told of each recording that was read.
    An `engine` reads in place of these processes. Without `estimates` only the figures that the API counted are right.
    Raises `RecordingNotFoundError` for a path that is not there. A part of a recording that cannot be read is named in
    the session's `problems`.
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
    """Apply a reader to every recording and return all that it gave, in no promised order."""
    expect = getattr(progress, "expect", None)
    if expect is not None:
        expect(_total(recordings), len(recordings))
    return (LocalEngine(jobs) if engine is None else engine).read(recordings, reader, progress)


class LocalEngine:
    """Reads with `jobs` processes of this machine; `None` for one a core, where there is enough to read."""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs

    def read(self, recordings: Sequence[Recording], reader: Reader, progress: Progress | None) -> list[Any]:
        """Apply a reader to every recording and return all that it gave, in no promised order."""
        wanted = (_cpus() if _total(recordings) > SMALL else 1) if self._jobs is None else max(1, self._jobs)
        wanted = min(wanted, len(recordings))
        with no_collection():
            if wanted < 2 or not _can_fork(recordings):
                return read_here(recordings, reader, progress)
            return _read_in_forks(_shares(recordings, wanted), reader, progress)


def _can_fork(recordings: Iterable[Recording]) -> bool:
    """Tell whether a fork is safe: no thread runs, neither of ours nor of an object store's library."""
    import threading

    quiet = hasattr(os, "fork") and threading.active_count() == 1
    return quiet and not any(is_address(recording.path) for recording in recordings)


def _total(recordings: Iterable[Recording]) -> int:
    return sum(recording.size for recording in recordings)


def _cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def no_collection() -> Iterator[None]:
    """Do without the cycle collector for a while: rows hold no cycles, and are many."""
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
    """Return the recording such that `within` is told of its bytes; packed ones make more than they take."""
    size = recording.size
    return recording._replace(watch=lambda done: within(min(done, size) if size else done))


def _shares(recordings: Sequence[Recording], count: int) -> list[list[Recording]]:
    """Deal recordings out, the largest first, each to the share with the fewest bytes."""
    shares: list[list[Recording]] = [[] for _ in range(count)]
    sizes = [0] * count
    for recording in sorted(recordings, key=lambda each: (-each.size, each.path)):
        place = sizes.index(min(sizes))
        shares[place].append(recording)
        sizes[place] += recording.size
    return shares


def _read_in_forks(shares: Sequence[list[Recording]], reader: Reader, progress: Progress | None) -> list[Any]:
    """Read the first share here and each other one in a child; what they have done they count in shared memory."""
    import pickle

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
    """The progress of the share that is read here; passes on what the children have done too."""

    def __init__(self, progress: Progress, children: Sequence[_Child]) -> None:
        self._progress = progress
        self._children = children
        self._within = getattr(progress, "within", None)

    def __call__(self, size: int) -> None:
        self._progress(size)
        self.within(0)

    def within(self, size: int) -> None:
        """Take the bytes done of the recording that is read here."""
        for child in self._children:
            child.tell(self._progress)
        if self._within is not None:
            self._within(size + sum(child.within() for child in self._children))


class _Child:
    """A fork that reads a share and sends back what it found, once."""

    def __init__(self, share: Sequence[Recording], reader: Reader, memory: mmap.mmap, place: int) -> None:
        self.share = share
        self._memory = memory
        self._at = 2 * _COUNT * place
        self._told = 0
        self._process, self._pipe = self._fork(reader)

    def tell(self, progress: Progress, *, all_of_it: bool = False) -> None:
        """Pass on which recordings were read since it was asked last."""
        done = len(self.share) if all_of_it else self._count(self._at)
        for recording in self.share[self._told : done]:
            progress(recording.size)
        self._told = max(self._told, done)

    def within(self) -> int:
        """Return the bytes done of the recording that it reads."""
        return self._count(self._at + _COUNT)

    def _count(self, at: int) -> int:
        return int.from_bytes(self._memory[at : at + _COUNT], "little")

    def wait(self, teller: _Teller | None) -> bytes:
        """Return what it sends, when it has ended; the teller is told again and again until then."""
        parts: list[bytes] = []
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
        status = 1
        try:
            os.close(receiving)
            self._work(sending, reader)
            status = 0
        finally:
            os._exit(status)

    def _work(self, sending: int, reader: Reader) -> None:
        """Do the child's part."""
        import pickle

        with os.fdopen(sending, "wb") as pipe:
            found = read_here(self.share, reader, _Counts(self._memory, self._at))
            pickle.dump(found, pipe, protocol=pickle.HIGHEST_PROTOCOL)


class _Counts:
    """A child's progress: its counts, in the memory that it shares with its parent."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory = memory
        self._at = at
        self._done = 0

    def __call__(self, _: int) -> None:
        self._done += 1
        self._write(self._at, self._done)
        self.within(0)

    def within(self, size: int) -> None:
        """Take the bytes done of the recording that is read."""
        self._write(self._at + _COUNT, size)

    def _write(self, at: int, count: int) -> None:
        self._memory[at : at + _COUNT] = count.to_bytes(_COUNT, "little")
