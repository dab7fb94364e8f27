"""`mala-context demo`: a session that fills, compacts and is archived, checked without a key and a network."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from mala_context.cli.agent_runner import load_sdk, run_agent
from mala_context.cli.scenarios import SCENARIOS
from mala_context.cli.scenarios.report import Stage

if TYPE_CHECKING:
    from mala_context.cli.scenarios.report import Report

MOST_TURNS = 60

_SCENARIO_HELP = "; ".join(f"{name}: {line}" for name, (_, line) in SCENARIOS.items())


@click.command()
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    metavar="NAME",
    default="compaction",
    show_default=True,
    help=_SCENARIO_HELP,
)
@click.option("--turns", type=click.IntRange(2, MOST_TURNS), default=8, show_default=True, help="Number of prompts.")
@click.option("--estimators", is_flag=True, help="Compare all five formulas with what the server received.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else, on standard output.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep the project, the transcript and the archive in DIR, a new or an empty directory.",
)
def demo(scenario: str, turns: int, estimators: bool, as_json: bool, keep: str | None) -> int:
    """Fill a context, watch it, compact it and check every figure.

    The API is scripted and on the loopback: no key, no network, no cost. The Claude Code CLI is the one that
    the SDK bundles; its tool calls, its transcript and its compaction are real.

    Results go to standard output, the gauge to standard error. Exit status 1 if a check fails.
    """
    if estimators and scenario != "compaction":
        raise click.UsageError("--estimators works with the scenario compaction only")
    load_sdk()
    with _directory(keep) as directory:
        started = time.monotonic()
        report = _play(scenario, directory, turns, estimators=estimators)
        seconds = time.monotonic() - started
        if as_json:
            _print_json(report, scenario, turns, seconds, keep)
        else:
            _print_text(report, scenario, seconds, keep)
    return 0 if report.ok else 1


def _play(scenario: str, directory: str, turns: int, *, estimators: bool) -> Report:
    from mala_context.cli.live_gauge import progress

    with progress(turns) as watcher:
        play = import_module(SCENARIOS[scenario][0]).play
        stage = Stage(directory, turns, estimators, on_snapshot=watcher.snapshot, on_turn=watcher.turn)
        report: Report = run_agent(play, stage)
    return report


@contextmanager
def _directory(keep: str | None) -> Iterator[str]:
    """Yield the directory to work in: a temporary one, or `keep`, which is cleared again if the run is interrupted."""
    if keep is not None and not keep.strip():
        raise click.BadParameter("it is empty; name a new or an empty directory", param_hint="'--keep'")
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="mala-context-demo-", ignore_cleanup_errors=True) as directory:
            yield directory
        return
    directory = os.path.abspath(keep)
    created = _claim(directory, keep)
    try:
        with _alone_in(directory, keep):
            yield directory
    except click.BadParameter:
        raise
    except BaseException:  # interrupted, or the CLI could not be run: nothing is worth keeping
        for name in os.listdir(directory):
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
        if created:
            os.rmdir(directory)
        raise


@contextmanager
def _alone_in(directory: str, given: str) -> Iterator[None]:
    """Keep a second demo out of the directory while the block runs.

    Two demos with one --keep both found it empty and mixed their files, and one that was interrupted cleared the
    other's.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise click.BadParameter(f"{given} is used by another demo now", param_hint="'--keep'") from None
        yield
    finally:
        os.close(descriptor)


def _claim(directory: str, given: str) -> bool:
    """Make the directory, or see that it is empty; return whether it was made. Raises `click.BadParameter`."""
    try:
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            if os.listdir(directory):
                raise click.BadParameter(
                    f"{given} is not empty; name a new or an empty directory", param_hint="'--keep'"
                ) from None
            return False
    except OSError as error:
        raise click.BadParameter(f"{given}: {error.strerror or error}", param_hint="'--keep'") from error
    return True


def _print_json(report: Report, scenario: str, turns: int, seconds: float, keep: str | None) -> None:
    result: dict[str, Any] = {
        "scenario": scenario,
        "scripted_api": True,
        "ok": report.ok,
        "turns": turns,
        "seconds": round(seconds, 3),
        "kept": None if keep is None else os.path.abspath(keep),
        "checks": [check._asdict() for check in report.checks],
        **report.data,
    }
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))


def _print_text(report: Report, scenario: str, seconds: float, keep: str | None) -> None:
    from mala_context.cli.tables import console, show, show_checks

    out = console()
    version = report.data.get("cli_version")
    if out.is_terminal:
        out.print()
    out.print(f"Scenario {scenario}: the API was scripted, on the loopback; no key, no network.", soft_wrap=True)
    real = f" (Claude Code {version})" if version else ""
    out.print(f"The CLI is real{real}: tools, transcript and compaction.", soft_wrap=True)
    for part in report.parts:
        show(out, part)
    show_checks(out, report.checks)
    out.print()
    failed = sum(not check.ok for check in report.checks)
    verdict = f"{failed} of {len(report.checks)} checks failed" if failed else f"All {len(report.checks)} checks passed"
    where = "removed; --keep DIR keeps it" if keep is None else f"kept in {os.path.abspath(keep)}"
    took = f"{seconds:.1f}" if seconds < 9.95 else f"{seconds:.0f}"  # so that it fits where a machine is slow, too
    out.print(f"{verdict}, in {took} s. What it made is {where}.", soft_wrap=True)
