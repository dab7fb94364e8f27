"""Decide whether the next request fits, and which tools a turn may use when it does not: pure arithmetic.

`ContextGuard` counts the tokens of the next request and compares them with the limit of each target. `FinalTurnState`
says what a forced final turn must still deliver, and `FinalGate` which tools it may use. They do not wait, log or know
the SDK: their callbacks get events as data.
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
