"""Find the side files (large tool results) and the subagents that rows name, and put lost side files back.

Rows name a large result by its absolute path, `…/{session}/tool-results/x.txt`, in the text that the model got. A
restored session keeps that text. So a result that is gone but archived is put back under that very path, if the path
lies in the session's own folder below the projects directory. Nothing is ever written to another place that a row
names. A subagent is named by its id alone, in `toolUseResult.agentId`; see `subagents`.
"""

from __future__ import annotations

import os

from mala_context.archive import log
from mala_context.archive.atomic_write import place
from mala_context.archive.layout import Frozen
from mala_context.archive.side_files import side_directory
from mala_context.errors import ArchiveError
from mala_context.transcripts.session_ids import AGENT_ID_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mala_context.archive.history import History
    from mala_context.archive.interface import Write

_RESULTS = b"/tool-results/"
_STOPS = (b'"', b"\\", b"<", b">", b"\r", b"\n", b"\t")
_NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/")
MOST = 10_000
"""Names beyond this number are not followed."""


class SideFiles(Frozen):
    """What became of the side files that a restored session's rows name."""

    put_back: tuple[str, ...] = ()
    """Paths of files that were gone and are there again, from the archive."""
    missing: tuple[str, ...] = ()
    """Paths of files that are gone and not archived."""


def results_named(data: bytes) -> Iterator[str]:
    """Yield the absolute paths of tool results that a row names."""
    start = data.find(_RESULTS)
    while start >= 0:
        low = max(0, start - 4096)
        first = max(low, *(data.rfind(stop, low, start) + 1 for stop in _STOPS))
        end = start + len(_RESULTS)
        while end < len(data) and data[end] in _NAME:
            end += 1
        path = data[first:end]
        # Words may stand before the path: then it begins at the last " /".
        path = path[path.rfind(b" /", 0, start - first + 1) + 1 :].rstrip(b"./")
        if path.startswith(b"/") and _RESULTS in path and b"/../" not in path and b"\0" not in path:
            yield os.fsdecode(path)
        start = data.find(_RESULTS, end)


def subagents_named(value: dict[str, object]) -> Iterator[str]:
    """Yield the ids of subagents whose work a row reports."""
    result = value.get("toolUseResult")
    agent = result.get("agentId") if isinstance(result, dict) else None
    if isinstance(agent, str) and 0 < len(agent) <= AGENT_ID_MAX and "/" not in agent:
        yield agent


def look_after(history: History, results: set[str], projects: str, *, dry_run: bool = False) -> SideFiles:
    """Put back the files that are archived and gone; return these and the missing ones.

    A file that cannot be read or written counts as missing. A dry run writes nothing.
    """
    put_back: list[str] = []
    missing: list[str] = []
    stored = {row.get("path"): row.get("name") for row in history.manifest.of_kind("file")}
    there = {file.name for file in history.files.list()}
    for path in sorted(results)[:MOST]:
        if os.path.lexists(path):
            continue
        directory, _, name = path.rpartition("/tool-results/")
        own = os.path.basename(directory) == history.session_id
        kept = stored.get(f"tool-results/{name}") if own else None
        if isinstance(kept, str) and kept in there and _is_ours(directory, projects):
            try:
                _put_back(history, kept, directory, name, dry_run=dry_run)
            except (ArchiveError, OSError) as error:
                log.warning("Side file %s could not be put back: %s", path, error)
                missing.append(path)
            else:
                put_back.append(path)
        else:
            missing.append(path)
    return SideFiles(put_back=tuple(put_back), missing=tuple(missing))


def side_directory_of(history: History, projects: str) -> str:
    """Return the directory beside the old session's transcript, whether or not that is still there."""
    return side_directory(history.last_path) if history.last_path else os.path.join(projects, "*", history.session_id)


def _is_ours(directory: str, projects: str) -> bool:
    """Say whether `…/projects/FOLDER/SESSION` is a place below the projects directory, without links or `..` in it."""
    return os.path.normpath(directory) == directory and os.path.dirname(os.path.dirname(directory)) == projects


def _put_back(history: History, kept: str, directory: str, name: str, *, dry_run: bool) -> None:
    """Write one archived side file to its old place; every directory on the way is opened without following a link.

    A dry run only reads it, so that it reports what cannot be read.
    """

    def fill(write: Write) -> None:
        for data in history.side_file(kept):
            write(data)

    if dry_run:
        fill(len)
        return
    place(
        os.path.dirname(os.path.dirname(directory)),
        [*directory.split("/")[-2:], "tool-results", *name.split("/")],
        fill,
    )
