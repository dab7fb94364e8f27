"""What `mala-context demo` can play: a table of scenarios, each in a module that is imported when it is asked for.

A scenario's module has `async def play(stage: Stage) -> Report`. It does the work and the checking; it prints nothing,
and it leaves everything it makes below `stage.directory`.
"""

from __future__ import annotations

from typing import Final

SCENARIOS: Final[dict[str, tuple[str, str]]] = {
    "compaction": (
        "mala_context.cli.scenarios.compaction",
        "the context fills until the CLI compacts by itself",
    ),
}
"""Scenario → its module, and what happens in it."""
