"""The files beside a transcript that belong to it: subagents' transcripts and the files that rows name.

The CLI keeps both in a directory that is named like the transcript without its extension: `subagents/agent-ID.jsonl`,
and `tool-results/…` for results that were too large for the conversation. Subagents' transcripts are archived piece by
piece like the main one. Every other file is kept once for each content. Only files in that directory are archived,
never a path that a row names. No link is followed in it or in its place, because programs that the agent runs may write
there: a link put the files that it led to into the archive, and into the object store.
"""

from __future__ import annotations

import os

from mala_context._util.safe_open import Held
from mala_context.archive import layout, log, manifests
from mala_context.archive.source import Source, open_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mala_context.archive.interface import SessionFiles, Write

DEPTH = 4
"""Directories deeper than this are not looked into."""
MOST = 20_000
"""Files beyond this number are not looked at: no CLI writes that many."""


def side_directory(transcript: str) -> str:
    """Return the directory beside a transcript."""
    return os.path.splitext(transcript)[0]


def walk(transcript: str) -> Iterator[tuple[str, str]]:
    """Yield the relative name (with `/`) and the path of each regular file beside a transcript, in order."""
    top = side_directory(transcript)
    pending: list[tuple[str, int]] = [("", 0)]
    seen = 0
    while pending:
        prefix, depth = pending.pop()
        try:
            entries = _entries(top, prefix.split("/")[:-1])
        except OSError:
            continue
        for entry, is_directory, is_file in entries:
            name = prefix + entry
            if is_directory:
                if depth < DEPTH:
                    pending.append((f"{name}/", depth + 1))
            elif is_file:
                seen += 1
                if seen > MOST:
                    log.warning("More than %d files beside %s: the rest is not archived", MOST, transcript)
                    return
                yield name, os.path.join(top, name)


def _entries(top: str, folders: list[str]) -> list[tuple[str, bool, bool]]:
    """Return the sorted names of a directory, each with: is it a directory, is it a file. A link is neither."""
    with Held(open_directory(top, folders)) as fd, os.scandir(fd) as found:
        return sorted(
            (each.name, each.is_dir(follow_symlinks=False), each.is_file(follow_symlinks=False)) for each in found
        )


def subagent_of(name: str) -> str | None:
    """Return the id of the subagent whose transcript a relative name is, or `None` for a side file."""
    folder, _, base = name.rpartition("/")
    if folder != "subagents" or not base.startswith("agent-") or not base.endswith(".jsonl"):
        return None
    return base[len("agent-") : -len(".jsonl")]


def keep_side_files(files: SessionFiles, found: list[tuple[str, str]], now: int) -> list[str]:
    """Keep the files that are new or changed since the manifest's row for them; returns their names in the archive.

    The caller holds the session's lock. A file that cannot be read now is skipped with a WARNING, and tried again the
    next time. Raises `OSError` if a file cannot be written.
    """
    from mala_context.errors import TranscriptError

    known = {row.get("path"): row for row in manifests.parse(files.manifest()).of_kind("file")}
    there = {each.name for each in files.list()}
    kept = []
    for name, path in found:
        try:
            with Source(path, path.removesuffix(f"/{name}")) as source:
                row = known.get(name, {})
                same = (row.get("length"), row.get("mtime_ns")) == (source.size, source.mtime_ns)
                if source.size and not (same and row.get("name") in there):
                    kept.append(_keep(files, source, name, now))
        except TranscriptError as error:
            log.warning("Side file of session %s not archived: %s", files.session_id, error)
    return kept


def _keep(files: SessionFiles, source: Source, name: str, now: int) -> str:
    digest = ""

    def copy(write: Write) -> str:
        nonlocal digest
        digest = source.copy(0, source.size, write)
        return layout.side_file_name(files.session_id, digest)

    stored, _ = files.publish_named(copy)
    fields: dict[str, Any] = {"path": name, "name": stored, "length": source.size, "sha256": digest}
    row = manifests.new_row("file", now, **fields, mtime_ns=source.mtime_ns)
    files.append(manifests.dump([row]))
    return stored
