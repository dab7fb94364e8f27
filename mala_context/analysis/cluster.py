"""Reading recordings on a Dask cluster: one of this machine's own processes, or one that is there already.

Recordings of one session stay together, and sessions are packed into shares, each a task. A task costs the client and
the scheduler, which are one process here, several milliseconds, in which `replay` reads some megabytes. So a share is
as large as leaves each worker `SHARES_EACH`, within bounds, and the largest are handed out first: the last are small.
Only the addresses of files travel to a worker, and only what the reader made of them travels back.

Dask repeats a task whose worker died. A task that took several workers with it is read here, as `LocalEngine` does
with a process that died: what a recording does to a reader is then seen where somebody looks. A reader's results are
the same wherever it runs, so the result is that of `LocalEngine`, bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from mala_context.analysis.replay.engine import Progress, Reader, no_collection, read_here
from mala_context.analysis.replay.files import STDIN, Recording
from mala_context.archive.remote.address import is_address
from mala_context.errors import ClusterError

if TYPE_CHECKING:
    from types import TracebackType

SHARE: Final = 8 << 20
"""Bytes of recordings that make a share full, where there are not many."""
LARGEST_SHARE: Final = 64 << 20
"""Bytes that do so at the most: progress is shown, and a dead worker's work repeated, by shares."""
SHARES_EACH: Final = 8
"""Shares for each worker, as far as those bounds allow: enough that none waits long for the others at the end."""
PATIENCE: Final = 15
"""Seconds to wait for a scheduler, and for its first worker."""
_SCHEMES: Final = frozenset({"tcp", "tls", "ws", "wss"})
_GREETINGS: Final = 4
_SUBAGENTS: Final = "subagents"


class DaskEngine:
    """Reads on a cluster, for the `with` statement; the cluster serves any number of readings until the block ends.

    Args:
        scheduler: address of a cluster that is there, like `tcp://host:8786`; its workers need this package in the
            same version, and see the recordings under the same paths. Without one, processes of this machine are
            started, which end with the block.
        workers: how many, without a scheduler; `None` for one a core.

    Entering raises `ClusterError` where there is no cluster that can be used.
    """

    def __init__(self, scheduler: str | None = None, workers: int | None = None) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._cluster: Any = None
        self._client: Any = None

    def __enter__(self) -> Self:
        try:
            import distributed

            self._connect(distributed)
        except ImportError as error:
            raise ClusterError(f"it needs a package: pip install 'mala-context[dask]' ({error.msg})") from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends. May be called twice."""
        for each in (self._client, self._cluster):
            if each is not None:
                each.close()
        self._client = self._cluster = None

    def _connect(self, api: Any) -> None:
        if self._scheduler is None:
            import logging

            self._cluster = api.LocalCluster(
                n_workers=self._workers,
                threads_per_worker=1,
                memory_limit=0,  # readers need little, and a worker that is paused or ended for it does not help
                dashboard_address="127.0.0.1:0",
                security=True,  # with a certificate of its own: others on this machine could run code as us
                silence_logs=logging.CRITICAL,
            )
            self._client = _client(api, self._cluster)
            return
        _check_address(self._scheduler)
        try:
            self._client = _client(api, self._scheduler, timeout=PATIENCE)
        except (OSError, TimeoutError, TypeError, ValueError) as error:
            words = str(error).partition("\n")[0]
            raise ClusterError(f"no scheduler at {self._scheduler}, tcp://host:8786 say ({words})") from None
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise ClusterError(f"the scheduler at {self._scheduler} has no workers") from None

    def read(self, recordings: Sequence[Recording], reader: Reader, progress: Progress | None) -> list[Any]:
        """Apply a `reader` to all `recordings` and return all that it gave, in no promised order.

        `progress` is told of each recording that was read.

        Raises `ClusterError` where workers cannot read what is asked for, or the scheduler goes away.
        """
        import distributed

        api: Any = distributed
        if any(recording.path == STDIN for recording in recordings):
            raise ClusterError("standard input cannot be read by its workers: name files")
        if self._scheduler is not None:
            self._check(recordings)
        found: list[Any] = []
        workers = sum(self._client.ncores().values())
        packed = shares(recordings, share_size(sum(recording.size for recording in recordings), workers))
        tasks = self._client.map(read_share, packed, reader=reader, pure=False)  # in one message, not in one each
        futures = dict(zip(tasks, packed, strict=True))
        for future in api.as_completed(list(futures)):
            share = futures.pop(future)
            found.extend(self._result(future, share, reader))
            if progress is not None:
                for recording in share:
                    progress(recording.size)
        return found

    def _result(self, future: Any, share: Sequence[Recording], reader: Reader) -> list[Any]:
        """Return what a task gave, or read its share here where it killed its workers.

        Raises `ClusterError` where the scheduler is gone, and what the reader raised.
        """
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            result: list[Any] = future.result()
        except KilledWorker:
            with no_collection():
                return read_here(share, reader)
        except (CancelledError, OSError) as error:
            if future.status == "error":  # the reader's own
                raise
            raise ClusterError(f"the scheduler is gone ({error.__class__.__name__})") from None
        return result

    def _check(self, recordings: Sequence[Recording]) -> None:
        """Ask every worker for its version of this package, and whether it sees a recording of each folder."""
        folders = {os.path.dirname(each.path): each.path for each in recordings if not is_address(each.path)}
        try:
            answers = self._client.run(look, [os.path.abspath(path) for path in folders.values()])
        except Exception as error:  # noqa: BLE001  (whatever a worker's Python says of a package that it lacks)
            words = str(error).partition("\n")[0] or error.__class__.__name__
            raise ClusterError(f"its workers cannot run this package ({words})") from None
        ours = look([])[0]
        for worker, (version, missing) in sorted(answers.items()):
            if version != ours:
                raise ClusterError(f"worker {worker} has mala-context {version}, here it is {ours}: install the same")
            if missing:
                raise ClusterError(f"worker {worker} does not see {missing[0]}: its path must be the same on all")


def _client(api: Any, where: Any, **how: Any) -> Any:
    """Connect a client; once more where the scheduler's greeting came together with its next message.

    Dask's client asserts that it comes alone (`Client._ensure_connected`), which it mostly does.
    """
    for _ in range(_GREETINGS):
        try:
            return api.Client(where, **how)
        except AssertionError:
            continue
    return api.Client(where, **how)


def _check_address(address: str) -> None:
    """Raise `ClusterError` where no program listens at an address: a client that was never one would be hard to end."""
    import socket
    from urllib.parse import urlsplit

    words = "it needs a scheme, a host and a port"
    try:
        parts = urlsplit(address)
        if parts.scheme in _SCHEMES and parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), PATIENCE).close()
            return
    except (OSError, ValueError) as error:
        words = str(error)
    raise ClusterError(f"no scheduler at {address}, tcp://host:8786 say ({words})")


def share_size(total: int, workers: int) -> int:
    """Return the bytes that make a share full, for `total` bytes of recordings and `workers` workers."""
    return max(SHARE, min(LARGEST_SHARE, total // (max(1, workers) * SHARES_EACH)))


def shares(recordings: Iterable[Recording], full: int | None = None) -> list[list[Recording]]:
    """Pack recordings into shares of about `full` bytes (`SHARE`), a session's never apart, the largest first."""
    sessions: dict[str, list[Recording]] = {}
    for recording in recordings:
        sessions.setdefault(_session(recording), []).append(recording)
    sized = sorted(((_size(group), group) for group in sessions.values()), key=lambda each: (-each[0], each[1]))
    packed: list[list[Recording]] = []
    room = 0
    for size, group in sized:
        if size > room or not packed:
            packed.append([])
            room = SHARE if full is None else full
        packed[-1] += group
        room -= size
    return packed


def _session(recording: Recording) -> str:
    """Name the session whose main file or subagent's file this is, by where it lies."""
    folder = os.path.dirname(recording.path)
    if os.path.basename(folder) == _SUBAGENTS:
        return os.path.dirname(folder)
    return os.path.join(folder, recording.stem)


def _size(group: Iterable[Recording]) -> int:
    return sum(recording.size for recording in group)


def read_share(share: Sequence[Recording], reader: Reader) -> list[Any]:
    """Read a share, on a worker."""
    with no_collection():
        return read_here(share, reader)


def look(paths: Iterable[str]) -> tuple[str, list[str]]:
    """Tell, on a worker, its version of this package and which of the paths are not there."""
    from importlib.metadata import version

    return version("mala-context"), [path for path in paths if not os.path.exists(path)]
