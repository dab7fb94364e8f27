"""What is asked of a cluster and what is made of its answers; `tests/fleet/test_dask.py` reads on real ones."""

import functools
import os
import socket
import sys
import types
from concurrent.futures import CancelledError

import pytest

from mala_context.analysis import cluster
from mala_context.analysis.cluster import LARGEST_SHARE, SHARE, SHARES_EACH, DaskEngine, look, share_size, shares
from mala_context.analysis.replay.files import Recording, find
from mala_context.errors import ClusterError
from tests.helpers.recordings import plain


def name_of(recording):
    return [recording.stem]


class KilledError(Exception):
    """Stands in for `distributed.KilledWorker`."""


class Future:
    def __init__(self, function):
        self.result = function
        self.status = Client.status


class Client:
    """A cluster of one worker, in this process; `fails` is raised by every task."""

    fails = None
    status = "pending"
    refuses = 0
    workers = True

    def __init__(self, where, **how):
        if Client.refuses:
            Client.refuses -= 1
            raise AssertionError
        self.where, self.how, self.closed = where, how, False
        self.answers = {"tcp://w": look([])}

    def wait_for_workers(self, count, timeout):
        if not self.workers:
            raise TimeoutError

    def run(self, function, paths):
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def ncores(self):
        return {"tcp://w": 1}

    def map(self, function, shares, *, reader, pure):
        def result(share):
            if self.fails is not None:
                raise self.fails
            return function(share, reader)

        return [Future(functools.partial(result, share)) for share in shares]

    def close(self):
        self.closed = True


class LocalCluster:
    made = ()

    def __init__(self, **how):
        self.how, self.closed = how, False
        LocalCluster.made = (self,)

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def dask(monkeypatch):
    """Put the cluster of this process in Dask's place."""
    module = types.ModuleType("distributed")
    module.Client, module.LocalCluster, module.KilledWorker = Client, LocalCluster, KilledError
    module.as_completed = list
    monkeypatch.setitem(sys.modules, "distributed", module)
    for name, value in (("fails", None), ("status", "pending"), ("refuses", 0), ("workers", True)):
        monkeypatch.setattr(Client, name, value)
    return module


@pytest.fixture
def address():
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def recordings(tmp_path):
    for name in ("a", "b"):
        plain().write(tmp_path / f"{name}.jsonl")
    return find([str(tmp_path)])


class TestShares:
    def test_a_sessions_files_stay_together(self, monkeypatch):
        monkeypatch.setattr(cluster, "SHARE", 100)
        names = {"p/s1.jsonl": 90, "p/s1/subagents/agent-a.jsonl": 40, "p/s2.jsonl": 60, "q/s1.jsonl": 30}
        packed = shares([Recording(name, (name,), size) for name, size in names.items()])
        assert [sorted(each.path for each in share) for share in packed] == [
            ["p/s1.jsonl", "p/s1/subagents/agent-a.jsonl"],
            ["p/s2.jsonl", "q/s1.jsonl"],
        ]

    def test_of_nothing_there_is_none(self):
        assert shares([]) == []

    @pytest.mark.parametrize(
        ("total", "workers", "full"),
        [
            (0, 2, SHARE),
            (100 << 20, 2, SHARE),
            (512 << 20, 2, 32 << 20),
            (512 << 20, 4, 16 << 20),
            (1 << 40, 2, LARGEST_SHARE),
            (512 << 20, 0, (512 << 20) // SHARES_EACH),
        ],
    )
    def test_each_worker_has_some(self, total, workers, full):
        assert share_size(total, workers) == full


class TestOnesOwn:
    def test_it_reads_all_tells_every_byte_and_ends_with_the_block(self, recordings):
        told = []
        with DaskEngine(workers=2) as engine:
            assert sorted(engine.read(recordings, name_of, told.append)) == ["a", "b"]
            (own,) = LocalCluster.made
            assert own.how["n_workers"] == 2
        assert sum(told) == sum(each.size for each in recordings)
        assert own.closed

    def test_it_is_closed_to_others(self):
        """Whoever reaches a scheduler runs code as its user."""
        with DaskEngine():
            (own,) = LocalCluster.made
        assert own.how["security"] is True
        assert own.how["dashboard_address"].startswith("127.0.0.1:")

    def test_a_greeting_that_came_together_with_its_next_message_is_asked_for_again(self):
        Client.refuses = 4
        with DaskEngine() as engine:
            assert engine.read([], name_of, None) == []
        Client.refuses = 5
        with pytest.raises(AssertionError):
            DaskEngine().__enter__()
        assert LocalCluster.made[0].closed

    def test_without_the_package_it_is_said_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(ClusterError, match=r"mala-context\[dask\]"):
            DaskEngine().__enter__()


class TestOneThatIsThere:
    def test_it_is_read_on_and_not_ended(self, address, recordings):
        with DaskEngine(address) as engine:
            client = engine._client
            assert sorted(engine.read(recordings, name_of, None)) == ["a", "b"]
        assert (client.where, client.closed) == (address, True)

    @pytest.mark.parametrize("wrong", ["nonsense", "http://127.0.0.1:9", "tcp://127.0.0.1", "tcp://127.0.0.1:x"])
    def test_an_address_that_is_none(self, wrong):
        with pytest.raises(ClusterError, match=f"no scheduler at {wrong}, tcp://host:8786 say"):
            DaskEngine(wrong).__enter__()

    def test_nobody_listens(self):
        with pytest.raises(ClusterError, match=r"no scheduler at .* \(.*refused"):
            DaskEngine("tcp://127.0.0.1:9").__enter__()

    def test_who_listens_is_no_scheduler(self, address, monkeypatch, dask):
        def refuse(where, **how):
            raise OSError("Timed out\nand more")

        monkeypatch.setattr(dask, "Client", refuse)
        with pytest.raises(ClusterError, match=r"no scheduler at .* \(Timed out\)$"):
            DaskEngine(address).__enter__()

    def test_it_has_no_workers(self, address, monkeypatch):
        monkeypatch.setattr(Client, "workers", False)
        with pytest.raises(ClusterError, match="has no workers"):
            DaskEngine(address).__enter__()

    @pytest.mark.parametrize(
        ("answers", "words"),
        [
            ({"tcp://w": ("0.0.1", [])}, "worker tcp://w has mala-context 0.0.1, here it is"),
            ({"tcp://w": (look([])[0], ["/x/a.jsonl"])}, "does not see /x/a.jsonl: its path must be the same on all"),
            (ModuleNotFoundError("No module named 'mala_context'"), r"cannot run this package \(No module named"),
            (KeyError(), r"cannot run this package \(KeyError\)"),
        ],
        ids=["version", "path", "package", "silence"],
    )
    def test_its_workers_would_read_something_else(self, address, recordings, answers, words):
        with DaskEngine(address) as engine:
            engine._client.answers = answers
            with pytest.raises(ClusterError, match=words):
                engine.read(recordings, name_of, None)

    def test_standard_input_stays_here(self, address):
        with DaskEngine(address) as engine, pytest.raises(ClusterError, match="standard input"):
            engine.read([Recording("-", ("-",), 0)], name_of, None)


class TestTrouble:
    def test_a_share_that_killed_its_workers_is_read_here(self, recordings):
        Client.fails = KilledError()
        with DaskEngine() as engine:
            assert sorted(engine.read(recordings, name_of, None)) == ["a", "b"]

    @pytest.mark.parametrize("failure", [CancelledError(), OSError("gone")], ids=["cancelled", "gone"])
    def test_a_scheduler_that_goes_away_is_said(self, recordings, failure):
        Client.fails = failure
        with DaskEngine() as engine, pytest.raises(ClusterError, match="the scheduler is gone"):
            engine.read(recordings, name_of, None)

    def test_what_a_reader_raises_is_no_fault_of_the_cluster(self, recordings):
        Client.fails, Client.status = PermissionError("not for you"), "error"
        with DaskEngine() as engine, pytest.raises(PermissionError, match="not for you"):
            engine.read(recordings, name_of, None)

    def test_a_worker_tells_what_it_does_not_see(self, tmp_path):
        gone = os.fspath(tmp_path / "gone")
        assert look([os.fspath(tmp_path), gone])[1] == [gone]
