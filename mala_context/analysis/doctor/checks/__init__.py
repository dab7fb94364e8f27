"""The table of checks, and running it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from mala_context.analysis.doctor.checks import archives, machine, settings
from mala_context.analysis.doctor.facts import Facts
from mala_context.analysis.doctor.findings import Finding, HealthCheck

CHECKS: Final = (
    HealthCheck("sdk", "Agent SDK", attrgetter("sdk"), machine.sdk),
    HealthCheck("cli", "Claude Code", attrgetter("programs"), machine.cli),
    HealthCheck("hooks", "hooks can fire", machine.played, machine.hooks),
    HealthCheck("config", "mala.yaml", attrgetter("configs"), machine.config),
    HealthCheck("claude", "Claude's files", attrgetter("claude"), machine.claude),
    HealthCheck("settings", "settings files", attrgetter("settings"), settings.settings),
    HealthCheck("installed", "in Claude Code", attrgetter("settings"), settings.installed),
    HealthCheck("hooks-off", "hooks allowed", settings.in_force, settings.hooks_off),
    HealthCheck("compaction", "auto-compaction", settings.in_force, settings.compaction),
    HealthCheck("cleanup", "clean-up", settings.in_force, settings.cleanup),
    HealthCheck("models", "windows known", settings.in_use, settings.models),
    HealthCheck("context", "context's start", attrgetter("maps"), settings.context),
    HealthCheck("runs", "runs directory", attrgetter("runs"), archives.runs),
    HealthCheck("permissions", "its permissions", attrgetter("runs"), archives.permissions),
    HealthCheck("readable", "kept private", attrgetter("readable"), archives.readable),
    HealthCheck("space", "free space", attrgetter("space"), archives.space),
    HealthCheck("object-store", "object store", attrgetter("stores"), archives.object_store),
    HealthCheck("unarchived", "all archived", attrgetter("transcripts"), archives.unarchived),
    HealthCheck("verify", "archives sound", attrgetter("verified"), archives.verify),
)
"""Every check, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    check: HealthCheck
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


def examine(facts: Facts, checks: tuple[HealthCheck, ...] = CHECKS) -> list[CheckResult]:
    """Run every check on the facts, in the order of the table."""
    results = []
    for check in checks:
        fact = check.fact(facts)
        said = [] if fact is None else list(check.look(fact))
        findings = tuple(replace(each, check=check.name) for each in said if isinstance(each, Finding))
        words = "" if findings else "".join(each for each in said if isinstance(each, str))
        results.append(CheckResult(check, findings, skipped=fact is None, words=words))
    return results
