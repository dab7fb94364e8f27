"""`mala-context replay`: how full recorded sessions were."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mala_context._util.text import plural, printable
from mala_context.cli.files import publish, text_writer, write_parquet
from mala_context.cli.inputs import DASK, chosen, engine_options, must_hold_rows, own_options, recordings
from mala_context.cli.progress import waiting
from mala_context.cli.scenarios.report import Lines, Table
from mala_context.cli.session_lines import LINES, must_tell, read, sum_of, write_totals
from mala_context.cli.session_names import LEAST_PROMPT, PROJECT_WIDTH, name_of_file
from mala_context.tracking.cache import CAUSES

if TYPE_CHECKING:
    from mala_context.analysis.cache import AgentCache
    from mala_context.analysis.replay.record import AgentRecord, SessionRecord

FORMATS: Final = ("table", "json", "ndjson", "csv", "parquet")
_MOST_REWRITES: Final = 10
"""How many re-writes of the prompt cache are listed, the most expensive first."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--format", "form", type=click.Choice(FORMATS), help="How to print the sessions.  [default: table]")
@click.option("--trace", is_flag=True, help="Print a line for each row before the sessions (json and ndjson).")
@click.option("--totals", is_flag=True, help="Print only the sum of all responses' tokens, as JSON.")
@click.option("--cache", is_flag=True, help="Print what the prompt cache read, and wrote a second time (slower).")
@click.option("--money", is_flag=True, help="Add to --cache an estimate in US dollars (extra prices).")
@click.option("-o", "--output", metavar="FILE", help="Write there instead of standard output (needed for parquet).")
@own_options
@engine_options
def replay(
    paths: tuple[str, ...],
    form: str | None,
    trace: bool,
    totals: bool,
    cache: bool,
    money: bool,
    output: str | None,
    project: str | None,
    session: str | None,
    since: str | None,
    **where: Any,
) -> None:
    """Show how full recorded sessions were, when they compacted, and what their subagents used.

    PATH is a transcript or stream-json file (.jsonl, .jsonl.gz, .jsonl.zst), a folder of them, an archive, a pattern
    in quotes, an address in an object store (s3://bucket/prefix), or - for standard input. With a transcript ID.jsonl
    the files of its subagents are read, in ID/subagents beside it. Without PATH all your own sessions are read. Exit
    status 3 if no row could be read.
    """
    form = form or ("ndjson" if trace else "table")
    if trace and form not in LINES:
        raise click.UsageError(f"--trace prints lines: use --format {' or '.join(LINES)}, not {form}")
    if form == "parquet" and output is None:
        raise click.UsageError("parquet is no text: name a file with --output")
    given = recordings(paths, project=project, session=session, since=None if paths else since)
    if trace:
        if where["engine"] == DASK or where["scheduler"]:
            raise click.UsageError("--trace reads line by line on this machine: leave --engine and --scheduler out")
        _trace(given, since)
        return
    if cache or money:
        if not cache:
            raise click.UsageError("--money adds to --cache: name that too")
        _cache(given, form, output, money, where)
        return
    with chosen(**where) as engine:
        everything = read(given, engine, estimates=not totals)
    sessions = [each for each in everything if _is_after(each, since)]
    if totals:
        write_totals(sessions, sys.stdout)
    elif output is None:
        _write(sessions, form, sys.stdout)
    elif form == "parquet":
        write_parquet([flat(each) for each in sessions], output)
    else:
        with publish(output) as temporary, text_writer(temporary) as file:
            _write(sessions, form, file)
    must_tell(everything, given)


def _cache(paths: Sequence[str], form: str, output: str | None, money: bool, where: dict[str, Any]) -> None:
    from mala_context.analysis.cache import read_cache

    if form not in {"table", *LINES} or output is not None:
        raise click.UsageError(f"--cache prints table, {', '.join(LINES)} to standard output")
    with chosen(**where) as engine, waiting("reading") as progress:
        agents = read_cache(paths, engine=engine, progress=progress)
    if not agents:
        must_hold_rows(paths)
    if form == "table":
        _show_cache(agents, sys.stdout, money=money)
    else:
        LINES[form]((agent.as_dict(money=money) for agent in agents), sys.stdout)


def _show_cache(agents: Sequence[AgentCache], out: Any, *, money: bool) -> None:
    from mala_context.analysis.cache import total
    from mala_context.cli.tables import console, show

    screen, use = console(out), total(agents)
    written = use.written_5m + use.written_1h
    rows = [
        ("read from the cache", use.read),
        ("written for 5 minutes", use.written_5m),
        ("written for an hour", use.written_1h),
        ("neither", use.uncached),
    ]
    responses = sum(len(agent.responses) for agent in agents)
    show(screen, Table(f"{plural(responses, 'response')} of {plural(len(agents), 'agent')}", ("<", "tokens"), rows))
    causes = [(CAUSES[cause], *each[:2], round(each.cost)) for cause, each in use.causes]
    causes.sort(key=lambda row: -row[3])
    share = f"{use.rewritten / written:.1%}" if written else "none"
    show(screen, Table(f"Written again: {share} of what was written", ("<cause", "requests", "tokens", "cost"), causes))
    screen.print("cost: beyond that of reading them, in units of an uncached input token")
    again = [(agent, each) for agent in agents for each in agent.written if each.rewrite.again]
    again.sort(key=lambda pair: -pair[1].rewrite.cost)
    if again:
        lines = [f"{agent.path}:{each.row}: {each.rewrite.line}" for agent, each in again[:_MOST_REWRITES]]
        show(screen, Lines("Written again, the dearest first", lines))
    if money:
        spent = sum(agent.dollars or 0.0 for agent in agents)
        screen.print(f"\nAt list prices, an estimate: to write again cost ${spent:,.2f} more than to read.")


def _trace(paths: Sequence[str], since: str | None) -> None:
    from mala_context.analysis.replay.files import find
    from mala_context.analysis.replay.sessions import join
    from mala_context.analysis.replay.trace import trace

    stretches, named = [], set(find(paths, subagents=False))
    for recording in find(paths):
        say = (lambda record: _print(json.dumps(record))) if recording in named else (lambda record: None)
        stretches += trace(recording, say)
    for session in join(stretches):
        if _is_after(session, since):
            _print(json.dumps(session.as_dict()))


def _is_after(session: SessionRecord, since: str | None) -> bool:
    return since is None or (session.ended_at is not None and session.ended_at >= since)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


# -- formats -----------------------------------------------------------------------------------------------------------

_FLAT: Final = ("compactions", "subagents", "problems")
"""Lists in a session's JSON; flat formats have their length, and the JSON of the list after it."""


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
    rows = [flat(session) for session in sessions]
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["session_id"])
    writer.writeheader()
    for row in rows:
        writer.writerow({key: printable(value) if isinstance(value, str) else value for key, value in row.items()})


def _table(sessions: Sequence[SessionRecord], out: Any) -> None:
    from mala_context.cli.tables import PIPE_WIDTH, console, show

    screen = console(out)
    columns = ["<session", "<model", "resp.", "tokens", "peak", "of window", "comp.", "ref.", "sub.", "bad"]
    rows = [_row(session) for session in sessions]
    room = screen.width - PIPE_WIDTH - 16 - PROJECT_WIDTH - 6 if screen.is_terminal else 0
    if room >= LEAST_PROMPT:
        columns += ["<started", "<project", "<first prompt"]
        for place, session in enumerate(sessions):
            started = (session.started_at or "")[:16].replace("T", " ")
            project, prompt = name_of_file(session.path)
            rows[place] = (*rows[place], started, project, prompt[:room])
    show(screen, Table("", columns, rows))
    responses = plural(sum_of(sessions)["responses"], "response")
    screen.print(f"\n{plural(len(sessions), 'session')}, {responses}, subagents' included.")
    if any(session.microcompactions for session in sessions):
        screen.print("+n: the CLI cleared old tool results by itself; these are no compactions.")
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
        f"{len(session.compactions)}{f'+{session.microcompactions}' if session.microcompactions else ''}",
        session.overflows,
        len(session.subagents),
        sum(each.rows for each in session.problems),
    )


def _write(sessions: Sequence[SessionRecord], form: str, out: Any) -> None:
    if form in LINES:
        LINES[form]((each.as_dict() for each in sessions), out)
    else:
        {"table": _table, "csv": _csv}[form](sessions, out)
