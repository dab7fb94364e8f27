"""One session in `mala-context watch`: what fills its context, its compactions, and commands to go back."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.text import Text

from mala_context._util.text import percent, plural, printable
from mala_context.cli.watch_table import Look, age, bar, cut, one_line, project
from mala_context.tracking.context_map import GROUPS

if TYPE_CHECKING:
    from mala_context.analysis.report import CompactionEntry, Mark
    from mala_context.analysis.watch import WatchRow

MOST_BYTES: Final = 64 << 20
"""Longest transcript that is read for the view of one session, in bytes; a longer one is not read at all."""
_CONTENTS: Final = 8
_COMPACTIONS: Final = 4
_BAR: Final = 20
_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
"""A word of a command, with the quotes of `shlex.quote`."""


def describe(row: WatchRow, look: Look) -> list[Text]:
    """Return the lines about a session; reads its transcript, which takes about a second for 20 MB."""
    from mala_context.analysis.report import observe_transcript

    try:
        found = observe_transcript(row.path) if os.path.getsize(row.path) <= MOST_BYTES else None
    except OSError:
        found = None
    parts: list[Text | str] = [
        Text(f"{project(row)} {printable(row.session_id or '')}", style="bold"),
        *_facts(row, look),
    ]
    parts += _commands(row)
    if found is None:
        parts.append(Text("What fills the context: the transcript is too long to read here, or gone", style="dim"))
    else:
        parts += [*_compactions(found.compactions), *_contents(found.parts, found.marks, look)]
    return [line for each in parts for line in _fit(each, look)]


def _fit(line: Text | str, look: Look) -> Iterator[Text]:
    text = Text(line) if isinstance(line, str) else line
    if text.plain.startswith("  $ "):
        yield from (Text(each, no_wrap=cell_len(each) <= look.width) for each in _command(text.plain, look.width))
        return
    if cell_len(text.plain) > look.width:
        text.truncate(look.width, overflow="ellipsis" if look.marks.cut == "…" else "crop")
    text.no_wrap = True
    yield text


def _command(line: str, width: int) -> list[str]:
    """Break a command between its words with backslashes, so that a copy of its lines runs as one command."""
    prompt, *words = _WORD.findall(line)
    found = [f"  {prompt}"]
    for word in words:
        if cell_len(f"{found[-1]} {word} \\") <= width:
            found[-1] += f" {word}"
        else:
            found[-1] += " \\"
            found.append(f"    {word}")
    return found


def _facts(row: WatchRow, look: Look) -> Iterator[Text | str]:
    about = "" if row.accuracy == "exact" else look.marks.about
    size = (
        "unknown" if row.tokens is None or row.ratio is None else f"{about}{row.tokens:,} tokens, {percent(row.ratio)}"
    )
    line = Text("Context   ")
    line.append_text(bar(row, _BAR, look.marks))
    threshold = row.threshold
    words = f" {size} of {row.window:,}{row.mark}"
    if threshold is not None:
        words += f"; {'compacts at' if threshold.acted_on else 'reported threshold'} {threshold.tokens:,}"
    yield line.append(words)
    left = "" if row.turns_left is None else f", {plural(row.turns_left, 'turn')} left"
    yield f"Model     {one_line(row.model or 'unknown')}{left}"
    yield f"Directory {one_line(row.cwd or 'unknown')}{f', branch {one_line(row.branch)}' if row.branch else ''}"
    yield f"Last row  {age(look.now - row.last)}, in {one_line(row.path)}"
    if row.first_prompt:
        yield f"Prompt    {one_line(row.first_prompt)}"


def _contents(parts: Sequence[Mapping[str, Any]], marks: Sequence[Mark], look: Look) -> Iterator[Text]:
    """Yield what the context holds, and the last request whose size was not as projected."""
    alarms = [mark.words for mark in marks if mark.kind == "silent_change"]
    if alarms:
        yield Text(f"Not as projected: {plural(len(alarms), 'request')}; the last:", style="bold")
        yield from (Text(f"  {line}") for line in wrap(one_line(alarms[-1].removeprefix("Context: ")), look.width - 2))
    yield Text("What fills the context, about:", style="bold")
    by_size = sorted(parts, key=lambda part: -part["tokens"])
    named = [(part["path"] or part["name"], GROUPS[part["group"]], part["tokens"]) for part in by_size[:_CONTENTS]]
    shown = [(name if name == group else f"{group}: {name}", tokens) for name, group, tokens in named]
    if by_size[_CONTENTS:]:
        shown.append((f"{len(by_size) - _CONTENTS} more", sum(part["tokens"] for part in by_size[_CONTENTS:])))
    total = sum(tokens for _, tokens in shown)
    name_width = max([cell_len(one_line(name)) for name, _ in shown] + [1])
    name_width = min(name_width, max(10, look.width - 30))
    for name, tokens in shown:
        filled = min(10, round(10 * tokens / total)) if total else 0
        bar_of = look.marks.full * filled + look.marks.empty * (10 - filled)
        yield Text(f"  {cut(one_line(name), name_width, look.marks)} {bar_of} {tokens:>9,}")


def _compactions(entries: Sequence[CompactionEntry]) -> Iterator[Text]:
    yield Text(f"Compactions: {len(entries)}" if entries else "Compactions: none", style="bold")
    for number, entry in list(enumerate(entries, 1))[-_COMPACTIONS:]:
        when = one_line((entry.time or "")[:19].replace("T", " "))
        sizes = " → ".join("?" if size is None else f"{size:,}" for size in (entry.before, entry.after))
        missing = entry.missing
        kept, words = (" by reference", "kept text") if entry.by_reference else ("", "summary")
        lost = "" if missing is None else f", {plural(missing, 'thing')} not in the {words}"
        yield Text(f"  {number}. {when} {one_line(entry.trigger or '')}{kept} {sizes} tokens{lost}")


def _commands(row: WatchRow) -> Iterator[Text | str]:
    if row.session_id is None:
        return
    session = shlex.quote(printable(row.session_id))
    place = f"cd {shlex.quote(printable(row.cwd))} && " if row.cwd else ""
    yield Text("Commands:", style="bold")
    if row.archived is not None:
        yield f"  $ {place}mala-context archives restore {session}"
        yield f"  $ {place}mala-context archives lost {session}"
    else:
        yield "  no archive of this session is known"
    yield f"  $ {place}claude --resume {session}"
    yield f"  $ mala-context report {session}"
