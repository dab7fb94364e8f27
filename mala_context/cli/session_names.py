"""The name by which a person at a terminal knows a session: its project and its first prompt.

A prompt may hold a secret, so none goes into a file, a pipe or a log.
"""

from __future__ import annotations

import os
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from mala_context._util.text import printable
from mala_context.transcripts.prompts import prompt_text
from mala_context.transcripts.tail import read_opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROJECT_WIDTH: Final = 20
LEAST_PROMPT: Final = 12
"""Columns that a first prompt needs to be of use."""


class SessionName(NamedTuple):
    """What a person knows a session by; empty where its first rows do not say."""

    project: str
    prompt: str

    def within(self, room: int) -> str:
        """Return both within a number of columns; empty where there is no room, or nothing to say."""
        text = ": ".join(filter(None, self))
        return (text if len(text) <= room else text[: room - 1] + "…") if room >= LEAST_PROMPT else ""


def name_of(rows: Iterable[Mapping[str, Any]]) -> SessionName:
    """Return a session's name from its first rows."""
    cwd = prompt = ""
    for row in rows:
        here = row.get("cwd")
        cwd = cwd or (here if isinstance(here, str) else "")
        prompt = prompt or prompt_text(row) or ""
    project = os.path.basename(cwd.rstrip("/"))[:PROJECT_WIDTH]
    return SessionName(printable(project), printable(" ".join(prompt.split())))


@cache
def name_of_file(path: str) -> SessionName:
    """Return the name of a transcript's session; an empty one for standard input, an address, a file that is gone."""
    try:
        return name_of(read_opening(path))
    except OSError:
        return SessionName("", "")


def named(line: str, rows: Iterable[Mapping[str, Any]] | str, out: IO[str], width: int) -> str:
    """Return a line with a session's name at its end, on a terminal that is wide enough.

    `rows` are the session's first ones, or its transcript's path.
    """
    room = width - len(line) - 2
    if not out.isatty() or room < LEAST_PROMPT:
        return line
    name = name_of_file(rows) if isinstance(rows, str) else name_of(rows)
    return f"{line}  {name.within(room)}".rstrip()
