"""`mala-context map`: what fills the context of a session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mala_context._util.text import percent, plural
from mala_context.cli.inputs import ExistingDirectory, complete_session, must_hold_rows, own_transcript
from mala_context.cli.progress import waiting
from mala_context.cli.scenarios.report import Lines, Table
from mala_context.errors import MalaContextError
from mala_context.tracking.auto_compact import auto_compact_window_of
from mala_context.tracking.context_map import GROUPS

if TYPE_CHECKING:
    from mala_context.analysis.context_maps import RecordedMap
    from mala_context.tracking.context_map import ContextPart


@click.command()
@click.argument("session", required=False, metavar="[SESSION|PATH]", shell_complete=complete_session)
@click.option("--project", type=ExistingDirectory(), metavar="DIR", help="The newest session of this directory.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Number of parts to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every part.")
def map(  # noqa: A001 - the command's name
    session: str | None, project: str | None, top: int, as_json: bool
) -> None:
    """Show what fills a session's context: its parts, which sum up to the size of its last request.

    SESSION is a session's id or its first letters, PATH a transcript (a subagent's, too), or - for standard input.
    Without any, it is the newest session of this directory, or else of this machine. The session may be running.
    No request is made. Requests whose size was not as projected are listed with their cause.
    """
    from mala_context.analysis.context_maps import MapReader
    from mala_context.analysis.replay.files import STDIN, find

    path = own_transcript(session, project)
    with waiting("reading"):
        recordings = find([path], subagents=False)
        if len(recordings) != 1:
            raise MalaContextError(f"{path} holds {plural(len(recordings), 'recording')}: name one transcript")
        found = MapReader(recordings[0], auto_compact_window_of(os.environ)).read()
    if found.snapshot.tokens is None:
        if path != STDIN:
            must_hold_rows([path])
        raise MalaContextError(f"no response in {path}: the size of the context is unknown")
    if as_json:
        json.dump(found.as_dict(), sys.stdout)
        sys.stdout.write("\n")
        return
    _show(found, top)


def _show(found: RecordedMap, top: int) -> None:
    from mala_context.cli.tables import console, show

    now = found.snapshot
    tokens = now.tokens or 0
    share = "?" if now.ratio is None else percent(now.ratio)
    who = now.agent_id or now.session_id or "unknown"
    about = "" if now.exact else "about "
    guess = " (a guess)" if now.window_source == "guess" else ""
    out = console()
    lines = [
        f"Session {who}, {now.model or 'model unknown'}",
        f"Context {about}{tokens:,} tokens, {share} of {now.window:,}{guess}; free {max(0, now.window - tokens):,}",
    ]
    if now.reserve is not None:
        lines.append(f"Reserve {now.reserve:,}: the CLI compacts at {now.auto_compact_threshold:,}")
    show(out, Lines("Context map", lines))
    show(out, Table("Parts", ("<part", "<name", "tokens", "share"), list(_rows(now.parts, tokens, top))))
    if found.alarms:
        show(out, Lines("Not as projected", [f"row {each.row}: {each.surprise.line}" for each in found.alarms[-top:]]))


def _rows(parts: tuple[ContextPart, ...], tokens: int, top: int) -> Iterator[tuple[str, str, int, str]]:
    """Yield the largest parts, in their order, and the rest as one."""
    shown = set(sorted(parts, key=lambda part: -part.tokens)[:top])
    for part in parts:
        if part in shown:
            named = part.path or part.name
            name = "" if named == GROUPS[part.group] else named
            yield GROUPS[part.group], name, part.tokens, percent(part.tokens / max(1, tokens))
    rest = [part for part in parts if part not in shown]
    if rest:
        size = sum(part.tokens for part in rest)
        yield plural(len(rest), "smaller part"), "", size, percent(size / max(1, tokens))
