"""The scenario `overflow`: a session of many turns dies of its full window, and with `compact_at` it does not.

The keys of the result: `window`, `cli_version`; `without` and `with_guard`, each `requests`, `refused`,
`largest_request_tokens`, `results`, `terminal_reason`, `is_error`, `restarts`; `compactions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mala_context.cli.scenarios import guarded
from mala_context.cli.scenarios.report import Check, Report, Stage

if TYPE_CHECKING:
    from mala_context.testing.requests import Request

COMPACT_AT = 0.7


async def play(stage: Stage) -> Report:
    """Play both runs and check them. Raises what the SDK raises where the CLI cannot be run."""
    prompts = [f"Look at part {number} of the log." for number in range(1, stage.turns + 1)]
    without = await guarded.run(stage, "without", _script(stage.turns), prompts)
    kept = await guarded.run(
        stage,
        "with",
        _script(stage.turns),
        prompts,
        warn_at=0.6,
        compact_at=COMPACT_AT,
        compact_focus="what the log says",
    )
    compactions = kept.runtime.tracker.snapshot().compactions
    answers = len(prompts) + compactions
    checks = [
        guarded.finished_check(kept, answers, "Looked at a part."),
        Check("compacted", compactions > 0, f"with the guard: compactions that were asked for: {compactions}"),
    ]
    return guarded.report(without, kept, "with compact_at", checks, compactions=compactions)


def _script(turns: int) -> Any:
    looking = guarded.Looking(turns)

    def script(request: Request) -> Any:
        content = request.body["messages"][-1]["content"]
        looked = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
        return "Looked at a part." if looked else looking.next(request)

    return script
