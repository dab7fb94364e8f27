"""The scenario `reference`: the same session twice, compacted by the CLI's summary and by reference.

The context fills until the API refuses it in the middle of a turn. The keys of the result: `cli_version`; for `cli` and
`reference` each `refused_tokens`, `model_requests` (for a summary), `seconds` (of the compaction, the archive
included), `next_request_tokens`, `estimate`, `instructions` (of those planted, how many stand word for word in the
first request after it), `pointers` and `pointers_equal` (how many give back the bytes that the model had read).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mala_context.cli.scenarios.recording import Heard
from mala_context.cli.scenarios.report import Check, Report, Stage, Table, ended_well, environment, percent_off
from mala_context.testing import Request, ScriptedMessagesAPI, fill_until_compaction, summary
from mala_context.testing.survival import CANARIES, SCRIPTED_SUMMARY, said_in

if TYPE_CHECKING:
    from mala_context.tracking.events import Event
    from mala_context.tracking.snapshot import ContextSnapshot

WINDOW: Final = 150_000
_LINE: Final = re.compile(r"^#\d+ \w+ .*\[(\d+)-(\d+)\]$", re.MULTILINE)
_KEYS: Final = (
    *("refused_tokens", "model_requests", "seconds", "next_request_tokens"),
    *("estimate", "instructions", "pointers", "pointers_equal"),
)
_FILE: Final = re.compile(r'<kept-conversation [^>]*file="([^"\n]+)"')


@dataclass
class _Run(Heard):
    """One session, and what came of it."""

    model_requests: int = 0
    seconds: float | None = None
    estimate: int | None = None
    refused: Request | None = None
    after: Request | None = None
    pointers: int = 0
    pointers_equal: int = 0

    def seen(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Take the first compaction's figures."""
        if snapshot is not None and self.seconds is None and type(event).__name__ == "Compaction":
            self.seconds = (getattr(event, "duration_ms", None) or 0) / 1_000
            self.estimate = snapshot.tokens

    @property
    def refused_tokens(self) -> int | None:
        """Size of the request that the API refused."""
        return None if self.refused is None else self.refused.received_tokens

    @property
    def next_request_tokens(self) -> int | None:
        """What the first request after the compaction held."""
        return None if self.after is None else self.after.tokens

    @property
    def instructions(self) -> int:
        """How many of the planted sentences the first request after the compaction holds word for word."""
        said = "" if self.after is None else said_in(self.after)
        return sum(canary.text in said for canary in CANARIES)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {name: getattr(self, name) for name in _KEYS}


async def play(stage: Stage) -> Report:
    """Play both sessions and check them. Raises what the SDK raises where the CLI cannot be run."""
    runs = {name: await _run(stage, name) for name in ("cli", "reference")}
    cli, ours = runs["cli"], runs["reference"]
    errors = [*cli.errors, *ours.errors]
    off = percent_off(ours.estimate, ours.next_request_tokens)
    planted = len(CANARIES)
    rows: list[list[Any]] = [
        ["refused at, tokens", *(run.refused_tokens for run in runs.values())],
        ["requests to a model for it", *(run.model_requests for run in runs.values())],
        ["milliseconds, archive included", *(round(1_000 * (run.seconds or 0)) for run in runs.values())],
        ["next request, tokens", *(run.next_request_tokens for run in runs.values())],
        [f"of {planted} instructions word for word", *(run.instructions for run in runs.values())],
        ["pointers that give back equal bytes", None, f"{ours.pointers_equal} of {ours.pointers}"],
    ]
    data = {"cli_version": ours.cli_version, **{name: run.as_dict() for name, run in runs.items()}}
    equal = 0 < ours.pointers == ours.pointers_equal
    checks = [
        ended_well(errors),
        Check("no_model", ours.model_requests == 0, f"requests for a summary: {ours.model_requests}"),
        Check("instructions", ours.instructions == planted, f"{ours.instructions} of {planted} stand word for word"),
        Check("estimate", off is not None and abs(off) <= 5, f"the estimate right after is off by {off or 0:+.1f} %"),
        Check("pointers", equal, f"{ours.pointers_equal} of {ours.pointers} pointers give back equal bytes"),
    ]
    heading = "Two compactions; the summary was scripted, so no model took its time"
    return Report(data, [Table(heading, ["<figure", "summary", "reference"], rows)], checks)


async def _run(stage: Stage, name: str) -> _Run:
    scenario = fill_until_compaction(stage.place(f"project-{name}"), window=WINDOW, turns=max(4, stage.turns))
    prompts = list(scenario.prompts)
    prompts[0] += "".join(f"\n{canary.text}" for canary in CANARIES)
    run = _Run()
    given = scenario.api(compactions=lambda _request: summary(SCRIPTED_SUMMARY), strict=False)
    with given as api, environment("MALA_RUNS_DIR", stage.place("runs")):
        runtime = stage.runtime(api, f"-{name}", compaction=name)
        runtime.processor.event_observers.append(run.seen)
        await run.play(stage, runtime, prompts)
        _figures(run, api)
        run.errors += api.problems
    return run


def _figures(run: _Run, api: ScriptedMessagesAPI) -> None:
    """Take what the server's log says: of the first refusal, and of the first request that was answered after it."""
    requests = [request for request in api.requests if request.kind in {"main", "compaction"}]
    place = next((place for place, each in enumerate(requests) if each.status == 400), len(requests))
    run.refused = requests[place] if place < len(requests) else None
    later = requests[place + 1 :]
    run.after = next((each for each in later if each.kind == "main" and each.status == 200), None)
    run.model_requests = sum(each.kind == "compaction" for each in requests)
    if run.after is None or run.refused is None:
        return
    said = said_in(run.after)
    read = {result.split("\n\n<system-reminder>")[0] for result in run.refused.tool_results}
    for path in _FILE.findall(said)[:1]:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
        for first, last in _LINE.findall(said):
            body = b"\n".join(lines[int(first) - 1 : int(last)]).decode()
            run.pointers += 1
            run.pointers_equal += re.split("\n---- (?:result|failed):\n", body, maxsplit=1)[-1] in read
