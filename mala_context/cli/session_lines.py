"""Replayed sessions as JSON; and `mala-context replay` without click, where that is all it prints.

Programs call it with `--format json` or `--totals`, often for a handful of transcripts: loading click, and taking
Python down in order at the end, would be a third of their wait. `fast` reads the plain command lines, and leaves each
other one, and every mistake, to click's command in `replay`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mala_context.cli import streams
from mala_context.cli.exit_status import ERRORS, status_of
from mala_context.cli.plain_options import taken_apart
from mala_context.cli.progress import waiting

if TYPE_CHECKING:
    from mala_context.analysis.replay.record import SessionRecord


def write_json(sessions: Sequence[SessionRecord], out: Any) -> None:
    """Write one array with a session on each line."""
    out.write("[")
    for place, session in enumerate(sessions):
        out.write(("," if place else "") + "\n" + json.dumps(session.as_dict()))
    out.write("\n]\n")


def write_ndjson(sessions: Sequence[SessionRecord], out: Any) -> None:
    """Write a session on each line."""
    for session in sessions:
        out.write(json.dumps(session.as_dict()) + "\n")


def write_totals(sessions: Sequence[SessionRecord], out: Any) -> None:
    """Write the sum of all responses' tokens."""
    out.write(json.dumps(sum_of(sessions)) + "\n")


def sum_of(sessions: Sequence[SessionRecord]) -> dict[str, int]:
    """Return how many sessions and responses there are, and the sum of all responses' tokens."""
    names = ("input_tokens", "cache_creation_tokens", "cache_read_tokens", "output_tokens")
    found = {name: sum(getattr(each.totals, name) for each in sessions) for name in names}
    responses = sum(each.main.responses + sum(agent.responses for agent in each.subagents) for each in sessions)
    return {"sessions": len(sessions), "responses": responses, **found}


Writer = Callable[[Sequence["SessionRecord"], Any], None]
WRITERS: Final[dict[str, Writer]] = {"json": write_json, "ndjson": write_ndjson}


def fast(arguments: Sequence[str]) -> int | None:
    """Run `replay` without click, and end the process; return `None` for what click shall answer."""
    plain = _plain(arguments)
    if plain is None:
        return None
    from mala_context.analysis.replay.engine import LocalEngine, no_collection, replay

    paths, jobs, write = plain
    streams.prepare()
    with no_collection():
        try:
            with waiting("reading") as progress:
                sessions = replay(paths, engine=LocalEngine(jobs), progress=progress)
            write(sessions, sys.stdout)
            sys.stdout.flush()
            status = 0
        except ERRORS as error:
            status = status_of(error)
        os._exit(status)


def _plain(arguments: Sequence[str]) -> tuple[list[str], int | None, Writer] | None:
    """Return paths, jobs and what is to be written; `None` where it takes click."""
    found = taken_apart(arguments, {"--totals"}, {"--format", "--jobs"})
    if found is None:
        return None
    paths, options = found
    chosen = dict(options)
    write = write_totals if "--totals" in chosen else WRITERS.get(chosen.get("--format", ""))
    if not paths or write is None or not all(_is_good(name, value) for name, value in options):
        return None
    return paths, int(chosen["--jobs"]) if "--jobs" in chosen else None, write


def _is_good(name: str, value: str) -> bool:
    if name == "--format":
        return value in WRITERS
    return name == "--totals" or (value.isdecimal() and value.isascii() and len(value) < 5 and int(value) > 0)
