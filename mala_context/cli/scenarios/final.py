"""The scenario `final`: near the end of its window an agent saves its work and finishes, or is stopped.

The keys of the result: `window`, `cli_version`; `without`, `with_guard` and `stubborn` as in `overflow`; `final_turn`
and `stubborn_final_turn`: `reason`, `ratio`, `stopped`, `denials`, `missing`.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mala_context.cli.scenarios import guarded
from mala_context.cli.scenarios.report import Check, Report, Stage, Table
from mala_context.testing import Request, tool

if TYPE_CHECKING:
    from mala_context.agent.telemetry.records import FinalTurn

LOOKS = 12
FINAL_AT = 0.8
DENIED = "this is the final turn"


class _FinalWorker:
    """Looks until it is denied; then it writes down what it knows, if it is of a kind that listens."""

    def __init__(self, report: str, *, listens: bool) -> None:
        self.looking = guarded.Looking(LOOKS)
        self.report = report
        self.listens = listens
        self.saved = False

    def __call__(self, request: Request) -> Any:
        if not self.listens or not request.contains(DENIED):
            return self.looking.next(request)
        if not self.saved:
            self.saved = True
            return tool("Write", file_path=self.report, content="# Report\n\nThe log shows no failure so far.\n")
        return "The report is written."


async def play(stage: Stage) -> Report:
    """Play the three runs and check them. Raises what the SDK raises where the CLI cannot be run."""
    runs, reports = {}, {}
    for name, listens, keys in (
        ("without", True, {"tell_agent": False}),
        ("with", True, {"final_at": FINAL_AT}),
        ("stubborn", False, {"final_at": FINAL_AT}),
    ):
        reports[name] = os.path.join(stage.place(f"project-{name}"), "report.md")
        worker = _FinalWorker(reports[name], listens=listens)
        runs[name] = await guarded.run(stage, name, worker, ["Look at the log and report."], **keys)
    finals = {name: run.runtime.actions.final_turn for name, run in runs.items()}
    data = guarded.data(
        runs["without"],
        runs["with"],
        stubborn=runs["stubborn"].as_dict(),
        final_turn=finals["with"] and asdict(finals["with"]),
        stubborn_final_turn=finals["stubborn"] and asdict(finals["stubborn"]),
    )
    saved = {name: os.path.exists(path) for name, path in reports.items()}  # noqa: ASYNC240 - nothing else waits here
    table = Table(
        "The same agent, twice, and one that does not listen",
        guarded.COLUMNS,
        [runs["without"].row("without"), runs["with"].row("with final_at"), runs["stubborn"].row("does not listen")],
    )
    checks = [
        guarded.died_check(runs["without"]),
        Check("nothing_saved_without", not saved["without"], "without the guard: no report"),
        guarded.finished_check(runs["with"], 1, "The report is written."),
        guarded.accepted_check(runs["with"]),
        Check("saved", saved["with"], f"with the guard: the report is {'there' if saved['with'] else 'NOT there'}"),
        *_final_checks(finals["with"], finals["stubborn"], runs["stubborn"]),
    ]
    return Report(data, [table], checks)


def _final_checks(ended: FinalTurn | None, stopped: FinalTurn | None, stubborn: guarded.Run) -> list[Check]:
    fine = ended is not None and not ended.stopped and not ended.missing
    forced = stopped is not None and stopped.stopped and bool(stubborn.results) and not stubborn.died
    return [
        Check("final_turn_complete", fine, ended.line if ended is not None else "there was no final turn"),
        Check(
            "stubborn_stopped",
            forced,
            f"the agent that does not listen ended with {stubborn.ended}, after three denials",
        ),
        Check(
            "says_what_is_missing",
            stopped is not None and stopped.missing == ("saved work", "final answer"),
            stopped.line if stopped is not None else "there was no final turn",
        ),
    ]
