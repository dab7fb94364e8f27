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
    "overflow": (
        "mala_context.cli.scenarios.overflow",
        "many turns die of a full window, and with compact_at they do not",
    ),
    "restart": (
        "mala_context.cli.scenarios.restart",
        "one long turn goes on in a fresh session, from a checkpoint",
    ),
    "final": (
        "mala_context.cli.scenarios.final",
        "near the end of the window an agent saves its work and finishes",
    ),
    "big-tool": (
        "mala_context.cli.scenarios.big_tool",
        "one tool result is larger than the room that is left",
    ),
    "lost": (
        "mala_context.cli.scenarios.lost",
        "a summary leaves things out; they are named and put back",
    ),
    "reference": (
        "mala_context.cli.scenarios.reference",
        "a compaction without a summary: instructions stay, tool calls become pointers",
    ),
    "survive": (
        "mala_context.cli.scenarios.survive",
        "planted sentences through five compactions, three ways",
    ),
    "undo": (
        "mala_context.cli.scenarios.undo",
        "a compaction is undone, with the transcript there and with it deleted",
    ),
    "why": (
        "mala_context.cli.scenarios.why",
        "what fills the context, a silent change, a lapse of the cache, an idle compaction",
    ),
}
"""Scenario → its module, and what happens in it."""
