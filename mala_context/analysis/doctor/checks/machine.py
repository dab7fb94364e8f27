"""Checks of the programs: the SDK, the CLI, whether hooks fire in it, and `mala.yaml`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final

from mala_context._util.text import plural, version_numbers
from mala_context.analysis.doctor.facts import ClaudeDirectory, ConfigFile, Facts, HookProof, Program
from mala_context.analysis.doctor.findings import Finding

OLDEST_CLI: Final = (2, 0, 0)
"""The oldest CLI that the SDK itself works with."""
NEWEST_CLI: Final = (2, 1, 332)
"""The newest CLI on which the tests ran."""
OLDEST_SDK: Final = (0, 1, 66)
"""The oldest claude-agent-sdk that is allowed, and on which the tests ran."""
NEWEST_SDK: Final = (0, 2, 189)
"""The newest claude-agent-sdk on which the tests ran."""
_INSTALL: Final = "install it (`npm install -g @anthropic-ai/claude-code`), or `pip install claude-agent-sdk`"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _beside(version: str, newest: tuple[int, ...]) -> str:
    """Return a remark on a version that is newer than any that was tested; else nothing."""
    return f", newer than {_dotted(newest)}, the newest that was tested" if version_numbers(version) > newest else ""


def sdk(version: str) -> Iterator[Finding | str]:
    """Find an SDK that is too old."""
    if version_numbers(version) < OLDEST_SDK:
        found = f"claude-agent-sdk {version} is older than {_dotted(OLDEST_SDK)}, which mala-context needs"
        yield Finding("error", found, "claude-agent-sdk", "pip install --upgrade claude-agent-sdk")
    yield f"{version}{_beside(version, NEWEST_SDK)}"


def cli(programs: tuple[Program, ...]) -> Iterator[Finding | str]:
    """Find that there is no CLI, that one does not run, that one is too old."""
    oldest = _dotted(OLDEST_CLI)
    if not programs:
        yield Finding("error", "no Claude Code CLI: neither the SDK's own nor one on PATH", "PATH", _INSTALL)
    for each in programs:
        if each.version is None:
            found = f"this Claude Code CLI does not run: {each.error or 'it printed no version'}"
            yield Finding("error", found, each.path, f"reinstall it or remove it ({each.source})")
        elif version_numbers(each.version) < OLDEST_CLI:
            found = f"Claude Code {each.version} ({each.source}) is older than {oldest}, which the SDK needs"
            yield Finding("error", found, each.path, "`claude update`, or install a newer one")
    versions = ((each.version or "", each.source) for each in programs)
    yield ", ".join(f"{version} ({source}){_beside(version, NEWEST_CLI)}" for version, source in versions)


def played(facts: Facts) -> tuple[HookProof, str] | None:
    """Return how our own session went, and in which CLI; `None` where none was played."""
    where = facts.programs[0].path if facts.programs else "the Claude Code CLI"
    return None if facts.hooks is None else (facts.hooks, where)


def hooks(seen: tuple[HookProof, str]) -> Iterator[Finding | str]:
    """Find that a session of our own archived nothing before its compaction."""
    proof, where = seen
    if proof.error is not None:
        fix = "run `mala-context demo`, which shows more of it"
        yield Finding("error", f"a session on the loopback failed: {proof.error}", where, fix)
    elif not proof.archived:
        found = "in a session on the loopback PreCompact did not fire: nothing was archived before the compaction"
        fix = "look for disableAllHooks or allowManagedHooksOnly in the managed settings, then update Claude Code"
        yield Finding("error", found, where, fix)
    yield f"PreCompact archived a session on the loopback ({proof.seconds:.1f} s)"


def claude(place: ClaudeDirectory) -> Iterator[Finding | str]:
    """Find that Claude Code has no place of its own for transcripts."""
    if place.error is not None:
        found = f"Claude Code keeps no transcripts, or not where they can be found: {place.error}"
        fix = f"set {place.variable} to an absolute path of a directory that is yours"
        yield Finding("error", found, place.path or place.variable, fix)
    yield f"{place.path}" if place.there else f"{place.path} (no transcripts yet)"


def config(files: tuple[ConfigFile, ...]) -> Iterator[Finding | str]:
    """Find each `mala.yaml` that cannot be used; the agent of that repository does not start."""
    for each in files:
        if each.problems:
            found = f"it cannot be used: {plural(len(each.problems), 'problem')}; an agent here does not start"
            check = f"mala-context config check {shlex.quote(os.path.dirname(each.path))}"
            yield Finding("error", found, each.path, f"correct what is listed; `{check}` checks it", each.problems)
    yield f"{plural(len(files), 'file')}, valid" if files else "none, the defaults are in force"
