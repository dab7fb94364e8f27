"""From paths to a report: choose the newest recordings, read them, and join their parts to sessions.

A transcript's subagents lie in a folder beside it and belong to it. Of more sessions than are wanted only the newest
are opened, by the times of their files. What an archive's manifest knows of a compaction (how it ended, what it lost)
is added to the compactions in the rows, in their order. The last compaction has no rows after it in an archive, so it
is drawn at the end of the line.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mala_context.analysis.replay.engine import Progress, read_all
from mala_context.analysis.replay.files import STDIN, Recording, find
from mala_context.analysis.replay.record import SessionRecord, Stretch
from mala_context.analysis.replay.sessions import join, key_of
from mala_context.analysis.report.model import (
    MOST_POINTS,
    CompactionEntry,
    ContextReport,
    Points,
    SessionReport,
    Subagent,
)
from mala_context.analysis.report.observe import ReportOptions, ReportReader, SessionPart
from mala_context.archive.layout import parse_piece_name
from mala_context.archive.losses import read_loss
from mala_context.archive.manifests import TOOK_PLACE
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import MalaContextError
from mala_context.tracking.auto_compact import AUTO_COMPACT_BUFFER, auto_compact_threshold

NEWEST: Final = 50
"""Sessions of one report, where nothing else is said."""
MOST_SUBAGENTS: Final = 40
"""Subagents of one session that have a line: those with the largest contexts."""

SessionView = tuple[Stretch, SessionPart]


def build_report(
    paths: Iterable[str],
    options: ReportOptions | None = None,
    *,
    archived: Iterable[tuple[str, str]] = (),
    newest: int = NEWEST,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> ContextReport:
    """Return a report of the sessions in the paths (see `replay.files.find`), the newest first.

    `archived` names more sessions, each by its archive's directory and its id. Raises `RecordingNotFoundError` for a
    path that is not there; what cannot be read inside of a recording is in its session's `problems`.
    """
    options = ReportOptions() if options is None else options
    families = _families([*find(paths, progress), *_archived(archived)])
    chosen = families[:newest]
    recordings = [recording for family in chosen for recording in family]
    found: list[SessionView] = read_all(recordings, partial(_observe, options), jobs=jobs, progress=progress)
    sessions = _sessions(found, options, _archives(recordings))
    sessions.sort(key=lambda each: each.started_at or "", reverse=True)
    notes = []
    if len(families) > newest:
        notes.append(f"the newest {newest:,} of {len(families):,} sessions; --newest {len(families)} shows all")
    if len(sessions) > newest:
        notes.append(f"{len(sessions) - newest:,} more sessions in the same files are left out")
    return ContextReport(sessions[:newest], notes)


def _observe(options: ReportOptions, recording: Recording) -> list[SessionView]:
    return ReportReader(recording, options).observe()


def observe_transcript(path: str, options: ReportOptions | None = None) -> SessionPart | None:
    """Return what a transcript shows of its last session; `None` where it has none. Never raises for what is in it."""
    found = ReportReader(Recording(path, (path,), os.path.getsize(path)), options or ReportOptions()).observe()
    return found[-1][1] if found else None


# -- which recordings -------------------------------------------------------------------------------------------


def _archived(sessions: Iterable[tuple[str, str]]) -> Iterator[Recording]:
    for directory, session_id in sessions:
        for recording in find([directory]):
            piece = parse_piece_name(os.path.basename(recording.path))
            if piece is not None and piece.session_id == session_id:
                yield recording


def _families(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Return each main transcript with its subagents', the newest first."""
    groups: dict[str, dict[str, Recording]] = {}
    for recording in recordings:
        groups.setdefault(_family(recording), {})[recording.path] = recording
    return [list(group.values()) for group in sorted(groups.values(), key=_age, reverse=True)]


def _age(group: Mapping[str, Recording]) -> tuple[float, str]:
    times = [os.stat(part).st_mtime for each in group.values() for part in each.parts if part != STDIN]
    return max(times, default=0.0), min(group)


def _family(recording: Recording) -> str:
    if recording.path == STDIN:
        return STDIN
    folder, name = os.path.split(os.path.abspath(recording.path))
    piece = parse_piece_name(name)
    if piece is not None:
        return os.path.join(folder, piece.session_id)
    head, mark, _ = f"{folder}{os.sep}".rpartition(f"{os.sep}subagents{os.sep}")
    return head if mark else os.path.join(folder, recording.stem)


# -- joining ----------------------------------------------------------------------------------------------------


def _sessions(
    found: Sequence[SessionView], options: ReportOptions, archives: Mapping[str, TranscriptArchive]
) -> list[SessionReport]:
    records = join(stretch for stretch, _ in found)
    groups: dict[str, list[SessionView]] = {}
    for stretch, part in found:
        groups.setdefault(key_of(stretch), []).append((stretch, part))
    reports = []
    for record in records:
        group = groups[key_of(record)]
        if record.main.responses or record.subagents or record.compactions or any(len(p.points) for _, p in group):
            reports.append(_session(record, group, options, archives.get(record.session_id or "")))
    return reports


def _session(
    record: SessionRecord, group: Sequence[SessionView], options: ReportOptions, archive: TranscriptArchive | None
) -> SessionReport:
    part = next((part for stretch, part in group if stretch.path == record.path and len(part.points)), None)
    part = part or max((part for _, part in group), key=lambda each: len(each.points))
    main = record.main
    window = options.window or main.window or 0
    threshold = auto_compact_threshold(window, options.auto_compact_window)
    notes = []
    acts = threshold is not None
    if threshold is None and window > AUTO_COMPACT_BUFFER:
        threshold = window - AUTO_COMPACT_BUFFER
    if main.window_source == "guess" and options.window is None:
        notes.append("The window is a guess: nothing here says what it was. --window sets it.")
    if part.big_omitted:
        notes.append(f"{part.big_omitted:,} more big tool results are not marked.")
    if archive is not None:
        _outcomes(part, archive, record.session_id or "")
    subagents, more = _subagents(record, group, part.points)
    if more:
        notes.append(f"{more:,} more subagents, with smaller contexts, have no line.")
    if len(part.points) > MOST_POINTS:
        notes.append(f"{len(part.points):,} points are drawn as {MOST_POINTS:,}: peaks and drops are all there.")
    return SessionReport(
        record.session_id,
        record.path,
        os.path.basename((part.cwd or "").rstrip("/")) or None,
        part.first_prompt,
        main.model,
        window,
        "config" if options.window else main.window_source or "guess",
        main.window_doubtful and not options.window,
        threshold,
        acts,
        options.warn_at,
        record.started_at,
        record.ended_at,
        main.responses,
        main.tokens,
        main.peak_tokens,
        part.points.downsampled(),
        part.compactions,
        part.marks,
        subagents,
        part.contributors,
        part.files,
        record.problems,
        part.parts,
        notes,
        part.cache,
    )


def _subagents(record: SessionRecord, group: Sequence[SessionView], main: Points) -> tuple[list[Subagent], int]:
    """Return the subagents, each with its longest line, and how many have none."""
    lines: dict[str, Points] = {}
    for _, part in group:
        for key, points in part.subagents.items():
            if len(points) > len(lines.get(key, ())):
                lines[key] = points
    found = []
    for agent in record.subagents:
        points = lines.get(agent.agent_id or "", Points())
        _place(points, main)
        found.append(
            Subagent(agent.agent_id or "?", agent.responses, agent.peak_tokens, agent.compactions, points.downsampled())
        )
    by_size = sorted(found, key=lambda each: -(each.peak_tokens or 0))
    for agent_ in by_size[MOST_SUBAGENTS:]:
        agent_.points = Points()
    return found, max(0, len(found) - MOST_SUBAGENTS)


def _place(points: Points, main: Points) -> None:
    """Put a subagent's points between the main agent's responses by their times."""
    places = [(time, x) for time, x in zip(main.time, main.x, strict=True) if time is not None]
    times = [time for time, _ in places]
    if not times or any(time is None for time in points.time):
        points.x = [float(number) for number in range(1, len(points) + 1)]
        return
    counts: dict[int, int] = {}
    befores = [bisect_right(times, time) for time in points.time if time is not None]
    for before in befores:
        counts[before] = counts.get(before, 0) + 1
    seen: dict[int, int] = {}
    for place, before in enumerate(befores):
        seen[before] = seen.get(before, 0) + 1
        start = places[before - 1][1] if before else 0.0
        end = places[before][1] if before < len(places) else start + 1.0
        points.x[place] = round(start + (end - start) * seen[before] / (counts[before] + 1), 4)


# -- archives ---------------------------------------------------------------------------------------------------


def _archives(recordings: Iterable[Recording]) -> dict[str, TranscriptArchive]:
    """Return the archive of each session whose recording is in one."""
    found: dict[str, TranscriptArchive] = {}
    for recording in recordings:
        piece = parse_piece_name(os.path.basename(recording.path))
        if piece is not None:
            found.setdefault(piece.session_id, TranscriptArchive(os.path.abspath(os.path.dirname(recording.path))))
    return found


def _outcomes(part: SessionPart, archive: TranscriptArchive, session_id: str) -> None:
    """Add what the manifest knows of the compactions."""
    outcomes = archive.manifest(session_id).of_kind("outcome")
    rows = [row for row in outcomes if row.get("outcome") in TOOK_PLACE and row.get("agent") in {None, "main"}]
    entries = part.compactions
    for place, row in enumerate(rows):
        if place < len(entries):
            entry = entries[place]
        else:
            x = (part.points.x[-1] if len(part.points) else 0.5) + 0.5
            before, after = _number(row.get("tokens_before")), _number(row.get("tokens_after"))
            time = row.get("time") if isinstance(row.get("time"), str) else None
            entry = CompactionEntry(x, time, None, _words(row.get("trigger")), before, after)
            entries.append(entry)
            for tokens in (before, after):
                if tokens is not None:
                    part.points.add(x, time, tokens, part.points.row[-1] if part.points.row else 1, exact=False)
        entry.by_reference = entry.by_reference or row.get("outcome") == "by_reference"
        entry.lost = _lost(archive, session_id, row) or entry.lost


def _lost(archive: TranscriptArchive, session_id: str, row: Mapping[str, Any]) -> dict[str, Any] | None:
    known, piece, summary = row.get("lost"), row.get("piece"), row.get("summary")
    if isinstance(known, Mapping):
        return dict(known)
    if not isinstance(piece, str):
        return None
    try:
        loss = read_loss(archive, session_id, _words(summary), piece=piece)
    except (MalaContextError, OSError):
        return None
    return None if loss is None else loss.as_dict()


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _words(value: object) -> str | None:
    return value if isinstance(value, str) else None
