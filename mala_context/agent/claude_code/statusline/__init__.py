"""How full the context is, from what Claude Code gives a status line: in a process that lives for milliseconds.

Claude Code counts the last response itself and hands the counts over (`context_window.current_usage`). Where they are
missing (an older CLI), the last response is looked for in the transcript, from its end, so that a long session costs
what a short one does. Straight after a compaction the counts are `null`, or all zero; then the size is an estimate,
by the same formula as the tracker's: what the session's first request held besides its prompt, and what the CLI says
that remained.

The tracker itself would take longer to import than the line may take, so the few rules that are needed stand here:
only rows of the main agent count, synthetic and all-zero ones do not, and a compaction after the last response makes
it void.

Colours go by what is usable: up to the size at which the CLI compacts by itself, where it is told to act on one, and
the whole window where it is not.
"""

from __future__ import annotations

from mala_context.agent.claude_code.statusline.fields import (
    FIELDS,
    HISTORY,
    TEMPLATE,
    Gauge,
    check_template,
    line,
    measure,
    short,
    wants_color,
)

__all__ = ["FIELDS", "HISTORY", "TEMPLATE", "Gauge", "check_template", "line", "measure", "short", "wants_color"]
