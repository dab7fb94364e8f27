"""Files that changed after the end of a restored conversation, and commands that bring their contents back.

Restoring brings back a conversation, not files. Listed are the files that its tool calls read or wrote by name and that
were changed or deleted since. A file that only a shell command touched is not known.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from mala_context._util.text import plural, utc_seconds
from mala_context.cli.inputs import upwards
from mala_context.transcripts.json_rows import content_of, objects
from mala_context.transcripts.loss.collect import FILE_TOOLS
from mala_context.transcripts.rows import file_chunks, rows

SHOWN: Final = 20
"""Files that are listed for people; --json has all."""


class ChangedFile(NamedTuple):
    """A file that is no longer as the conversation left it."""

    path: str
    state: str
    """`changed` or `deleted`."""


def changed_since(transcript: str, cwd: str | None, moment: str | None) -> tuple[list[ChangedFile], float | None]:
    """Return the files of a conversation that changed since it ended, and that moment in seconds since 1970.

    `moment` is the time of the end (ISO 8601); without one it is the newest of the transcript's rows. Raises `OSError`
    where the transcript cannot be read.
    """
    paths: dict[str, None] = {}
    newest = ""
    for row in rows(file_chunks(transcript)):
        for value in objects(row.data):
            stamp = value.get("timestamp")
            if isinstance(stamp, str):
                newest = max(newest, stamp)
            paths |= dict.fromkeys(_paths(value, cwd))
    end = utc_seconds(moment or newest)
    if end is None:
        return [], None
    found = []
    for path in paths:
        try:
            if os.stat(path).st_mtime > end:
                found.append(ChangedFile(path, "changed"))
        except FileNotFoundError:
            found.append(ChangedFile(path, "deleted"))
        except OSError:
            continue
    return sorted(found), end


def _paths(row: dict[str, object], cwd: str | None) -> Iterator[str]:
    """Yield the files that a row's tool calls name."""
    content = content_of(row)
    for block in content if isinstance(content, list) else ():
        given = block.get("input") if isinstance(block, dict) and block.get("type") == "tool_use" else None
        tool = FILE_TOOLS.get(block["name"]) if isinstance(given, dict) and isinstance(block.get("name"), str) else None
        path = given.get(tool[0]) if tool is not None and isinstance(given, dict) else None
        if isinstance(path, str) and path and "\0" not in path and (cwd or os.path.isabs(path)):
            yield os.path.normpath(os.path.join(cwd or os.sep, path))


def changed_lines(found: Sequence[ChangedFile], end: float, source: str, cwd: str | None) -> Iterator[str]:
    """Yield what to tell people: the files, and the commands that bring their contents back."""
    when = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S")
    yield f"{plural(len(found), 'file')} changed since {when} UTC; files are not restored:"
    yield from (f"{each.state}:  {each.path}" for each in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"and {len(found) - SHOWN:,} more; --json lists all"
    place = f"cd {shlex.quote(cwd)} && " if cwd else ""
    yield f"with Claude Code's checkpoints: {place}claude --resume {source}, then /rewind"
    if cwd is not None and any(os.path.lexists(os.path.join(each, ".git")) for each in upwards(cwd)):
        inside = [shlex.quote(each.path) for each in found[:SHOWN] if each.path.startswith(cwd + os.sep)]
        if inside:
            git = f"git -C {shlex.quote(cwd)}"
            commit = f'"$({git} rev-list -1 --before={int(end)} HEAD)"'
            yield f"with git, as of the last commit before then: {git} restore --source={commit} -- {' '.join(inside)}"
