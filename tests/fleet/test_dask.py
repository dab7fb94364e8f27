"""Recordings read on a Dask cluster: the same results, a killed worker, and what is said where there is none."""

import functools
import json
import logging
import os
import signal
import sys
import time

import distributed
import pytest
from click.testing import CliRunner

from mala_context.analysis import audit as audits
from mala_context.analysis import cluster as clusters
from mala_context.analysis import simulate as simulations
from mala_context.analysis.cluster import DaskEngine, shares
from mala_context.analysis.cross_validation import sample
from mala_context.analysis.replay import replay
from mala_context.analysis.replay.engine import LocalEngine, read_all
from mala_context.analysis.replay.files import Recording, find
from mala_context.analysis.replay.scan import read
from mala_context.cli.audit import audit
from mala_context.cli.replay import replay as replay_command
from mala_context.cli.simulate import simulate
from mala_context.config import parse
from mala_context.errors import ClusterError
from tests.benchmarks import corpus

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("dask")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    corpus.write(str(path), 4, seed=11)
    return str(path)


@pytest.fixture(scope="module")
def scheduler():
    """A cluster that is there already."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(silence_logs=logging.CRITICAL, **options) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def engine(scheduler):
    with DaskEngine(scheduler) as engine:
        yield engine


@pytest.fixture
def small_shares(monkeypatch):
    monkeypatch.setattr(clusters, "SHARE", 200_000)


def everything(sessions):
    return [(each.as_dict(), each.totals) for each in sessions]


class TestResults:
    def test_replay_gives_the_same(self, folder, engine, small_shares):
        alone = everything(replay([folder], jobs=1))
        assert len(alone) > 2
        assert everything(replay([folder], engine=engine)) == alone

    def test_audit_gives_the_same(self, folder, engine, small_shares):
        alone = audits.collect([folder], jobs=1)
        assert len(alone.observations) > 20
        assert audits.collect([folder], engine=engine) == alone

    def test_simulate_gives_the_same(self, folder, engine, small_shares):
        policies = {"early": parse("context:\n  warn_at: 0.1\n  compact_at: 0.2\n"), "none": parse("context:\n")}
        alone = simulations.simulate_policies([folder], policies, jobs=1)
        assert len(alone) > 2
        assert simulations.simulate_policies([folder], policies, engine=engine) == alone

    def test_held_out_samples_are_the_same(self, folder, engine, small_shares):
        recordings = find([folder])
        alone = sorted(map(repr, read_all(recordings, sample, jobs=1)))
        assert sorted(map(repr, read_all(recordings, sample, engine=engine))) == alone

    def test_copies_are_found_across_workers(self, tmp_path, engine, monkeypatch):
        """A fork repeats its origin's responses; each is read by another process, and counts once."""
        monkeypatch.setattr(clusters, "SHARE", 1)
        from tests.helpers.recordings import OTHER, plain

        plain().write(tmp_path / "a.jsonl")
        rows = plain()
        for row in rows.rows:
            row |= {"sessionId": OTHER, "forkedFrom": {"sessionId": "whose"}}
        rows.write(tmp_path / "b.jsonl")
        alone = replay([str(tmp_path)], jobs=1)
        assert [each.main.responses for each in alone] == [3, 0]
        assert everything(replay([str(tmp_path)], engine=engine)) == everything(alone)

    def test_progress_is_told_every_byte(self, folder, engine, small_shares):
        told = []
        replay([folder], engine=engine, progress=told.append)
        assert sum(told) == sum(each.size for each in find([folder]))
        assert len(told) == len(find([folder]))


class TestShares:
    def test_a_sessions_files_stay_together(self, monkeypatch):
        monkeypatch.setattr(clusters, "SHARE", 100)
        names = {"p/s1.jsonl": 90, "p/s1/subagents/agent-a.jsonl": 40, "p/s2.jsonl": 60, "q/s1.jsonl": 30}
        packed = shares([Recording(name, (name,), size) for name, size in names.items()])
        assert [sorted(each.path for each in share) for share in packed] == [
            ["p/s1.jsonl", "p/s1/subagents/agent-a.jsonl"],
            ["p/s2.jsonl", "q/s1.jsonl"],
        ]

    def test_everything_is_in_one_share(self, folder, small_shares):
        recordings = find([folder])
        assert sorted(each for share in shares(recordings) for each in share) == recordings

    def test_of_nothing_there_is_none(self, engine):
        assert shares([]) == []
        assert read_all([], read, engine=engine) == []


def hold_then_read(recording, place):
    """Say which process reads the first recording, and wait there until it was killed once."""
    with open(f"{place}.{os.getpid()}", "w") as file:
        file.write(str(os.getpid()))
    try:
        os.link(file.name, place)  # two workers begin at the same time: one of them waits
    except FileExistsError:
        return read(recording)
    while True:
        signal.pause()


def raise_own(recording):
    """Fail as no reader of ours does."""
    raise PermissionError(f"not for you: {os.path.basename(recording.path)}")


def kill_its_worker(recording, parent):
    """End whatever worker reads this."""
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(recording)


class TestKilledWorkers:
    def test_one_that_is_killed_in_the_middle_costs_nothing(self, folder, small_shares, tmp_path):
        import threading

        alone = everything(replay([folder], jobs=1))
        place = tmp_path / "reader"
        killed = []

        def kill():
            while not place.exists():
                time.sleep(0.01)
            killed.append(int(place.read_text()))
            os.kill(killed[0], signal.SIGKILL)

        with DaskEngine(workers=2) as engine:
            killer = threading.Thread(target=kill)
            killer.start()
            found = read_all(find([folder]), functools.partial(hold_then_read, place=str(place)), engine=engine)
            killer.join()
        from mala_context.analysis.replay.sessions import join

        assert len(killed) == 1
        assert everything(join(found)) == alone

    def test_a_share_that_kills_every_worker_is_read_here(self, tmp_path):
        from tests.helpers.recordings import plain

        plain().write(tmp_path / "a.jsonl")
        with DaskEngine(workers=1) as engine:
            reader = functools.partial(kill_its_worker, parent=os.getpid())
            (stretch,) = read_all(find([str(tmp_path)]), reader, engine=engine)
        assert stretch.main.responses == 3


def test_what_a_reader_raises_is_no_fault_of_the_cluster(tmp_path, engine):
    from tests.helpers.recordings import plain

    plain().write(tmp_path / "a.jsonl")
    with pytest.raises(PermissionError, match=r"not for you: a\.jsonl"):
        read_all(find([str(tmp_path)]), raise_own, engine=engine)


class TestScheduler:
    def test_one_that_is_there_is_not_ended(self, folder, engine, scheduler, small_shares):
        for _ in range(2):
            with DaskEngine(scheduler) as there:
                assert everything(replay([folder], engine=there)) == everything(replay([folder], jobs=1))

    def test_one_of_our_own_is_closed_to_others(self, folder):
        """Whoever reaches a scheduler runs code as its user: it listens on the loopback, to those with its key."""
        with DaskEngine(workers=1) as engine:
            address = engine._cluster.scheduler_address
            assert address.startswith("tls://127.0.0.1:")
            assert engine._cluster.scheduler.http_server.address == "127.0.0.1"
            assert everything(replay([folder], engine=engine)) == everything(replay([folder], jobs=1))
            with pytest.raises(ClusterError, match="no scheduler at"):
                DaskEngine(address).__enter__()

    def test_none_there(self, monkeypatch):
        monkeypatch.setattr(clusters, "PATIENCE", 0.3)
        with pytest.raises(ClusterError, match=r"no scheduler at tcp://127\.0\.0\.1:9, tcp://host:8786 say"):
            DaskEngine("tcp://127.0.0.1:9").__enter__()

    @pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:9"])
    def test_no_address(self, address, monkeypatch):
        monkeypatch.setattr(clusters, "PATIENCE", 0.3)
        with pytest.raises(ClusterError, match="no scheduler at"):
            DaskEngine(address).__enter__()

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (("0.0.1", []), "worker tcp://a has mala-context 0.0.1, here it is"),
            ((clusters.look([])[0], ["/x/a.jsonl"]), "does not see /x/a.jsonl: its path must be the same on all"),
        ],
    )
    def test_workers_that_would_read_something_else(self, answer, words, folder):
        class Client:
            def run(self, function, paths):
                return {"tcp://a": answer}

        engine = DaskEngine("tcp://a")
        engine._client = Client()
        with pytest.raises(ClusterError, match=words):
            engine.read(find([folder]), read, None)

    def test_workers_without_the_package(self, folder):
        class Client:
            def run(self, function, paths):
                raise ModuleNotFoundError("No module named 'mala_context'")

        engine = DaskEngine("tcp://a")
        engine._client = Client()
        with pytest.raises(ClusterError, match=r"cannot run this package \(No module named"):
            engine.read(find([folder]), read, None)

    def test_workers_look_for_what_is_there(self, tmp_path):
        assert clusters.look([str(tmp_path), str(tmp_path / "gone")])[1] == [str(tmp_path / "gone")]

    def test_without_the_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(ClusterError, match=r"mala-context\[dask\]"):
            DaskEngine().__enter__()

    def test_standard_input_stays_here(self, engine):
        with pytest.raises(ClusterError, match="standard input"):
            replay(["-"], engine=engine)


class TestCommands:
    """The three commands with `--scheduler`, against a cluster that runs already."""

    @pytest.fixture
    def run(self, scheduler, folder):
        def run(command, *arguments, status=0):
            where = [] if status else ["--scheduler", scheduler]
            result = CliRunner().invoke(command, [folder, *map(str, arguments), *where])
            assert result.exit_code == status, result.output
            return result.output

        return run

    def test_what_they_print_is_the_same(self, run, folder, tmp_path):
        policy = tmp_path / "early.yaml"
        policy.write_text("context:\n  warn_at: 0.1\n  compact_at: 0.2\n")
        for command, *arguments in (
            (replay_command, "--format", "json"),
            (replay_command, "--totals"),
            (audit, "--json", "--held-out"),
            (simulate, "--json", "--policy", policy),
        ):
            alone = CliRunner().invoke(command, [folder, *map(str, arguments)])
            assert run(command, *arguments) == alone.output
            json.loads(alone.output)

    def test_results_to_parquet(self, run, tmp_path, monkeypatch):
        import types

        written = {}
        package, module = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
        package.Table = types.SimpleNamespace(from_pylist=list)
        package.parquet = module
        module.write_table = lambda rows, path: written.update({len(written): rows})
        monkeypatch.setitem(sys.modules, "pyarrow", package)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
        policy = tmp_path / "early.yaml"
        policy.write_text("context:\n  warn_at: 0.1\n  compact_at: 0.2\n")
        run(replay_command, "--format", "parquet", "-o", tmp_path / "r.parquet")
        run(audit, "--parquet", tmp_path / "a.parquet")
        run(simulate, "--policy", policy, "--parquet", tmp_path / "s.parquet")
        sessions, truths, outcomes = (written[place] for place in range(3))
        assert {"session_id", "compactions", "compactions_json"} <= sessions[0].keys()
        assert {"truth", "true_tokens", "tokens", "projected", "cli_estimate", "file", "row"} <= truths[0].keys()
        assert {"policy", "tokens_saved", "compactions_avoided", "capped_json"} <= outcomes[0].keys()
        for rows in written.values():
            assert all(isinstance(value, str | int | float | None) for row in rows for value in row.values())
        assert {path.name for path in tmp_path.iterdir()} == {"early.yaml", "r.parquet", "a.parquet", "s.parquet"}

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--engine", "local", "--scheduler", "tcp://h:1"), "leave --engine local out"),
            (("--scheduler", "tcp://h:1", "--jobs", "2"), "counts processes of this machine"),
            (("--trace", "--engine", "dask"), "leave --engine and --scheduler out"),
            (("--engine", "spark"), "'local', 'dask'"),
        ],
    )
    def test_options_that_exclude_each_other(self, run, arguments, words):
        assert words in run(replay_command, *arguments, status=2)

    def test_the_local_engine_is_the_default(self):
        from mala_context.cli.inputs import chosen

        with chosen(None, None, 1) as engine:
            assert isinstance(engine, LocalEngine)
