"""Checks of Claude Code's own settings, of the models in use, and of what fills a context before its conversation.

Of several settings files the strongest that has a key counts: managed, local, project, user, and for old keys the
global `~/.claude.json`. A variable counts for a process that has it, and from the `env` of any of these files.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from mala_context._util.text import percent, plural, version_numbers
from mala_context.analysis.doctor.facts import ContextMaps, Facts, Program, SettingsFile
from mala_context.analysis.doctor.findings import Finding
from mala_context.config import Retention
from mala_context.tracking.auto_compact import OFF_SWITCHES, switched_off
from mala_context.tracking.windows import from_name

DEFAULT_CLEANUP: Final = 30
"""Days after which the CLI deletes transcripts by default."""
SHORT_CLEANUP: Final = 7
"""Days below which a session that was not archived may be deleted before a later start archives it."""
LARGE_MEMORY: Final = 0.2
"""Share of the window from which a memory file is too large."""
LARGE_SERVER: Final = 1_000
"""Tokens of an MCP server's tools from which it matters that no agent calls it."""
VARIABLES: Final = (*OFF_SWITCHES, "ANTHROPIC_MODEL", "MALA_COMPACTION")
"""Variables that these checks look at."""
_ALIASES: Final = frozenset({"default", "best", "sonnet", "opus", "haiku", "opusplan", "inherit", "<synthetic>", ""})
"""Names that stand for a model which the CLI knows."""


class InForce(NamedTuple):
    """Everything that decides how Claude Code behaves here."""

    files: tuple[SettingsFile, ...]
    """The strongest first."""
    environment: Mapping[str, str]
    keep: Retention | None
    """How long archives are kept, by `mala.yaml`."""
    by_reference: bool = False
    """Whether compactions are by reference, by `mala.yaml`."""
    programs: tuple[Program, ...] = ()

    def value(self, key: str) -> tuple[Any, SettingsFile | None]:
        """Return the value that counts and the file that has it, `None` twice where no file does."""
        for each in self.files:
            if key in each.values:
                return each.values[key], each
        return None, None

    def variable(self, name: str) -> tuple[str, str]:
        """Return a variable's value and where it is set; two empty texts where it is not."""
        for each in self.files:
            env = each.values.get("env")
            if isinstance(env, dict) and name in env:
                return str(env[name]), each.path
        value = self.environment.get(name, "")
        return (value, f"${name}") if value else ("", "")


def in_force(facts: Facts) -> InForce | None:
    """Return what is in force, `None` where settings files were not gathered."""
    if facts.settings is None:
        return None
    keep, by_reference = facts.config.archive.keep, facts.config.compaction == "reference"
    return InForce(facts.settings, facts.environment, keep, by_reference, facts.programs or ())


def in_use(facts: Facts) -> tuple[Mapping[str, str], int | Literal["auto"]] | None:
    """Return the models in use, each with where it was seen, and the window that `mala.yaml` sets for them.

    `None` where they were not gathered.
    """
    return None if facts.models is None else (facts.models, facts.config.window)


def is_ours(entry: object, *words: str) -> bool:
    """Tell whether an entry of settings.json runs one of these commands of ours."""
    command = entry.get("command") if isinstance(entry, dict) else None
    try:
        parts = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    if len(parts) > 1 and os.path.basename(parts[0]) == "mala-context":
        return parts[1] in words
    return parts[1:4] == ["-P", "-m", "mala_context.cli"] and parts[4:5] != [] and parts[4] in words


def has_plugin(values: Mapping[str, Any]) -> bool:
    """Tell whether settings have our plugin switched on."""
    plugins = values.get("enabledPlugins")
    return isinstance(plugins, dict) and any(
        on and name.partition("@")[0] == "mala-context" for name, on in plugins.items()
    )


def hooks_of(group: object) -> list[Any]:
    """Return the hooks of one matcher of settings.json; none where it is not as Claude Code has it."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []


def _hooks_in(values: Mapping[str, Any], *names: str) -> Iterator[object]:
    """Return the hooks of these events, or of all."""
    events = values.get("hooks")
    for name, groups in events.items() if isinstance(events, dict) else ():
        for group in groups if isinstance(groups, list) and name in (names or (name,)) else ():
            yield from hooks_of(group)


def installed(found: tuple[SettingsFile, ...]) -> Iterator[Finding | str]:
    """Say what of ours Claude Code's settings have: an agent on the SDK needs none of it."""
    parts = {
        "plugin": any(has_plugin(each.values) for each in found),
        "hooks": any(is_ours(hook, "hook") for each in found for hook in _hooks_in(each.values)),
        "status line": any(is_ours(each.values.get("statusLine"), "statusline") for each in found),
    }
    names = [name for name, there in parts.items() if there]
    yield " and ".join(names) if names else "nothing of ours is switched on; `mala-context init` does it"


def settings(found: tuple[SettingsFile, ...]) -> Iterator[Finding | str]:
    """Find settings files that the CLI cannot read."""
    for each in found:
        if each.error is not None:
            words = f"Claude Code's {each.source} settings cannot be read, so nothing in them counts: {each.error}"
            yield Finding("error", words, each.path, "correct the file; it must be one JSON object")
    yield f"{len(found)} read" if found else "none, Claude Code's defaults are in force"


def hooks_off(force: InForce) -> Iterator[Finding | str]:
    """Find settings under which the plugin's hooks do not fire; an SDK agent's own callbacks fire all the same."""
    value, file = force.value("disableAllHooks")
    if value is True and file is not None:
        found = (
            f"disableAllHooks is true in the {file.source} settings: hooks of plugins and settings do not fire, "
            "so nothing archives an interactive session before its compaction"
        )
        yield Finding("error", found, file.path, "remove the key, or set it to false")
    for each in force.files:
        if each.source == "managed" and each.values.get("allowManagedHooksOnly") is True:
            found = "allowManagedHooksOnly is true: hooks of plugins and of your own settings do not fire"
            fix = "ask whoever manages this machine, or have the hooks put into the managed settings"
            yield Finding("warning", found, each.path, fix)
    yield "no settings switch them off"


def compaction(force: InForce) -> Iterator[Finding | str]:
    """Find settings that switch automatic compaction off, so that a full session can only end."""
    for name in OFF_SWITCHES:
        value, where = force.variable(name)
        if switched_off({name: value}):
            too = " and /compact" if name == "DISABLE_COMPACT" else ""
            found = f"{name} is {value.strip()}: automatic compaction{too} is off, a full session can only end"
            yield Finding("warning", found, where, f"unset {name}; or set restart_at in mala.yaml")
    value, file = force.value("autoCompactEnabled")
    if value is False and file is not None:
        found = f"autoCompactEnabled is false in the {file.source} settings: a full session can only end"
        yield Finding("warning", found, file.path, "remove the key; or set compact_at or restart_at in mala.yaml")
    if force.by_reference or force.variable("MALA_COMPACTION")[0] == "reference":
        yield from _bypassed(force.files)
        yield from _without_mods(force.programs)
    yield "on"


def _without_mods(programs: tuple[Program, ...]) -> Iterator[Finding | str]:
    """Find a CLI that loads no mod, so that it compacts as ever."""
    for each in programs:
        if each.version is not None and version_numbers(each.version) < (2, 1, 294):
            found = f"Claude Code {each.version} ({each.source}) loads no mods: it asks for a summary"
            yield Finding("warning", found, each.path, "`claude update`, to 2.1.294 or later")


def _bypassed(files: tuple[SettingsFile, ...]) -> Iterator[Finding | str]:
    """Find PreCompact hooks of others, which do not run for a compaction that a mod answers."""
    for each in files:
        others = [hook for hook in _hooks_in(each.values, "PreCompact") if not is_ours(hook, "hook")]
        if others:
            names = ", ".join(dict.fromkeys(_name_of(hook) for hook in others))
            found = f"PreCompact hooks in the {each.source} settings do not run for a compaction by reference: {names}"
            fix = "do not rely on them to block or to record a compaction; or keep the CLI's (compaction: cli)"
            yield Finding("warning", found, each.path, fix)


def _name_of(hook: object) -> str:
    """Return what a hook runs, in one line of at most 80 characters."""
    given = hook if isinstance(hook, dict) else {}
    named = (given[key] for key in ("command", "url", "prompt", "type") if isinstance(given.get(key), str))
    line = " ".join(next(named, "one of unknown shape").split())
    return line if len(line) <= 80 else line[:79] + "…"


def cleanup(force: InForce) -> Iterator[Finding | str]:
    """Find that the CLI deletes transcripts at once, or earlier than the archive's own limit."""
    days, file = force.value("cleanupPeriodDays")
    where = "cleanupPeriodDays" if file is None else file.path
    kept = None if force.keep is None else force.keep.days
    fix = f"set cleanupPeriodDays to {max(kept or 0, DEFAULT_CLEANUP)} or more in ~/.claude/settings.json"
    if file is None:
        days = DEFAULT_CLEANUP
    if isinstance(days, bool) or not isinstance(days, int | float) or days < 0:
        found = f"cleanupPeriodDays is {days!r:.60}, wanted a number of days from 1"
        yield Finding("warning", found, where, fix)
    elif days == 0:
        found = "cleanupPeriodDays is 0: Claude Code keeps no transcripts, or refuses this settings file"
        yield Finding("error", found, where, fix)
    elif kept is not None and days < kept:
        found = (
            f"Claude Code deletes transcripts after {days:g} days, archives are kept for {kept}: in between "
            "the archive is the only copy, which keep never removes"
        )
        yield Finding("warning", found, where, f"{fix}, or lower archive.keep.days")
    elif kept is None and days < SHORT_CLEANUP:
        found = f"Claude Code deletes transcripts after {days:g} days: a session that no hook archived is soon lost"
        yield Finding("warning", found, where, fix)
    else:
        yield f"transcripts stay for {days:g} days"


def models(seen: tuple[Mapping[str, str], int | Literal["auto"]]) -> Iterator[Finding | str]:
    """Find models whose window is not known."""
    used, window = seen
    if window != "auto":
        yield f"mala.yaml says {window:,} tokens"
        return
    names = {model: model.strip().lower().removesuffix("[1m]") for model in used}
    named = {model: where for model, where in used.items() if names[model] not in _ALIASES}
    guessed = {model: where for model, where in named.items() if from_name(model).source == "guess"}
    if guessed:
        first = next(iter(guessed))
        found = f"the window of {first} is a guess: {from_name(first).tokens:,} tokens until the CLI reports another"
        if len(guessed) > 1:
            found = f"the windows of {len(guessed)} models are guesses until the CLI reports others"
        fix = "set `window:` under `context:` in mala.yaml to the real size"
        items = tuple(f"{model} ({where})" for model, where in guessed.items())
        yield Finding("warning", found, guessed[first], fix, items)
    yield f"{plural(len(named), 'model')} seen lately"


def context(found: ContextMaps) -> Iterator[Finding | str]:
    """Find memory files that take a large share of the window, and MCP servers that no agent calls."""
    for path, share in found.memory.items():
        if share >= LARGE_MEMORY:
            words = f"a memory file takes {percent(share)} of the window in each request"
            yield Finding("warning", words, path, "Shorten it, or move parts into files that are read on demand")
    for server, tokens in found.idle_servers.items():
        if tokens >= LARGE_SERVER:
            words = (
                f"the MCP server {server} takes {tokens:,} tokens of each request, "
                f"and no tool of it was called in {plural(found.sessions, 'session')}"
            )
            yield Finding("warning", words, server, "Remove it where it is not needed: claude mcp remove")
    yield f"memory files and MCP servers of {plural(found.sessions, 'session')}"
