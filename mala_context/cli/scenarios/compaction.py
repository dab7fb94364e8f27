"""The scenario `compaction`: an agent works until its context is full, and the CLI compacts by itself.

The agent reads, runs commands and writes in a project of its own. The API refuses the request that no longer fits, as
the real one does, and the CLI answers with a compaction; nothing in here asks for one. Then every figure that was shown
is laid beside what the server received, and the archive beside the transcript.

The keys of the result (sizes in tokens):

* `model`, `window`, `window_source`, `session_id`, `cli_version`;
* `responses`: for each, `turn`, `response` (within the turn), `message_id`, `tracked_tokens`, `received_tokens`,
  `difference`, `exact`, and with `--estimators` `estimates` by formula;
* `compactions`: for each, `turn`, `trigger`, `refused_tokens` (`null` where nothing was refused), `before`,
  `cli_pre_tokens`, `estimate`, `accuracy`, `next_request_tokens`, `error_percent`, `duration_ms`;
* `archive`: `directory`, `directory_mode`, `pieces` (each `path`, `mode`, `bytes`, `rows`, `trigger`),
  `rows_before_compaction`, `rows_held`, `rows_held_before_it_began`, `whole_transcript`;
* with `--estimators`, `estimators`: by formula `median_error_percent` and `worst_error_percent`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.text import size_text
from mala_context.cli.scenarios.archived import ArchiveFindings, examine
from mala_context.cli.scenarios.recording import CompactionRow, Recorder, ResponseRow
from mala_context.cli.scenarios.report import Check, Lines, Report, Stage, Table, ended_well, percent_off
from mala_context.testing.scripts import fill_until_compaction

if TYPE_CHECKING:
    from mala_context.tracking.tracker import ContextSnapshot

ESTIMATE_WITHIN: Final = 5.0
"""How far the estimate after a compaction may be from the next request, in percent."""


async def play(stage: Stage) -> Report:
    """Play the session and check it. Raises what the SDK raises where the CLI cannot be run."""
    scenario = fill_until_compaction(stage.place("project"), turns=stage.turns)
    with scenario.api(strict=False) as api:
        runtime = stage.runtime(api, options={"env": scenario.env})
        recorder = Recorder(runtime, api, estimators=stage.estimators)
        recorder.attach()
        await recorder.play(stage, runtime, scenario.prompts)
        recorder.errors.extend(api.problems)
        archived = _examine(recorder)
        return _report(recorder, recorder.rows(), recorder.settle(), archived, runtime.tracker.snapshot())


def _examine(recorder: Recorder) -> ArchiveFindings | None:
    archive, session_id = recorder.runtime.archive, recorder.session_id
    if archive is None or session_id is None:
        return None
    path = archive.find_transcript(session_id)
    if path is None:
        return None
    with open(path, "rb") as file:
        return examine(archive, session_id, file.read())


def _report(
    recorder: Recorder,
    rows: Sequence[ResponseRow],
    compactions: Sequence[CompactionRow],
    archived: ArchiveFindings | None,
    last: ContextSnapshot,
) -> Report:
    errors = formula_errors(rows)
    data: dict[str, Any] = {
        "model": last.model,
        "window": last.window,
        "window_source": last.window_source,
        "session_id": recorder.session_id,
        "cli_version": recorder.cli_version,
        "responses": [row.as_dict() for row in rows],
        "compactions": [_compaction_dict(row) for row in compactions],
        "archive": None if archived is None else asdict(archived),
    }
    parts: list[Table | Lines] = [_response_table(rows, compactions)]
    if errors:
        data["estimators"] = errors
        parts.append(_estimator_table(rows, errors))
    if archived is not None and archived.pieces:
        parts.append(_archive_lines(archived))
    checks = [
        ended_well(recorder.errors),
        _exact_check(rows),
        _compaction_check(compactions),
        _estimate_check(compactions),
        *_archive_checks(archived),
    ]
    return Report(data, parts, checks)


def _compaction_dict(row: CompactionRow) -> dict[str, Any]:
    found = {**asdict(row), "error_percent": _rounded(percent_off(row.estimate, row.next_request_tokens))}
    del found["next_message_id"]
    return found


# -- for people ------------------------------------------------------------------------------------------------------


def _response_table(rows: Sequence[ResponseRow], compactions: Sequence[CompactionRow]) -> Table:
    lines: list[list[Any]] = []
    before = {row.next_message_id: row for row in compactions}
    for row in rows:
        if row.message_id in before:
            lines.append([_compaction_words(before[row.message_id])])
        lines.append([row.turn, row.response, row.tracked_tokens, row.received_tokens, row.difference])
    heading = "Context tokens: tracked, beside what the server received"
    return Table(heading, ("turn", "response", "tracked", "received", "difference"), lines)


def _compaction_words(row: CompactionRow) -> str:
    refused = "" if row.refused_tokens is None else f"{row.refused_tokens:,} refused, "
    off = percent_off(row.estimate, row.next_request_tokens)
    words = "unknown" if row.estimate is None or off is None else f"{row.estimate:,} ({off:+.1f} %)"
    return f"{refused}compacted ({row.trigger}); estimated right after it: {words}"


def _estimator_table(rows: Sequence[ResponseRow], errors: Mapping[str, Mapping[str, float | None]]) -> Table:
    names = list(errors)
    lines: list[list[Any]] = [
        [f"{row.turn}.{row.response}", row.received_tokens, *(row.estimates.get(name) for name in names)]
        for row in rows
    ]
    for key, heading in (("median_error_percent", "median"), ("worst_error_percent", "worst")):
        lines.append([heading, None, *(_percent(errors[name][key]) for name in names)])
    return Table(
        "The five formulas, and how far each is off what the server received", ("<", "received", *names), lines
    )


def _archive_lines(archived: ArchiveFindings) -> Lines:
    lines = [f"{archived.directory}/  mode {archived.directory_mode}"]
    for piece in archived.pieces:
        size = f"{size_text(piece.bytes)}, {piece.rows:,} rows"
        lines += [f"  {os.path.basename(piece.path)}", f"    mode {piece.mode}, {size}, trigger={piece.trigger}"]
    return Lines("Archive", lines)


# -- checks ----------------------------------------------------------------------------------------------------------


def _exact_check(rows: Sequence[ResponseRow]) -> Check:
    exact = sum(row.exact for row in rows)
    words = f"{exact} of {len(rows)} responses: tracked tokens equal what the server received"
    return Check("responses_exact", exact == len(rows) > 0, words)


def _compaction_check(compactions: Sequence[CompactionRow]) -> Check:
    automatic = [row for row in compactions if row.trigger == "auto"]
    if not automatic:
        return Check("compacted_by_itself", ok=False, words="the CLI did not compact by itself")
    turns = " and ".join(str(row.turn) for row in automatic)
    return Check("compacted_by_itself", ok=True, words=f"the CLI compacted by itself in turn {turns}")


def _estimate_check(compactions: Sequence[CompactionRow]) -> Check:
    off = [percent_off(row.estimate, row.next_request_tokens) for row in compactions]
    known = [value for value in off if value is not None]
    if not known or len(known) < len(off):
        return Check(
            "estimate_after_compaction", ok=False, words="no estimate after the compaction, or no request after it"
        )
    worst = max(known, key=abs)
    row = compactions[off.index(worst)]
    words = (
        f"estimate right after the compaction: {row.estimate:,}, the next request held {row.next_request_tokens:,} "
        f"({worst:+.1f} %, {ESTIMATE_WITHIN:g} % allowed)"
    )
    return Check("estimate_after_compaction", abs(worst) <= ESTIMATE_WITHIN, words)


def _archive_checks(archived: ArchiveFindings | None) -> list[Check]:
    if archived is None or not archived.pieces:
        return [Check("archive_written", ok=False, words="there is no archive, or no transcript to compare it with")]
    modes = ", ".join(sorted({piece.mode for piece in archived.pieces}))
    return [
        Check("archive_private", archived.private, f"archive: files {modes} in a directory {archived.directory_mode}"),
        Check(
            "archive_holds_all_rows",
            archived.complete,
            f"{archived.words} ({archived.rows_held_before_it_began} of them before it began)",
        ),
        Check(
            "archive_whole",
            archived.whole_transcript,
            "archive: its files in order are " + ("" if archived.whole_transcript else "NOT ") + "the whole transcript",
        ),
    ]


# -- figures ---------------------------------------------------------------------------------------------------------


def formula_errors(rows: Sequence[ResponseRow]) -> dict[str, dict[str, float | None]]:
    """Return each formula's absolute error over all responses in percent, median and worst; empty without estimates."""
    names = list(dict.fromkeys(name for row in rows for name in row.estimates))
    errors: dict[str, dict[str, float | None]] = {}
    for name in names:
        off = [percent_off(row.estimates.get(name), row.received_tokens) for row in rows]
        known = [abs(value) for value in off if value is not None]
        errors[name] = {
            "median_error_percent": _rounded(median(known)) if known else None,
            "worst_error_percent": _rounded(max(known)) if known else None,
        }
    return errors


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} %"
