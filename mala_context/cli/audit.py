"""`mala-context audit`: how far each estimate was off, on your own sessions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from mala_context._util.text import plural
from mala_context.cli.files import publish, write_parquet, writer
from mala_context.cli.inputs import chosen, engine_options, must_hold_rows, own_options, recordings
from mala_context.cli.progress import waiting
from mala_context.cli.scenarios.report import Lines, Table
from mala_context.cli.session_names import named

WORDS = {
    "pre_tokens": "Against preTokens, the CLI's own count when it compacted",
    "context_command": "Against what /context printed",
    "next_prompt": "Against the next real request",
    "after_compaction": "After a compaction, against the first request",
}
"""Heading of each known count."""
COLUMNS = ("<estimate", "n", "median %", "p90 %", "p99 %", "max %", "bias %")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; errors are fractions there.")
@click.option(
    "--by",
    type=click.Choice(("model", "version", "cli", "parent")),
    help="Group by model, by the CLI's version, by before and from 2.1.90, or by whether a boundary's parent is there.",
)
@click.option("--as-live", is_flag=True, help="Hide what a live stream does not show: real outputs and thinking.")
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="Number of worst cases to list."
)
@click.option(
    "--held-out", is_flag=True, help="Fit the table of characters to half of the sessions and test it on the others."
)
@click.option("--plot", metavar="FILE", help="Draw the spread of errors: an .svg, or a .png with the extra plot.")
@click.option("--parquet", metavar="FILE", help="Write every known count, with each estimate of it, as a Parquet file.")
@own_options
@engine_options
def audit(
    paths: tuple[str, ...],
    as_json: bool,
    by: str | None,
    as_live: bool,
    worst: int,
    held_out: bool,
    plot: str | None,
    parquet: str | None,
    project: str | None,
    session: str | None,
    since: str | None,
    **where: Any,
) -> None:
    """Compare every estimate of the context's size with the known token counts in recorded sessions.

    PATH is as for replay, without -; without PATH all your own sessions are read. Recordings hold three known counts:
    the CLI's preTokens at a compaction, the output of /context, and the next request. Exit status 3 if no row could
    be read.
    """
    from mala_context.analysis.audit import collect
    from mala_context.analysis.error_stats import summarise

    paths = tuple(recordings(paths, project=project, session=session, since=since))
    with chosen(**where) as engine:
        with waiting("auditing") as progress:
            findings = collect(paths, as_live=as_live, engine=engine, progress=progress)
        report = {"as_live": as_live, **summarise(findings, worst=worst)}
        if held_out:
            from mala_context.analysis import cross_validation

            with waiting("fitting") as progress:
                report["held_out"] = cross_validation.held_out(paths, engine=engine, progress=progress)
    if not findings.observations:
        must_hold_rows(paths)
    if parquet is not None:
        write_parquet([each.as_row() for each in findings.observations], parquet)
    if plot is not None:
        from mala_context.analysis.error_plot import draw

        picture = draw(findings, plot)
        with publish(plot) as temporary, writer(temporary) as file:
            file.write(picture)
    if as_json:
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
        return
    _show(report, by)


def _show(report: Mapping[str, Any], by: str | None) -> None:
    from mala_context.cli.tables import console, show

    out = console()
    for truth, words in WORDS.items():
        table = report["truths"][truth]
        unmeasured = table.get("apart", {}).get("n", 0)
        if not table["n"] and not unmeasured:
            continue
        if by is None:
            rows = [_row(name, figures) for name, figures in table["estimators"].items()]
            if "parent_there" in table:
                figures = table["parent_there"]["estimators"]["cli_estimate"]
                rows.append(_row("… parent in file", figures))
            if unmeasured:
                rows.append(("… no measure", unmeasured, *[None] * 5))
        else:
            rows = [_row(name, figures) for name, figures in report[f"by_{by}"][truth].items()]
        show(out, Table(f"{words} (n = {table['n']:,})", COLUMNS, rows))
        cases = [named(_case(case), case["file"], out.file, out.width) for case in report["worst"][truth]]
        if cases:
            show(out, Lines("Worst cases", cases))
    for half, figures in report.get("held_out", {}).items():
        rows = [_row(name, spread) for name, spread in figures.items()]
        show(out, Table(f"Held out: {half}", COLUMNS, rows))
    if report["problems"]:
        lines = [f"{each['file']}:{each['row'] or ''}: {each['problem']}" for each in report["problems"]]
        show(out, Lines(plural(len(lines), "problem"), lines[:20]))


def _row(name: str, figures: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers = (figures[key] for key in ("median", "p90", "p99", "max", "bias"))
    return (name, figures["n"], *(None if number is None else f"{100 * number:.2f}" for number in numbers))


def _case(case: Mapping[str, Any]) -> str:
    missing = ", its parent is not in the file" if case["parent_missing"] else ""
    return f"{case['file']}:{case['row']}: {case['error']:+.2%} of {case['truth']:,}{missing}"
