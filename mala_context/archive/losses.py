"""Find what a compaction lost: compare the rows that it dropped, from the archive, with its summary.

A piece is written just before a compaction, so the dropped rows are those up to the end of the piece, and a few that
the CLI had not written by then (the newest prompt, the results of the last tools). These few are read from the
transcript, up to the boundary. Rows before the previous compaction are not read, except the previous compaction's own
piece: its open todo items outlive the compaction. A piece that was written after the boundary ends with rows of the new
conversation; they are cut off.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mala_context.archive import manifests
from mala_context.archive.reading import chunks
from mala_context.archive.side_files import side_directory
from mala_context.transcripts.compactions import BOUNDARY, is_main_boundary, is_summary, kept_text
from mala_context.transcripts.json_rows import content_of, content_text, few_objects
from mala_context.transcripts.loss import Loss, measure
from mala_context.transcripts.rows import file_chunks, rows
from mala_context.transcripts.session_ids import check_agent_id

if TYPE_CHECKING:
    from mala_context.archive.interface import SessionView
    from mala_context.archive.layout import Piece
    from mala_context.archive.store import TranscriptArchive


_BETWEEN: Final = {"type": "system", "subtype": BOUNDARY}
"""Stands after the piece of the previous compaction: old CLIs wrote no boundary."""


def read_loss(
    archive: TranscriptArchive,
    session_id: str,
    summary: str | None,
    *,
    piece: str | None = None,
    preserved: Collection[str] = (),
    transcript: str | None = None,
) -> Loss | None:
    """Compare what the main agent's last compaction dropped with its summary; `None` if either is not known.

    `piece` names the piece of another compaction. Without `summary`, the summary is looked for after the boundary.
    `preserved` are ids of rows that stayed in the context. `transcript` is the transcript's path, if it may hold rows
    of the last compaction that are not archived yet. Raises like `TranscriptArchive.pieces`.
    """
    with archive.view(session_id) as files:
        manifest = manifests.parse(files.manifest())
        pieces = manifests.pieces_of(files.list(), manifest)
        chosen = dropped(pieces, manifest, piece)
        if not chosen:
            return None
        read = partial(_rows, files)
        found: list[dict[str, Any]] = []
        ended = chosen[0].plain in _compacted(manifest) and not _written_late(chosen[0], manifest)
        for place, each in enumerate(chosen):
            # The first piece was dropped by the compaction before this one. It is read for its open todo items, which
            # outlive a compaction; a boundary after it keeps its files and instructions out of this loss.
            if place == 1 and ended:
                found.append(_BETWEEN)
            found += read(each)
        after = _after(transcript, chosen[-1].end) if piece is None else []
        if _written_late(chosen[-1], manifest):
            found, told = _cut(found + after)
        else:
            more, told = _cut(after, first=True)
            found += more
        if told is None and summary is None and piece is not None:
            told = next(
                (words for each in _later(pieces, chosen[-1]) if (words := _cut(read(each), first=True)[1])), None
            )
    words = told if summary is None else summary
    return None if words is None else measure(found, words, preserved=preserved)


def read_subagent_loss(transcript: str, agent_id: str, summary: str) -> Loss | None:
    """Compare a subagent's rows with the summary of its compaction; `None` if its transcript is not there.

    `transcript` is the path of the main transcript; the subagent's lies beside it. Call this before the subagent
    continues: later rows would count as dropped. Raises `InvalidSessionIdError` for an id that is no plain name.
    """
    path = os.path.join(side_directory(transcript), "subagents", f"agent-{check_agent_id(agent_id)}.jsonl")
    found = _after(path, 0)
    return measure(found, summary, sidechain=True) if found else None


def _rows(files: SessionView, piece: Piece) -> list[dict[str, Any]]:
    return [each for row in rows(chunks(files, [piece], strict=False)) for each in few_objects(row.data)]


def _later(pieces: Iterable[Piece], piece: Piece) -> list[Piece]:
    """Return the pieces after one in its chain; the next one holds the summary."""
    same = [each for each in pieces if (each.subagent, each.chain) == (piece.subagent, piece.chain)]
    return [each for each in same if each.stamp > piece.stamp]


def dropped(pieces: Iterable[Piece], manifest: manifests.Manifest, name: str | None = None) -> list[Piece]:
    """Return the pieces that hold what a compaction dropped, by default the last one."""
    chains = manifests.chains_of(list(pieces), None)
    if name is None:
        chain = chains[-1] if chains else []
    else:
        places = ((chain, place) for chain in chains for place, each in enumerate(chain) if each.plain == name)
        chain = next((chain[: place + 1] for chain, place in places), [])
    if not chain or chain[-1].mode == "full":
        return chain[-1:]
    done = _compacted(manifest)
    start = max((place for place, each in enumerate(chain[:-1]) if each.plain in done), default=0)
    return chain[start:]


def _compacted(manifest: manifests.Manifest) -> set[Any]:
    """Return the names of the pieces after which the conversation was compacted."""
    outcomes = manifest.of_kind("outcome")
    return {row.get("piece") for row in outcomes if row.get("outcome") in manifests.TOOK_PLACE}


def history_path(archive: TranscriptArchive, session_id: str) -> str:
    """Return where the pieces of a session's main transcript are, as a pattern for a shell."""
    return os.path.join(archive.location, f"{session_id}_*")


def _written_late(piece: Piece, manifest: manifests.Manifest) -> bool:
    """Tell whether a piece may hold its compaction's boundary, because it was written after the compaction.

    A row `nothing_new` shows that PreCompact ran when the piece was there already: then it holds no such boundary.
    """
    late = piece.row is not None and piece.row.get("trigger") in ("boundary", "session_end", "catch_up")
    return late and all(row.get("piece") != piece.plain for row in manifest.of_kind("nothing_new"))


def _after(transcript: str | None, offset: int | None) -> list[dict[str, Any]]:
    """Return the complete rows of a transcript from an offset on; none if it cannot be read."""
    if transcript is None or offset is None:
        return []
    try:
        found = rows(file_chunks(transcript, start=offset))
        return [each for row in found if row.ended for each in few_objects(row.data)]
    except OSError:
        return []


def _cut(found: list[dict[str, Any]], *, first: bool = False) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows before the last boundary (or the first one), and the summary after it.

    A compaction by reference leaves rows of the conversation instead of a summary: their text takes its place.
    """
    places = [number for number, row in enumerate(found) if is_main_boundary(row)]
    if not places:
        return found, None
    place = places[0 if first else -1]
    after = found[place:]
    summaries = (content_text(content_of(row)) for row in after if is_summary(row))
    return found[:place], next(summaries, None) or "\n".join(filter(None, map(kept_text, after))) or None
