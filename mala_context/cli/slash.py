"""The plugin's slash commands `/mala-context:status`, `:undo` and `:lost`: text from the standard library alone.

The plugin runs with whatever `python3` is on the `PATH`, where click and rich may be missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mala_context._util.text import plural, printable, size_text
from mala_context.archive.layout import known_archives, stamp_microseconds
from mala_context.archive.losses import read_loss
from mala_context.archive.manifests import TOOK_PLACE
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import MalaContextError
from mala_context.transcripts.loss import KINDS, lost_words
from mala_context.transcripts.projects import find_transcript
from mala_context.transcripts.session_ids import check_session_id


def answer(arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the lines of one slash command; `arguments` are its name and the session's id. Raises nothing."""
    try:
        name, session_id = arguments
        lines = list(COMMANDS[name](check_session_id(session_id), env))
    except (KeyError, ValueError) as error:
        lines = [f"mala-context: status, undo or lost, and a session id: {error}"]
    except (MalaContextError, OSError) as error:
        lines = [f"mala-context: {error}"]
    return "".join(f"{printable(line)}\n" for line in lines)


def _archive(session_id: str, env: Mapping[str, str]) -> TranscriptArchive:
    """Return the archive that holds the session; where none does, that of the working directory."""
    own = TranscriptArchive(repo_path=env.get("CLAUDE_PROJECT_DIR") or os.getcwd())
    others = (TranscriptArchive(directory) for _, directory in known_archives(env))
    return next((each for each in (own, *others) if each.pieces(session_id)), own)


def _status(session_id: str, env: Mapping[str, str]) -> Iterator[str]:
    from mala_context.agent.claude_code.statusline import line, measure

    transcript = find_transcript(session_id, cwd=os.getcwd())
    gauge = measure({"session_id": session_id, "transcript_path": transcript}, env)
    compacts = "" if gauge.threshold is None else f"; Claude Code compacts at {gauge.threshold:,} tokens"
    yield f"Context: {line(gauge, color=False)}{compacts}"
    archive = _archive(session_id, env)
    pieces = archive.pieces(session_id)
    if not pieces:
        yield "Archive: nothing yet; the next compaction is archived before it begins"
        return
    yield f"Compactions: {sum(1 for _ in compactions_of(archive, session_id)):,}"
    size = size_text(sum(piece.stored for piece in pieces))
    last = _utc(max(stamp_microseconds(piece.stamp) for piece in pieces))
    yield f"Archive: {plural(len(pieces), 'piece')}, {size}, the last at {last}, in {archive.location}"


def _utc(microseconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _undo(session_id: str, env: Mapping[str, str]) -> Iterator[str]:
    archive = _archive(session_id, env)
    if archive.restore(session_id, dry_run=True).compaction is None:
        yield "This session was not compacted: there is nothing to undo."
        return
    result = archive.restore(session_id)
    if result.compaction is not None:
        yield f"A new session holds this one as it was before compaction {result.compaction.number}. This one stays."
    yield f"Open it here with /resume {result.session_id}, or in a shell with"
    yield result.command
    for path in result.missing:
        yield f"missing: {path}"


def _lost(session_id: str, env: Mapping[str, str]) -> Iterator[str]:
    archive = _archive(session_id, env)
    rows = list(compactions_of(archive, session_id))
    if not rows:
        yield "No compaction of this session is archived."
    for number, row in enumerate(rows, 1):
        yield from lost_lines(number, measured(archive, session_id, row))


COMMANDS: Final[dict[str, Callable[[str, Mapping[str, str]], Iterator[str]]]] = {
    "status": _status,
    "undo": _undo,
    "lost": _lost,
}


# -- what compactions lost, for `archives lost` too --------------------------------------------------------------------


def compactions_of(archive: TranscriptArchive, session_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield the manifest's row of each compaction of a session; of an imported session, what its rows tell of each."""
    found = [row for row in archive.manifest(session_id).of_kind("outcome") if row.get("outcome") in TOOK_PLACE]
    yield from found or _compactions_in_rows(archive, session_id)


def _compactions_in_rows(archive: TranscriptArchive, session_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield the compactions in an archived transcript: an imported one has no outcomes in its manifest."""
    from mala_context.analysis.report import build_report

    if not os.path.isdir(archive.location):  # an object store; its rows are not here
        return
    for session in build_report([], archived=[(archive.location, session_id)], jobs=1).sessions:
        for each in session.compactions:
            sizes = {"tokens_before": each.cli_before or each.before, "tokens_after": each.after}
            yield {"time": each.time, "trigger": each.trigger, **sizes, "lost": each.lost}


def _is_main(row: Mapping[str, Any]) -> bool:
    return row.get("agent") in {None, "main"}


def measured(archive: TranscriptArchive, session_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a compaction as plain values, with what it lost; that is measured now if it was not before."""
    known = row.get("lost")
    if not isinstance(known, Mapping) and isinstance(row.get("piece"), str) and _is_main(row):
        summary = row.get("summary")
        loss = read_loss(archive, session_id, summary if isinstance(summary, str) else None, piece=row["piece"])
        known = None if loss is None else loss.as_dict()
    names = ("time", "agent", "trigger", "outcome", "tokens_before", "tokens_after")
    return {**{name: row.get(name) for name in names}, "lost": dict(known) if isinstance(known, Mapping) else None}


def lost_lines(number: int, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `measured` found as people read it."""
    sizes = (found["tokens_before"], found["tokens_after"])
    shown = " → ".join(f"{size:,}" if isinstance(size, int) else "unknown" for size in sizes)
    entries = found["lost"]
    kept = found["outcome"] == "by_reference"
    words = "what it lost is not known" if entries is None else lost_words(entries, "kept text" if kept else "summary")
    how = f"trigger={found['trigger'] or 'unknown'}{', by reference' * kept}"
    agent = "" if _is_main(found) else f", subagent {found['agent']}"
    yield f"{number}. {found['time'] or ''}: {shown} tokens ({how}{agent}); {words}"
    for kind, heading in KINDS.items():
        entry = (entries or {}).get(kind)
        missing = entry.get("missing") if isinstance(entry, Mapping) else None
        if isinstance(missing, list) and missing:
            yield f"   {heading}:"
            yield from (f"   - {item}" for item in missing)
