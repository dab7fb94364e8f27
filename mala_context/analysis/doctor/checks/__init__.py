"""The table of checks, and walking it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mala_context.analysis.doctor.checks import archives, machine, settings
from mala_context.analysis.doctor.facts import Facts
from mala_context.analysis.doctor.findings import Check, F, Finding

CHECKS: Final = (
    Check("sdk", "Agent SDK", lambda facts: facts.sdk, machine.sdk, machine.sdk_well),
    Check("cli", "Claude Code", lambda facts: facts.programs, machine.cli, machine.cli_well),
    Check("hooks", "hooks fire", machine.played, machine.hooks, machine.hooks_well),
    Check("config", "mala.yaml", lambda facts: facts.configs, machine.config, machine.config_well),
    Check("claude", "Claude's files", lambda facts: facts.claude, machine.claude, machine.claude_well),
    Check("settings", "settings files", lambda facts: facts.settings, settings.settings, settings.settings_well),
    Check("hooks-off", "hooks allowed", settings.in_force, settings.hooks_off, settings.hooks_off_well),
    Check("compaction", "auto-compaction", settings.in_force, settings.compaction, settings.compaction_well),
    Check("cleanup", "clean-up", settings.in_force, settings.cleanup, settings.cleanup_well),
    Check("models", "windows known", settings.in_use, settings.models, settings.models_well),
    Check("runs", "runs directory", lambda facts: facts.runs, archives.runs, archives.runs_well),
    Check("permissions", "its permissions", lambda facts: facts.runs, archives.permissions, archives.permissions_well),
    Check("readable", "kept private", lambda facts: facts.readable, archives.readable, archives.readable_well),
    Check("space", "free space", lambda facts: facts.space, archives.space, archives.space_well),
    Check(
        "object-store", "object store", lambda facts: facts.stores, archives.object_store, archives.object_store_well
    ),
    Check("unarchived", "all archived", lambda facts: facts.transcripts, archives.unarchived, archives.unarchived_well),
    Check("verify", "archives sound", lambda facts: facts.verified, archives.verify, archives.verify_well),
)
"""Every check, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What one check said."""

    check: Check[Any]
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


def examine(facts: Facts, checks: tuple[Check[Any], ...] = CHECKS) -> list[Checked]:
    """Put every check to the facts, in the order of the table."""
    return [_put(check, facts) for check in checks]


def _put(check: Check[F], facts: Facts) -> Checked:
    fact = check.fact(facts)
    if fact is None:
        return Checked(check, (), skipped=True, words="")
    findings = tuple(check.find(fact))
    return Checked(check, findings, skipped=False, words="" if findings else check.well(fact))
