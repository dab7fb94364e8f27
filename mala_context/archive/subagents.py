"""Copy the subagents' transcripts of a restored session to the place where the CLI looks for them.

The CLI looks for a subagent below the session that it has open, `SESSION/subagents/agent-ID.jsonl`, and nowhere else.
Without that file a restored session cannot resume an agent that its own rows name: "No transcript found for agent ID".
So each transcript is copied beside the new session, byte for byte. It is taken from the old session's folder if it is
there and whole, else from the archive. The CLI's own notes on the agent (`agent-ID.meta.json`) are copied with it.

A session that is restored whole gets all of its subagents. A session that is cut gets those that its rows name, and
those that these name in turn. Each transcript is copied whole: it also holds what a background agent did after the cut.

The agents of a workflow have a folder for each run, `SESSION/subagents/workflows/RUN/`, and the run has a file,
`SESSION/workflows/RUN.json`. Rows do not name these by their paths, so all of them are copied, cut or not.
"""

from __future__ import annotations

import os

from mala_context.archive import log, manifests
from mala_context.archive.atomic_write import place
from mala_context.archive.history import continues
from mala_context.archive.layout import Frozen
from mala_context.archive.named_files import MOST, side_directory_of, subagents_named
from mala_context.archive.reading import choose_chain, chunks
from mala_context.archive.side_files import subagent_of, walk
from mala_context.errors import ArchiveError
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.rows import file_chunks, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mala_context.archive.history import History
    from mala_context.archive.interface import Write
    from mala_context.archive.layout import Piece


_OF_WORKFLOWS = ("subagents/workflows/", "workflows/")


class RestoredSubagents(Frozen):
    """What became of the subagents of a restored session."""

    copied: tuple[str, ...] = ()
    """Paths of the transcripts that are beside the new session now, those of workflows too."""
    missing: tuple[str, ...] = ()
    """Paths beside the old session of transcripts that are gone and not archived, or could not be copied."""


def bring_subagents(
    history: History,
    named: set[str],
    projects: str,
    directory: str,
    new_id: str,
    *,
    whole: bool,
    dry_run: bool = False,
) -> RestoredSubagents:
    """Copy subagents' transcripts beside a session that was restored in `directory` as `new_id`; not in a dry run.

    `named` are the ids that the session's rows name. If the session is `whole`, all other subagents are copied too. A
    transcript that cannot be read or written is a WARNING and counts as missing. The bytes are reported to the
    history's `progress`.
    """
    bringing = _Bringing(history, projects, directory, new_id, dry_run=dry_run)
    found = bringing.bring(named | bringing.all() if whole else named)
    return RestoredSubagents(copied=(*found.copied, *bringing.bring_workflows()), missing=found.missing)


class _Bringing:
    def __init__(self, history: History, projects: str, directory: str, new_id: str, *, dry_run: bool) -> None:
        self._history = history
        self._dry_run = dry_run
        self._old = side_directory_of(history, projects)
        self._place = (directory, new_id)
        self._there = dict(walk(f"{self._old}.jsonl"))
        self._pieces = manifests.pieces_of(history.files.list(), history.manifest)
        self._kept = {row.get("path"): row.get("name") for row in history.manifest.of_kind("file")}
        self._stored = {file.name for file in history.files.list()}

    def bring(self, named: set[str]) -> RestoredSubagents:
        """Copy these agents' transcripts, and those of the agents that they name."""
        pending = sorted(named, reverse=True)
        seen, copied, missing = set(pending), [], []
        while pending and len(seen) <= MOST:
            agent = pending.pop()
            path = self._copied(agent)
            if path is None:
                missing.append(os.path.join(self._old, "subagents", f"agent-{agent}.jsonl"))
                continue
            copied.append(path)
            self._copy_file(f"subagents/agent-{agent}.meta.json")  # the CLI also works without this file
            more = self._named_by(agent, path) - seen
            seen |= more
            pending.extend(sorted(more, reverse=True))
        return RestoredSubagents(copied=tuple(sorted(copied)), missing=tuple(sorted(missing)))

    def all(self) -> set[str]:
        """Return the ids of all subagents, in the session's folder or in the archive."""
        here = {agent for name in self._there if (agent := subagent_of(name)) is not None}
        return here | {piece.subagent for piece in self._pieces if piece.subagent is not None}

    def bring_workflows(self) -> list[str]:
        """Copy the files of workflows; return the paths of transcripts. A file that cannot be copied is a WARNING."""
        kept = {name for name in self._kept if isinstance(name, str)}
        found = sorted(name for name in {*self._there, *kept} if name.startswith(_OF_WORKFLOWS))
        copied = [(name, self._copy_file(name, expected=name.endswith(".jsonl"))) for name in found[:MOST]]
        return [path for _, path in copied if path is not None and os.path.basename(path).startswith("agent-")]

    def _copy_file(self, name: str, *, expected: bool = False) -> str | None:
        """Copy one side file from the session's folder, else from the archive; `None` if neither works."""
        path, kept = self._there.get(name), self._kept.get(name)
        try:
            if path is not None:
                if expected:
                    self._history.expect(os.path.getsize(path))
                return self._write(name, file_chunks(path))
            if isinstance(kept, str) and kept in self._stored:
                data = self._history.side_file(kept)
                return self._write(name, data, told=False)
        except (ArchiveError, OSError, ValueError) as error:
            log.warning("Side file %s could not be put back: %s", name, error)
        return None

    def _copied(self, agent: str) -> str | None:
        """Copy one transcript; return its new path, or `None` if there is none or copying failed."""
        name = f"agent-{agent}.jsonl"
        try:
            source = self._source(agent, f"subagents/{name}")
            return None if source is None else self._write(f"subagents/{name}", source)
        except (ArchiveError, OSError, ValueError) as error:
            log.warning("Subagent's transcript %s could not be restored: %s", name, error)
            return None

    def _named_by(self, agent: str, path: str) -> set[str]:
        """Return the ids of the subagents that a subagent's own rows name; it was copied to `path`, or would be."""
        try:
            data = self._source(agent, f"subagents/agent-{agent}.jsonl") if self._dry_run else file_chunks(path)
            return _named_in(data or ())
        except (ArchiveError, OSError) as error:
            log.warning("Subagent's transcript %s cannot be read: %s", path, error)
            return set()

    def _source(self, agent: str, name: str) -> Iterator[bytes] | None:
        """Return the bytes of one transcript, from where it is whole; raises like `choose_chain` and `chunks`."""
        path = self._there.get(name)
        chains = manifests.chains_of(self._pieces, agent)
        if path is None and not chains:
            return None
        pieces: list[Piece] = []
        if chains:
            pieces = choose_chain(self._pieces, self._history.session_id, "", subagent=agent)
        if path is not None and continues(self._history.files, path, pieces):
            self._history.expect(os.path.getsize(path))
            return file_chunks(path)
        self._history.expect(sum(piece.length or 0 for piece in pieces))
        return chunks(self._history.files, pieces) if pieces else None

    def _write(self, name: str, data: Iterable[bytes], *, told: bool = True) -> str:
        root, new_id = self._place

        def fill(write: Write) -> None:
            for chunk in data:
                write(chunk)
                if told and name.endswith(".jsonl"):
                    self._history.told(len(chunk))

        if self._dry_run:
            fill(len)  # a dry run reads too, so that it reports what cannot be read
            return os.path.join(root, new_id, *name.split("/"))
        return place(root, [new_id, *name.split("/")], fill)


def _named_in(data: Iterable[bytes]) -> set[str]:
    found: set[str] = set()
    for row in rows(data):
        if b'"toolUseResult"' in row.data:
            for value in objects(row.data):
                found.update(subagents_named(value))
    return found
