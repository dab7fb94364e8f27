"""What should be done about a context that fills: decisions as data, made by `Policy`, carried out by a shell."""

from __future__ import annotations

from mala_context.guard.policy.decisions import (
    Caution,
    Compact,
    Decision,
    Decisions,
    Finish,
    Restart,
    Snapshot,
    Tell,
    Thresholds,
    Warn,
    ratio_ahead,
    thresholds_from,
)
from mala_context.guard.policy.engine import Policy
from mala_context.guard.policy.overflow import ContextOverflow, overflow_of, read_overflow

__all__ = [
    "Caution",
    "Compact",
    "ContextOverflow",
    "Decision",
    "Decisions",
    "Finish",
    "Policy",
    "Restart",
    "Snapshot",
    "Tell",
    "Thresholds",
    "Warn",
    "overflow_of",
    "ratio_ahead",
    "read_overflow",
    "thresholds_from",
]
