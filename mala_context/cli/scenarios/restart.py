"""The scenario `restart`: one long turn dies of its full window; with `restart_at` it goes on in a fresh session.

The keys of the result: `window`, `cli_version`; `without` and `with_guard` as in `overflow`; `restarts`: for each
`old_session_id`, `new_session_id`, `reason`, `checkpoint`, `archived_bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mala_context.agent.restart import CHECKPOINT_PROMPT
from mala_context.cli.scenarios import guarded
from mala_context.cli.scenarios.report import Check, Report, Stage

if TYPE_CHECKING:
    from mala_context.testing.requests import Request

LOOKS = 12
RESTART_AT = 0.85
CHECKPOINT = "The task: look at the whole log, part by part. Some parts are done; go on with the next."


class _RestartWorker:
    """Looks `LOOKS` times, over all sessions, and writes a checkpoint when it is asked for one."""

    def __init__(self) -> None:
        self.looking = guarded.Looking(LOOKS)
        self.looks = 0

    def __call__(self, request: Request) -> Any:
        if CHECKPOINT_PROMPT.splitlines()[0][:40] in request.prompt:
            return f"<checkpoint>{CHECKPOINT}</checkpoint>"
        if self.looks == LOOKS:
            return "Looked at the whole log."
        self.looks += 1
        return self.looking.next(request)


async def play(stage: Stage) -> Report:
    """Play both runs and check them. Raises what the SDK raises where the CLI cannot be run."""
    prompts = ["Look at the whole log, part by part."]
    without = await guarded.run(stage, "without", _RestartWorker(), prompts)
    worker = _RestartWorker()
    kept = await guarded.run(stage, "with", worker, prompts, restart_at=RESTART_AT)
    archive = kept.runtime.archive
    names = ("old_session_id", "new_session_id", "reason", "checkpoint")
    restarts: list[dict[str, Any]] = [{name: getattr(marker, name) for name in names} for marker in kept.markers]
    for each in restarts:
        pieces = archive.pieces(each["old_session_id"]) if archive else ()
        each["archived_bytes"] = sum(piece.length or 0 for piece in pieces)
    checks = [
        guarded.finished_check(kept, 1, "Looked at the whole log."),
        *_restart_checks(kept, restarts),
        Check("each_part_once", worker.looks == LOOKS, f"with the guard: {worker.looks} of {LOOKS} parts, each once"),
    ]
    return guarded.report(without, kept, "with restart_at", checks, restarts=restarts)


def _restart_checks(kept: guarded.Run, restarts: list[dict[str, Any]]) -> list[Check]:
    prompted = any(CHECKPOINT in request.prompt for request in kept.requests)
    archived = all(item["archived_bytes"] for item in restarts)
    one = len(kept.results) == 1
    return [
        Check("restarted", bool(restarts), f"with the guard: restarts, each a marker in the stream: {len(restarts)}"),
        Check("one_answer", one, f"with the guard: results in one unbroken stream: {len(kept.results)}"),
        Check(
            "checkpoint_carried",
            prompted and all(item["checkpoint"] for item in restarts),
            f"the fresh session {'began' if prompted else 'did NOT begin'} with the old one's checkpoint",
        ),
        Check("old_session_archived", archived, f"the old session is {'' if archived else 'NOT '}in the archive"),
    ]
