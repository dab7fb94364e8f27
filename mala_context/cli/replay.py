"""`mala-context replay`: what recorded sessions tell."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mala_context._util.printable import printable
from mala_context.cli.engines import DASK, chosen, engine_options
from mala_context.cli.progress import waiting
from mala_context.cli.session_lines import WRITERS, Writer, sum_of, write_totals

if TYPE_CHECKING:
    from mala_context.analysis.replay.record import AgentRecord, SessionRecord

FORMATS = ("table", "json", "ndjson", "csv", "parquet")
LINES = ("json", "ndjson")
"""Formats that can hold the records of `--trace`, each on a line of its own."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "form", type=click.Choice(FORMATS), help="How the sessions are printed.  [default: table]")
@click.option("--trace", is_flag=True, help="Print one line a row before the sessions (json and ndjson).")
@click.option(
    "--since", metavar="TIME", help="Only sessions that went on after: 2026-05-01, 2026-05-01T12:00, 7d, 12h."
)
@click.option("--totals", is_flag=True, help="Print only the sum of all responses' tokens, as JSON.")
@click.option("-o", "--output", metavar="FILE", help="Write there instead of standard output (needed for parquet).")
@engine_options
def replay(
    paths: tuple[str, ...],
    form: str | None,
    trace: bool,
    since: str | None,
    totals: bool,
    output: str | None,
    **where: Any,
) -> None:
    """Read recorded sessions: how full each was, when it compacted, what its subagents used.

    PATH is a transcript or stream-json file (.jsonl, .jsonl.gz, .jsonl.zst), a folder of them, an archive, a pattern
    in quotes, an address in an object store (s3://bucket/prefix), or - for standard input.
    """
    form = form or ("ndjson" if trace else "table")
    if trace and form not in LINES:
        raise click.UsageError(f"--trace prints lines: {' or '.join(LINES)} would be right, not {form}.")
    if form == "parquet" and output is None:
        raise click.UsageError("parquet is no text: name a file with --output.")
    begin = moment_since(since)
    if trace:
        if where["engine"] == DASK or where["scheduler"]:
            raise click.UsageError("--trace reads line by line, here: leave --engine and --scheduler out.")
        _trace(paths, begin)
        return
    from mala_context.analysis.replay import replay as read

    with chosen(**where) as engine, waiting("reading") as progress:
        sessions = [each for each in read(paths, engine=engine, progress=progress) if _goes_on(each, begin)]
    if totals:
        write_totals(sessions, sys.stdout)
        return
    if output is None:
        _WRITERS[form](sessions, sys.stdout)
        return
    if form == "parquet":
        from mala_context.cli.parquet import write

        write([flat(session) for session in sessions], output)
        return
    from mala_context.cli.files import publish

    with publish(output) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        _WRITERS[form](sessions, file)


def _trace(paths: Sequence[str], begin: str | None) -> None:
    from mala_context.analysis.replay.files import find
    from mala_context.analysis.replay.sessions import join
    from mala_context.analysis.replay.trace import trace

    stretches = []
    for recording in find(paths):
        stretches += trace(recording, lambda record: _print(json.dumps(record)))
    for session in join(stretches):
        if _goes_on(session, begin):
            _print(json.dumps(session.as_dict()))


def moment_since(text: str | None) -> str | None:
    """Return the UTC time that an option names, as text: a date, a time, or an age such as `7d`; `None` for none."""
    if text is None:
        return None
    from datetime import UTC, datetime, timedelta

    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        if text[-1:] in units and text[:-1].isdigit():
            moment = datetime.now(UTC) - timedelta(**{units[text[-1]]: int(text[:-1])})
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no time: 2026-05-01, 2026-05-01T12:00 or 7d would be right.", param_hint="--since"
        ) from None
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def _goes_on(session: SessionRecord, begin: str | None) -> bool:
    return begin is None or (session.ended_at is not None and session.ended_at >= begin)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


_FLAT = ("compactions", "subagents", "problems")
"""Lists in a session's JSON; flat formats have their length, and the JSON of the list behind it."""


def flat(session: SessionRecord) -> dict[str, Any]:
    """Return a session as one row of plain values: each list as its length and its JSON."""
    row: dict[str, Any] = {}
    for key, value in session.as_dict().items():
        if key in _FLAT:
            row[key], row[f"{key}_json"] = len(value), json.dumps(value)
        else:
            row[key] = value
    return row


def _csv(sessions: Sequence[SessionRecord], out: Any) -> None:
    import csv

    rows = [flat(session) for session in sessions]
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["session_id"])
    writer.writeheader()
    for row in rows:
        writer.writerow({key: printable(value) if isinstance(value, str) else value for key, value in row.items()})


def _table(sessions: Sequence[SessionRecord], out: Any) -> None:
    from mala_context.cli.scenarios.report import Table
    from mala_context.cli.tables import console, show

    rows = [_row(session) for session in sessions]
    columns = ("<session", "<model", "resp.", "tokens", "peak", "of window", "comp.", "sub.", "bad")
    screen = console(out)
    show(screen, Table("", columns, rows))
    responses = sum_of(sessions)["responses"]
    screen.print(f"\n{len(sessions):,} sessions, {responses:,} responses, subagents' included.")
    if any(_unsure(session.main) for session in sessions):
        screen.print("?: the window is a guess, or in doubt.")


def _unsure(agent: AgentRecord) -> bool:
    return agent.window_source == "guess" or agent.window_doubtful


def _row(session: SessionRecord) -> tuple[Any, ...]:
    main, ratio = session.main, session.peak_ratio
    name = session.session_id or session.path
    return (
        (name if len(name) <= 9 else name[:8] + "…"),
        (main.model or "?").removeprefix("claude-")[:10],
        main.responses,
        main.tokens,
        main.peak_tokens,
        None if ratio is None else f"{ratio:.1%}{'?' if _unsure(main) else ''}",
        len(session.compactions),
        len(session.subagents),
        sum(each.rows for each in session.problems),
    )


_WRITERS: dict[str, Writer] = {
    "table": _table,
    **WRITERS,
    "csv": _csv,
}
