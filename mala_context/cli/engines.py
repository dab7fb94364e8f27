"""`--engine` and `--scheduler`: where recordings are read, for every command that reads many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from mala_context.analysis.replay.engine import Engine

LOCAL, DASK = "local", "dask"

_Command = TypeVar("_Command", bound=Callable[..., object])


def engine_options(command: _Command) -> _Command:
    """Add `--jobs`, `--engine` and `--scheduler` to a command; give them to `chosen`."""
    for option in (
        click.option(
            "--scheduler",
            metavar="URL",
            help="A Dask cluster that is there, tcp://host:8786 say; implies --engine dask.",
        ),
        click.option(
            "--engine",
            type=click.Choice((LOCAL, DASK)),
            help="Read by processes of this machine, or by a Dask cluster.  [default: local]",
        ),
        click.option(
            "--jobs", type=click.IntRange(1), metavar="N", help="Processes; as many as there are cores by default."
        ),
    ):
        command = option(command)
    return command


@contextmanager
def chosen(engine: str | None, scheduler: str | None, jobs: int | None) -> Iterator[Engine]:
    """Yield the engine that the options mean; a cluster that was started for it ends with the block."""
    if scheduler is None and engine != DASK:
        from mala_context.analysis.replay.engine import LocalEngine

        yield LocalEngine(jobs)
        return
    if engine == LOCAL:
        raise click.UsageError("--scheduler names a Dask cluster: leave --engine local out.")
    if scheduler is not None and jobs is not None:
        raise click.UsageError("--jobs is for processes of this machine; a scheduler has the workers that it has.")
    from mala_context.analysis.cluster import DaskEngine

    with DaskEngine(scheduler, jobs) as cluster:
        yield cluster
