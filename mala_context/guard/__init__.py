"""Whether the next request fits, and what a turn is allowed once it does not: pure arithmetic and decisions.

`ContextGuard` counts what a request will hold and compares it with what each target can take. `FinalTurnState` says
what a forced final turn still needs, and `FinalGate` which tools it may use. Nothing here waits, logs or knows the SDK;
what is worth saying goes to the callbacks as data.
"""

from __future__ import annotations

from mala_context.guard.context_guard import BlockedEntry, ContextGuard, Evaluation, estimate_schema
from mala_context.guard.events import DEBUG_TOPICS, GuardEvent, Outcome, Trigger
from mala_context.guard.final_turn import FinalGate, FinalTurnState, Requirement, Verdict, matches_tool
from mala_context.guard.targets import DEFAULT_BUFFER, DEFAULT_WINDOW, TargetContextConfig
from mala_context.guard.tool_output import AUTO_CAP_TOKENS, cap_text, cap_tokens, estimate_tokens

__all__ = [
    "AUTO_CAP_TOKENS",
    "DEBUG_TOPICS",
    "DEFAULT_BUFFER",
    "DEFAULT_WINDOW",
    "BlockedEntry",
    "ContextGuard",
    "Evaluation",
    "FinalGate",
    "FinalTurnState",
    "GuardEvent",
    "Outcome",
    "Requirement",
    "TargetContextConfig",
    "Trigger",
    "Verdict",
    "cap_text",
    "cap_tokens",
    "estimate_schema",
    "estimate_tokens",
    "matches_tool",
]
