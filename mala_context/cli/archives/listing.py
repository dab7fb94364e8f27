"""What `archives list` says of a session: its pieces, and how each compaction ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mala_context._util.text import plural, printable, size_text, utc_text
from mala_context.archive import manifests
from mala_context.archive.layout import stamp_microseconds
from mala_context.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mala_context.archive.layout import Piece, SessionSummary
    from mala_context.archive.store import TranscriptArchive

HEAD = ("", "time (UTC)", "trigger", "agent", "size", "tokens", "outcome")
WIDTHS = (2, 16, 11, 8, 9, 16, 0)
"""Columns; with the longest outcome they fit into 80."""

_AGENTS = {"import": "main"}
"""Trigger → the agent of a piece whose manifest row names none."""


def describe(archive: TranscriptArchive, summary: SessionSummary) -> dict[str, Any]:
    """Return a session and its pieces as plain values; for many sessions give an archive that is `listed`."""
    error = None
    try:
        with archive.view(summary.session_id) as files:
            manifest = manifests.parse(files.manifest())
            pieces = manifests.pieces_of(files.list(), manifest)
    except (ArchiveError, OSError) as found:  # the others are listed all the same, and JSON stays JSON
        manifest, pieces, error = manifests.parse(b""), [], str(found)
    outcomes = {row.get("piece"): row for row in manifest.of_kind("outcome")}
    return {
        "session_id": summary.session_id,
        "stored": summary.stored,
        "newest": utc_text(summary.newest_ns / 1e9),
        "side_files": len({row.get("path") for row in manifest.of_kind("file")}),
        "pieces": [_piece(piece, outcomes.get(piece.plain, {})) for piece in pieces],
        "error": error,
    }


def _piece(piece: Piece, outcome: Mapping[str, Any]) -> dict[str, Any]:
    row = piece.row or {}
    before = outcome.get("tokens_before")
    return {
        "name": piece.name,
        "time": utc_text(stamp_microseconds(piece.stamp) / 1e6),
        "trigger": row.get("trigger"),
        "agent": piece.subagent or outcome.get("agent") or row.get("agent") or _AGENTS.get(str(row.get("trigger"))),
        "own_transcript": piece.subagent is not None,
        "chain": piece.chain,
        "mode": piece.mode,
        "offset": piece.offset,
        "length": piece.length,
        "stored": piece.stored,
        "packed": piece.packed,
        "remote": piece.remote,
        "tokens_before": row.get("tokens") if before is None else before,
        "tokens_after": outcome.get("tokens_after"),
        "outcome": outcome.get("outcome"),
        "error": outcome.get("error"),
    }


def lines(session: Mapping[str, Any]) -> Iterator[str]:
    """Yield a session as people read it: a headline, and a line for each piece."""
    count = len(session["pieces"])
    side = f", {plural(session['side_files'], 'side file')}" if session["side_files"] else ""
    yield f"{session['session_id']}  {plural(count, 'piece')}{side}, {size_text(session['stored'])}"
    if session["error"]:
        yield f"   cannot be read: {printable(session['error'])}"
    for piece in session["pieces"]:
        chain = "" if piece["chain"] == 1 else f"c{piece['chain']}"
        yield row(
            (
                chain,
                piece["time"][:16].replace("T", " "),
                piece["trigger"] or "?",
                (piece["agent"] or "?") + ("*" if piece["own_transcript"] else ""),
                size_text(piece["stored"]) + ("z" if piece["packed"] else "") + ("r" if piece["remote"] else ""),
                _tokens(piece["tokens_before"], piece["tokens_after"]),
                piece["outcome"] or "",
            )
        )


def row(cells: tuple[object, ...]) -> str:
    """Return cells in columns; what is too wide is cut, except in the last one."""
    parts = []
    for cell, width in zip(cells, WIDTHS, strict=True):
        text = printable(cell)
        parts.append(text if not width else (text if len(text) <= width else text[: width - 1] + "…").ljust(width))
    return " ".join(parts).rstrip()


def _tokens(before: object, after: object) -> str:
    if not isinstance(before, int) and not isinstance(after, int):
        return ""
    sizes = [f"{size:,}" if isinstance(size, int) else "?" for size in (before, after)]
    return " → ".join(sizes)
