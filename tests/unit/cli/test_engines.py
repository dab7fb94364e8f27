"""Where recordings are read, as options say it."""

import click
import pytest
from click.testing import CliRunner

from mala_context.analysis import cluster
from mala_context.analysis.replay.engine import LocalEngine
from mala_context.cli.engines import chosen, engine_options


@click.command()
@engine_options
def command(engine, scheduler, jobs):
    with chosen(engine, scheduler, jobs) as made:
        click.echo(f"{type(made).__name__} {vars(made)}")


def run(*arguments):
    return CliRunner().invoke(command, arguments)


class Cluster:
    def __init__(self, scheduler, workers):
        self.scheduler, self.workers = scheduler, workers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        click.echo("ended")


@pytest.fixture
def dask(monkeypatch):
    monkeypatch.setattr(cluster, "DaskEngine", Cluster)


@pytest.mark.parametrize("arguments", [(), ("--engine", "local"), ("--jobs", "3")])
def test_processes_of_this_machine_are_the_default(arguments):
    assert run(*arguments).output.startswith(LocalEngine.__name__)


def test_jobs_are_how_many():
    with chosen(None, None, 3) as engine:
        assert "3" in str(vars(engine))


def test_a_cluster_of_its_own_ends_with_the_command(dask):
    assert run("--engine", "dask", "--jobs", "2").output == "Cluster {'scheduler': None, 'workers': 2}\nended\n"


def test_a_scheduler_implies_dask(dask):
    assert "'scheduler': 'tcp://h:1'" in run("--scheduler", "tcp://h:1").output
    assert "'scheduler': 'tcp://h:1'" in run("--scheduler", "tcp://h:1", "--engine", "dask").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "local", "--scheduler", "tcp://h:1"), "leave --engine local out"),
        (("--scheduler", "tcp://h:1", "--jobs", "2"), "a scheduler has the workers that it has"),
        (("--engine", "spark"), "'local', 'dask'"),
        (("--jobs", "0"), "0 is not in the range"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
