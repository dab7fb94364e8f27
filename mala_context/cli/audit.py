"""`mala-context audit`: which formula was right, on your own sessions."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from mala_context.cli.engines import chosen, engine_options
from mala_context.cli.progress import waiting

WORDS = {
    "pre_tokens": "Against preTokens, the CLI's own count when it compacted",
    "context_command": "Against what /context printed",
    "next_prompt": "Against the next real request",
    "after_compaction": "After a compaction, against the first request",
}
"""Heading by truth."""
COLUMNS = ("<estimate", "n", "median %", "p90 %", "p99 %", "max %", "bias %")


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; errors are fractions there.")
@click.option(
    "--by", type=click.Choice(("model", "version")), help="Show the figures by model or by version of the CLI."
)
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="Worst cases to list."
)
@click.option("--held-out", is_flag=True, help="Fit the table of characters on half the sessions, test on the others.")
@click.option("--plot", metavar="FILE", help="Draw the spread of errors: an .svg, or a .png with the extra plot.")
@click.option(
    "--parquet", metavar="FILE", help="Write every truth, with what each estimate said of it, as a Parquet file."
)
@engine_options
def audit(
    paths: tuple[str, ...],
    as_json: bool,
    by: str | None,
    worst: int,
    held_out: bool,
    plot: str | None,
    parquet: str | None,
    **where: Any,
) -> None:
    """Hold every estimate of the context's size against what recorded sessions know to be true.

    PATH is as for replay, - excepted. Three
    truths stand in recordings: the CLI's preTokens at a compaction, the output of /context, and the next request.
    """
    from mala_context.analysis.audit import collect
    from mala_context.analysis.error_stats import summarise

    with chosen(**where) as engine:
        with waiting("auditing") as progress:
            findings = collect(paths, engine=engine, progress=progress)
        report = summarise(findings, worst=worst)
        if held_out:
            from mala_context.analysis.cross_validation import held_out as test

            with waiting("fitting") as progress:
                report["held_out"] = test(paths, engine=engine, progress=progress)
    if parquet is not None:
        from mala_context.cli.parquet import write

        write([each.as_row() for each in findings.observations], parquet)
    if plot is not None:
        from mala_context.analysis.error_plot import draw
        from mala_context.cli.files import publish

        with publish(plot) as temporary:
            draw(findings, temporary)
    if as_json:
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
        return
    _show(report, by)


def _show(report: Mapping[str, Any], by: str | None) -> None:
    from mala_context.cli.scenarios.report import Lines, Table
    from mala_context.cli.tables import console, show

    out = console()
    for truth, words in WORDS.items():
        table = report["truths"][truth]
        if not table["n"]:
            continue
        if by is None:
            rows = [_row(name, figures) for name, figures in table["estimators"].items()]
            if "parent_there" in table:
                figures = table["parent_there"]["estimators"]["cli_estimate"]
                rows.append(_row("… parent in file", figures))
        else:
            rows = [_row(name, figures) for name, figures in report[f"by_{by}"][truth].items()]
        show(out, Table(f"{words} (n = {table['n']:,})", COLUMNS, rows))
        if cases := [_case(case) for case in report["worst"][truth]]:
            show(out, Lines("Worst cases", cases))
    for half, figures in report.get("held_out", {}).items():
        rows = [_row(name, spread) for name, spread in figures.items()]
        show(out, Table(f"Held out: {half}", COLUMNS, rows))
    if report["problems"]:
        lines = [f"{each['file']}:{each['row'] or ''}: {each['problem']}" for each in report["problems"]]
        show(out, Lines(f"{len(lines)} problems", lines[:20]))


def _row(name: str, figures: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers = (figures[key] for key in ("median", "p90", "p99", "max", "bias"))
    return (name, figures["n"], *(None if number is None else f"{100 * number:.2f}" for number in numbers))


def _case(case: Mapping[str, Any]) -> str:
    missing = ", its parent is not in the file" if case["parent_missing"] else ""
    return f"{case['file']}:{case['row']}: {case['error']:+.2%} of {case['truth']:,}{missing}"
