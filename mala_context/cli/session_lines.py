"""`mala-context replay` for programs: sessions as JSON and their totals, which need no click."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mala_context.analysis.replay import replay
from mala_context.analysis.replay.engine import LocalEngine
from mala_context.cli import streams
from mala_context.cli.plain_options import parsed
from mala_context.cli.progress import waiting
from mala_context.errors import MalaContextError

if TYPE_CHECKING:
    from mala_context.analysis.replay.engine import Engine
    from mala_context.analysis.replay.record import SessionRecord


def fast(arguments: Sequence[str]) -> int | None:
    """Run `replay` on paths with `--totals`, or `--format json` or `ndjson`; return its exit status.

    Return `None` if click must answer: another format, other options, no path, a mistake.
    """
    found = parsed(arguments, flags={"--totals"}, values={"--format", "--jobs"})
    if found is None:
        return None
    options, paths = found
    jobs = options.get("--jobs", "1")
    write = LINES.get(options.get("--format", "json" if "--totals" in options else ""))
    if write is None or not paths or not jobs.isdecimal() or not int(jobs):
        return None
    try:
        streams.prepare()
        totals = "--totals" in options
        sessions = read(paths, LocalEngine(int(jobs) if "--jobs" in options else None), estimates=not totals)
        if totals:
            write_totals(sessions, sys.stdout)
        else:
            write((each.as_dict() for each in sessions), sys.stdout)
        sys.stdout.flush()
        must_tell(sessions, paths)
    except (KeyboardInterrupt, MalaContextError, OSError) as error:
        from mala_context.cli.exit_status import status_of

        return status_of(error)
    return 0


def read(paths: Sequence[str], engine: Engine, *, estimates: bool) -> list[SessionRecord]:
    """Return the sessions of the paths, and show how far that is."""
    with waiting("reading") as progress:
        return replay(paths, engine=engine, progress=progress, estimates=estimates)


def must_tell(sessions: Sequence[SessionRecord], paths: Sequence[str]) -> None:
    """Raise `MalaContextError` where the paths have files, but not one row of a session."""
    if not any(each.session_id or each.main.responses for each in sessions):
        from mala_context.cli.inputs import must_hold_rows

        must_hold_rows(paths)


def write_totals(sessions: Sequence[SessionRecord], out: Any) -> None:
    """Write the sum of all responses' tokens."""
    out.write(json.dumps(sum_of(sessions)) + "\n")


def sum_of(sessions: Sequence[SessionRecord]) -> dict[str, int]:
    """Return how many sessions and responses there are, and the sum of all responses' tokens."""
    names = ("input_tokens", "cache_creation_tokens", "cache_read_tokens", "output_tokens")
    found = {name: sum(getattr(each.totals, name) for each in sessions) for name in names}
    responses = sum(each.main.responses + sum(agent.responses for agent in each.subagents) for each in sessions)
    return {"sessions": len(sessions), "responses": responses, **found}


def _json(objects: Iterable[dict[str, Any]], out: Any) -> None:
    """Write one array with an object on each line."""
    out.write("[")
    for place, each in enumerate(objects):
        out.write(("," if place else "") + "\n" + json.dumps(each))
    out.write("\n]\n")


def _ndjson(objects: Iterable[dict[str, Any]], out: Any) -> None:
    out.writelines(json.dumps(each) + "\n" for each in objects)


LINES: Final[dict[str, Callable[[Iterable[dict[str, Any]], Any], None]]] = {"json": _json, "ndjson": _ndjson}
"""Formats with an object on each line, a session or an agent; they can hold the records of `--trace` too."""
