"""The table of checks, and walking it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from mala_context.doctor.checks import archives, machine, settings
from mala_context.doctor.facts import Facts
from mala_context.doctor.findings import Check, Finding


def _check(name: str, title: str, fact: str, module: Any) -> Check:
    """Return the check whose two functions in `module` are called after it."""
    needs: Callable[[Facts], object] = attrgetter(fact)
    function = name.replace("-", "_")
    return Check(name, title, needs, getattr(module, function), getattr(module, f"{function}_well"))


CHECKS: Final[tuple[Check, ...]] = (
    _check("sdk", "Agent SDK", "sdk", machine),
    _check("cli", "Claude Code", "programs", machine),
    _check("hooks", "hooks fire", "hooks", machine),
    _check("config", "mala.yaml", "configs", machine),
    _check("claude", "Claude's files", "claude", machine),
    _check("settings", "settings files", "settings", settings),
    _check("hooks-off", "hooks allowed", "settings", settings),
    _check("compaction", "auto-compaction", "settings", settings),
    _check("cleanup", "clean-up", "settings", settings),
    _check("models", "windows known", "models", settings),
    _check("runs", "runs directory", "runs", archives),
    _check("permissions", "its permissions", "runs", archives),
    _check("readable", "kept private", "readable", archives),
    _check("space", "free space", "space", archives),
    _check("object-store", "object store", "stores", archives),
    _check("unarchived", "all archived", "transcripts", archives),
    _check("verify", "archives sound", "verified", archives),
)
"""Every check: its name, its title, the field of `Facts` that it needs; in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What one check said."""

    check: Check
    findings: tuple[Finding, ...]
    """Empty where all is well, and where it was passed over."""
    skipped: bool
    """Whether nobody gathered what it looks at."""
    words: str
    """What was looked at, where all is well; else empty."""

    @property
    def state(self) -> str:
        """`ok`, `failed` or `skipped`."""
        return "skipped" if self.skipped else "failed" if self.findings else "ok"


def examine(facts: Facts, checks: tuple[Check, ...] = CHECKS) -> list[Checked]:
    """Put every check to the facts, in the order of the table."""
    return [_put(check, facts) for check in checks]


def _put(check: Check, facts: Facts) -> Checked:
    if check.needs(facts) is None:
        return Checked(check, (), skipped=True, words="")
    findings = tuple(check.find(facts))
    return Checked(check, findings, skipped=False, words="" if findings else check.well(facts))
