"""`mala-context init`: add the status line and hooks to settings.json and thresholds to mala.yaml, or remove them.

Nothing is written before the difference was shown. A file that cannot be read is left as it is. A copy of the file from
before the first change is kept beside it, and `--remove` puts this copy back, byte for byte. If others have changed the
file since, only our own entries are taken out of settings.json.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import unified_diff
from typing import Any, Final, NamedTuple

import click

from mala_context._util.safe_open import read_regular
from mala_context._util.text import printable
from mala_context.analysis.doctor.checks.settings import has_plugin, hooks_of, is_ours
from mala_context.cli.files import publish, writer
from mala_context.cli.inputs import ExistingDirectory
from mala_context.errors import ConfigError, MalaContextError
from mala_context.transcripts.projects import config_dir

KEPT: Final = ".before-mala-context"
"""Suffix of the copy of a file from before the first change."""
EVENTS: Final = {
    "PreCompact": ("hook", 20),
    "PostCompact": ("hook", 20),
    "SessionStart": ("hook", 20),
    "SessionEnd": ("hook", 20),
    "UserPromptSubmit": ("hook warn", 5),
}
"""Claude Code's event → our command and its timeout in seconds: the same as in the plugin's hooks.json."""
STATUS_LINE: Final = "statusline"
NEW: Final = "# Written by `mala-context init`.\n"
"""First line of a mala.yaml that was not there before."""
_THRESHOLD: Final = re.compile(rb"\b(?:warn_at|compact_at|restart_at|final_at)\s*:\s*[^#\s,}]*")
# `uvx` and `pipx run` unpack into caches that are emptied later, and settings.json would then name no program.
_TEMPORARY: Final = re.compile(r"/\.cache/(uv|pipx)/|/uv/(archive|environments)-v|/pipx/\.cache/")
_MOST_BYTES: Final = 4 << 20
_SCOPES: Final = ("user", "project", "local")


class Change(NamedTuple):
    """The bytes of one file before and after; `None` for no file."""

    path: str
    before: bytes | None
    after: bytes | None

    def difference(self) -> Iterator[str]:
        """Yield the lines of a unified diff, safe on a terminal."""
        old, new = ((text or b"").decode("utf-8", "backslashreplace").splitlines() for text in self[1:])
        for line in unified_diff(old, new, self.path, self.path, lineterm=""):
            yield printable(line.expandtabs(4))


def _threshold(name: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=click.FloatRange(0, 1, min_open=True),
        metavar="SHARE",
        help=f"Write {name} into mala.yaml, as a share of the window.",
    )


@click.command()
@click.option("--status-line", is_flag=True, help="Add the status line.")
@click.option("--hooks", is_flag=True, help="Add the hooks that archive transcripts.")
@_threshold("warn_at")
@_threshold("compact_at")
@_threshold("restart_at")
@_threshold("final_at")
@click.option(
    "--scope", type=click.Choice(_SCOPES), default="user", show_default=True, help="Which settings.json to change."
)
@click.option("--repo", type=ExistingDirectory(), default=".", help="The repository of mala.yaml.  [default: this one]")
@click.option("--remove", is_flag=True, help="Remove everything that this command added.")
@click.option("--yes", is_flag=True, help="Write without asking.")
def init(
    status_line: bool, hooks: bool, scope: str, repo: str, remove: bool, yes: bool, **thresholds: float | None
) -> None:
    """Set up Claude Code for good: the status line and the hooks in its settings.json, thresholds in mala.yaml.

    Shows the difference and asks before it writes. The old file is kept beside the new one; --remove puts it back.
    Without options the status line and the hooks are added. A file that cannot be read is never changed.
    """
    given = {name: value for name, value in thresholds.items() if value is not None}
    if remove and (status_line or hooks or given):
        raise click.UsageError("--remove takes everything away: leave the other options out")
    settings, config = _settings_path(scope, repo), os.path.join(os.path.abspath(repo), "mala.yaml")
    if remove:
        changes = [_settings_removed(settings), _config_removed(config)]
    else:
        every = not (status_line or hooks or given)
        both = {"status_line": status_line or every, "hooks": hooks or every}
        changes = [_settings_added(settings, **both)] if any(both.values()) else []
        changes += [_config_added(config, given)] if given else []
        if len(given) > ("warn_at" in given):
            click.echo("Claude Code itself acts on warn_at alone; agents on the SDK act on every threshold", err=True)
    changes = [each for each in changes if each.before != each.after]
    if not changes:
        click.echo("nothing to change")
        return
    for each in changes:
        for line in each.difference():
            click.echo(line)
    if not yes and not _asks():
        click.echo("nothing is written: this is a dry run; --yes writes it")
        return
    if yes or click.confirm("Write this?"):
        for each in changes:
            _write(each, remove=remove)


def _asks() -> bool:
    """Tell whether there is a terminal to ask at."""
    return sys.stdin.isatty()


def _write(change: Change, *, remove: bool) -> None:
    """Write a file, and keep it as it was before; raises `OSError` and leaves both as they are."""
    path, kept = change.path, change.path + KEPT
    if _read(path) != change.before:
        raise MalaContextError(f"{path}: it changed while you were asked; nothing is written")
    if change.before is not None and not remove and not _holds_ours(change):
        with publish(kept, private=True) as temporary, writer(temporary) as file:
            file.write(change.before)
    if change.after is None:
        os.unlink(path)
    else:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with publish(path) as temporary, writer(temporary) as file:
            file.write(change.after)
    if remove and os.path.lexists(kept):
        os.unlink(kept)
    click.echo(f"{printable(path)} {'removed' if change.after is None else 'written'}")


def _holds_ours(change: Change) -> bool:
    """Tell whether a file has entries of ours already: then the copy beside it is from before them, and must stay."""
    if change.path.endswith(".json"):
        return _without_ours(_object(change.path, change.before)) != _object(change.path, change.before)
    return os.path.lexists(change.path + KEPT) or (change.before or b"").startswith(NEW.encode())


def _read(path: str) -> bytes | None:
    """Return a file's bytes, `None` where it is not there. Raises `OSError` where it is no file or cannot be read."""
    try:
        data = read_regular(os.path.realpath(path), _MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > _MOST_BYTES:
        raise MalaContextError(f"{path}: it has more than {_MOST_BYTES:,} bytes; nothing is changed")
    return data


# -- settings.json -----------------------------------------------------------------------------------------------------


def _settings_path(scope: str, repo: str) -> str:
    if scope != "user":
        name = "settings.json" if scope == "project" else "settings.local.json"
        return os.path.join(os.path.abspath(repo), ".claude", name)
    directory = config_dir(os.environ)
    if directory is None:
        raise MalaContextError("there is no home directory: set CLAUDE_CONFIG_DIR")
    return os.path.join(directory, "settings.json")


def _object(path: str, data: bytes | None) -> dict[str, Any]:
    """Return the settings in a file; raises `MalaContextError` for JSON that writing would change (a key twice)."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(found)) < len(found):
            raise ValueError("a key stands twice in one object")
        return dict(found)

    try:
        values = json.loads((data or b"{}").decode("utf-8-sig").strip() or "{}", object_pairs_hook=pairs)
        json.dumps(values, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise MalaContextError(f"{path}: not JSON that can be changed: {error!s:.200}") from None
    if not isinstance(values, dict):
        raise MalaContextError(f"{path}: it is no JSON object")
    return values


def _bytes(values: Mapping[str, Any], like: bytes | None) -> bytes:
    """Return settings as JSON, indented as the file was."""
    text = (like or b"").decode("utf-8", "replace")
    found = re.search(r'\n([ \t]+)"', text)
    words = json.dumps(values, indent=found[1] if found else 2, ensure_ascii=False)
    try:
        data = words.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can hold
        data = json.dumps(values, indent=found[1] if found else 2).encode()
    start = BOM_UTF8 if (like or b"").startswith(BOM_UTF8) else b""
    return start + data + (b"\n" if not text or text.endswith("\n") else b"")


def _command(words: str) -> str:
    """Return the shell's words for a command of ours, by the path of the program that runs now.

    Raises `MalaContextError` for a program that is not installed for good.
    """
    program = shutil.which(sys.argv[0]) if os.path.basename(sys.argv[0]) == "mala-context" else None
    if _TEMPORARY.search(program or sys.executable):
        raise MalaContextError("this program is in a cache that may be emptied (uvx, pipx run): install it first")
    if program is None:
        return f"{shlex.quote(sys.executable)} -P -m mala_context.cli {words}"
    return f"{shlex.quote(os.path.abspath(program))} {words}"


def _settings_added(path: str, *, status_line: bool, hooks: bool) -> Change:
    before = _read(path)
    values = _object(path, before)
    new = dict(values)
    if status_line and not is_ours(values.get("statusLine"), STATUS_LINE):
        if "statusLine" not in values:
            new["statusLine"] = {"type": "command", "command": _command(STATUS_LINE)}
        elif hooks:
            click.echo(f"{printable(path)}: it has another status line, which stays", err=True)
        else:
            raise MalaContextError(f"{path}: it has another status line; remove that first")
    if hooks:
        if has_plugin(values):
            click.echo("the plugin is installed and has the same hooks: none are added", err=True)
        else:
            new["hooks"] = _hooks_added(path, values.get("hooks", {}))
    return Change(path, before, before if new == values else _bytes(new, before))


def _hooks_added(path: str, given: Any) -> dict[str, Any]:
    events = dict(given) if isinstance(given, dict) else None
    for event, (words, timeout) in EVENTS.items():
        groups = None if events is None else events.get(event, [])
        if events is None or not isinstance(groups, list):
            raise MalaContextError(f"{path}: its hooks are not as Claude Code has them; nothing is changed")
        if not any(is_ours(each, "hook") for group in groups for each in hooks_of(group)):
            entry = {"type": "command", "command": _command(words), "timeout": timeout}
            events[event] = [*groups, {"hooks": [entry]}]
    return events or {}


def _without_ours(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without our entries, and without groups and events that are then empty."""
    new = dict(values)
    if is_ours(values.get("statusLine"), STATUS_LINE):
        del new["statusLine"]
    if isinstance(values.get("hooks"), dict):
        events = {event: _groups_without(groups) for event, groups in values["hooks"].items()}
        kept = {event: now for event, now in events.items() if now or now == values["hooks"][event]}
        if kept or kept == values["hooks"]:
            new["hooks"] = kept
        else:
            del new["hooks"]
    return new


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without events that have no hook, to compare them."""
    hooks = values.get("hooks")
    kept = {event: groups for event, groups in hooks.items() if groups} if isinstance(hooks, dict) else hooks
    return {**{name: value for name, value in values.items() if name != "hooks"}, **({"hooks": kept} if kept else {})}


def _groups_without(groups: Any) -> Any:
    if not isinstance(groups, list):
        return groups
    kept = []
    for group in groups:
        hooks = hooks_of(group)
        others = [each for each in hooks if not is_ours(each, "hook")]
        if others == hooks:
            kept.append(group)
        elif others:
            kept.append({**group, "hooks": others})
    return kept


def _settings_removed(path: str) -> Change:
    before = _read(path)
    if before is None:
        return Change(path, None, None)
    values = _object(path, before)
    new = _without_ours(values)
    if new == values:
        return Change(path, before, before)
    kept = _read(path + KEPT)
    if kept is not None and _without_empty(_object(path + KEPT, kept)) == _without_empty(new):
        return Change(path, before, kept)
    return Change(path, before, _bytes(new, before) if new or kept is not None else None)


# -- mala.yaml ---------------------------------------------------------------------------------------------------------


def _config_added(path: str, given: Mapping[str, float]) -> Change:
    """Return mala.yaml with these thresholds; raises `MalaContextError` if its form is too unusual to change."""
    from mala_context.config import ContextConfig, load_with_lines

    before = _read(path)
    if before is None:
        text = NEW + "context:\n" + "".join(f"  {name}: {value:g}\n" for name, value in given.items())
        try:
            return Change(path, None, _checked(path, text, ContextConfig(), given))
        except ConfigError as error:  # the file and its lines are not there yet
            words = str(error).replace(f"{path}:", "in line ")
            raise click.UsageError(f"the new mala.yaml would be refused {words}") from error
    # Changed by lines and not dumped from the parsed values: a dump drops comments, order and quotes. Whatever the
    # patterns below get wrong, `_checked` finds: the new text must mean the old one with these thresholds.
    loaded = load_with_lines(path)
    lines = before.decode("utf-8-sig").splitlines(keepends=True)
    for name, value in given.items():
        place = loaded.lines.get(f"context.{name}")
        if place is not None:
            lines[place - 1] = re.sub(
                rf"(\b{name}\s*:)[^#\r\n,}}]*?(?=\s*(?:#|,|}}|\r?\n|$))", rf"\1 {value:g}", lines[place - 1], count=1
            )
    missing = [f"{name}: {value:g}" for name, value in given.items() if f"context.{name}" not in loaded.lines]
    top = next((number for number, line in enumerate(lines) if re.match(r"context:\s*(#.*)?\r?\n?$", line)), None)
    if missing and top is None and re.search(r"^context\s*:", "".join(lines), re.MULTILINE):
        raise _unusual(path, given)
    if missing and top is None:
        lines += ["" if not lines or lines[-1].endswith("\n") else "\n", "context:\n"]
        top = len(lines) - 1
    if missing and top is not None:
        follows = next((line for line in lines[top + 1 :] if line.strip() and not line.lstrip().startswith("#")), "")
        indent = re.match(r"[ ]*", follows)[0] or "  "  # type: ignore[index]  # it always matches
        if not lines[top].endswith("\n"):
            lines[top] += "\n"
        lines[top + 1 : top + 1] = [f"{indent}{each}\n" for each in missing]
    mark = before[: len(BOM_UTF8)] if before.startswith(BOM_UTF8) else b""
    after = mark + _checked(path, "".join(lines), loaded.config, given)
    return Change(path, before, after)


def _checked(path: str, text: str, before: Any, given: Mapping[str, float]) -> bytes:
    """Return the text's bytes if it means what the file meant, with the thresholds.

    Raises `ConfigError` for thresholds that do not go together, and `MalaContextError` if
    anything else would change.
    """
    from mala_context.config import parse

    changes: Any = dict(given)
    if parse(text, path) != replace(before, **changes):
        raise _unusual(path, given)
    return text.encode()


def _unusual(path: str, given: Mapping[str, float]) -> MalaContextError:
    wanted = ", ".join(f"{name}: {value:g}" for name, value in given.items())
    return MalaContextError(f"{path}: its form is unusual; write {wanted} below context: yourself")


def _config_removed(path: str) -> Change:
    """Return mala.yaml as it was before; leave it if more than thresholds changed since."""
    before, kept = _read(path), _read(path + KEPT)
    if before is None or (kept is None and not before.startswith(NEW.encode())):
        return Change(path, before, before)
    if _rest(before) == _rest(NEW.encode() if kept is None else kept):
        return Change(path, before, kept)
    click.echo(f"{printable(path)}: others changed it since; take the thresholds out yourself", err=True)
    return Change(path, before, before)


def _rest(data: bytes) -> list[bytes]:
    """Return the lines of a mala.yaml without thresholds, and without what `init` adds around them."""
    lines = (_THRESHOLD.sub(b"", line).rstrip() for line in data.splitlines())
    return [line for line in lines if line not in (b"", b"context:")]
