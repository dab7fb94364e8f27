"""The table of checks, and running it."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from mala_context.analysis.doctor.checks import archives, context, machine, settings
from mala_context.analysis.doctor.facts import Facts
from mala_context.analysis.doctor.findings import F, Finding, HealthCheck

CHECKS: Final = (
    HealthCheck("sdk", "Agent SDK", attrgetter("sdk"), machine.sdk, machine.sdk_ok),
    HealthCheck("cli", "Claude Code", attrgetter("programs"), machine.cli, machine.cli_ok),
    HealthCheck("hooks", "hooks can fire", machine.played, machine.hooks, machine.hooks_ok),
    HealthCheck("config", "mala.yaml", attrgetter("configs"), machine.config, machine.config_ok),
    HealthCheck("claude", "Claude's files", attrgetter("claude"), machine.claude, machine.claude_ok),
    HealthCheck("settings", "settings files", attrgetter("settings"), settings.settings, settings.settings_ok),
    HealthCheck("installed", "in Claude Code", attrgetter("settings"), lambda _: (), settings.installed_ok),
    HealthCheck(
        "hooks-off", "hooks allowed", settings.in_force, settings.hooks_off, lambda _: "no settings switch them off"
    ),
    HealthCheck("compaction", "auto-compaction", settings.in_force, settings.compaction, lambda _: "on"),
    HealthCheck("cleanup", "clean-up", settings.in_force, settings.cleanup, settings.cleanup_ok),
    HealthCheck("models", "windows known", settings.in_use, settings.models, settings.models_ok),
    HealthCheck("context", "context's start", attrgetter("maps"), context.context, context.context_ok),
    HealthCheck("runs", "runs directory", attrgetter("runs"), archives.runs, archives.runs_ok),
    HealthCheck("permissions", "its permissions", attrgetter("runs"), archives.permissions, archives.permissions_ok),
    HealthCheck("readable", "kept private", attrgetter("readable"), archives.readable, archives.readable_ok),
    HealthCheck("space", "free space", attrgetter("space"), archives.space, archives.space_ok),
    HealthCheck("object-store", "object store", attrgetter("stores"), archives.object_store, archives.object_store_ok),
    HealthCheck("unarchived", "all archived", attrgetter("transcripts"), archives.unarchived, archives.unarchived_ok),
    HealthCheck("verify", "archives sound", attrgetter("verified"), archives.verify, archives.verify_ok),
)
"""Every check, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    check: HealthCheck[Any]
    findings: tuple[Finding, ...]
    """Empty where all is well, and where the check was skipped."""
    skipped: bool
    """Whether the fact that it needs was not gathered."""
    words: str
    """What was looked at, where all is well; else empty."""

    @property
    def state(self) -> str:
        """`ok`, `failed` or `skipped`."""
        return "skipped" if self.skipped else "failed" if self.findings else "ok"


def examine(facts: Facts, checks: tuple[HealthCheck[Any], ...] = CHECKS) -> list[CheckResult]:
    """Run every check on the facts, in the order of the table."""
    return [_run(check, facts) for check in checks]


def _run(check: HealthCheck[F], facts: Facts) -> CheckResult:
    fact = check.fact(facts)
    if fact is None:
        return CheckResult(check, (), skipped=True, words="")
    findings = tuple(check.find(fact))
    return CheckResult(check, findings, skipped=False, words="" if findings else check.ok_message(fact))
