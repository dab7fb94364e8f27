"""The parts of a page that need no script: facts, tables, what compactions lost. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mala_context._util.text import plural, window_words
from mala_context.analysis.report.html_text import UNKNOWN, count, markup, moment, share
from mala_context.analysis.report.model import CompactionEntry, ContextReport, Contributor, SessionReport
from mala_context.analysis.report.svg_chart import HEIGHT, LIGHT, NAMES, WIDTH, panel, title
from mala_context.tracking.cache import CAUSES, CacheUse
from mala_context.tracking.context_map import GROUPS
from mala_context.transcripts.loss import KINDS, lost_words

MOST_ROWS: Final = 25
"""Rows of the tables of contributors, files and subagents."""
MOST_LOST: Final = 40
"""Things of one kind that are listed of one compaction."""
MOST_INDEXED: Final = 200
"""Sessions of the index that are in its table at first; the page's script has the others, for a table of 2,000 rows
takes seconds to lay out."""
_VARIABLES: Final = {role: f"var(--{role})" for role in LIGHT}
_CONTROLS: Final = (
    ("in", "Zoom in"),
    ("out", "Zoom out"),
    ("left", "Left"),
    ("right", "Right"),
    ("all", "Show all"),
    ("time", "By time"),
)


def name_of(session: SessionReport) -> str:
    """Return what a session is called, as text that is not escaped yet."""
    return session.session_id or session.path


def index(report: ContextReport) -> str:
    """Return the table of all sessions; the page's script lets a reader sort and search it."""
    heads = (
        *("Session", "Project", "First prompt", "Model", "Started (UTC)", "*Responses", "*Peak", "*Of window"),
        *("*Compactions", "*Micro", "*Refused", "*Restarts", "*Warnings", "*Not in summaries"),
    )
    rows = [
        (
            f'<a href="#s{place}"><code>{markup(name_of(each)[:8] if each.session_id else name_of(each))}</code></a>',
            markup(each.project or UNKNOWN, 60),
            markup(" ".join((each.first_prompt or UNKNOWN).split()), 90),
            markup((each.model or UNKNOWN).removeprefix("claude-"), 60),
            f'<span class="when">{moment(each.started_at)[:16]}</span>',
            count(each.responses),
            count(each.peak_tokens),
            share(each.peak_ratio) + each.unsure,
            count(len(each.compactions)),
            count(each.count("microcompaction")),
            count(each.count("refusal")),
            count(each.count("restart", "clear")),
            count(each.count("warning")),
            count(each.missing),
        )
        for place, each in enumerate(report.sessions)
    ]
    search = (
        '<p class="search" hidden><label>Search <input type="search" id="search" autocomplete="off" '
        'placeholder="project, prompt, model, id"></label> <span id="found" aria-live="polite"></span></p>'
    )
    sessions = table("All sessions of this report, the newest first", heads, rows[:MOST_INDEXED])
    rest = _body(heads, rows[MOST_INDEXED:])
    more = f'<template id="rest"><table><tbody>{rest}</tbody></table></template>' if rest else ""
    button = '<p><button type="button" id="more" hidden></button></p>'
    return f'<div id="index"><h2>Sessions</h2>{search}{sessions}{more}{button}</div>'


def section(session: SessionReport, place: int) -> str:
    """Return a session's section of the page."""
    parts = [
        f'<section class="session" id="s{place}" aria-labelledby="h{place}">',
        f'<h2 id="h{place}">{markup(title(session))}</h2>',
        f'<p class="soft path">{markup(session.path)}</p>',
        f'<p class="prompt">{markup(session.first_prompt)}</p>' if session.first_prompt else "",
        _facts(session),
        *(f'<p class="note">{markup(note)}</p>' for note in session.notes),
        _figure(session, place),
        _points(session, place),
        _compactions(session.compactions),
        _marks(session),
        _parts(session),
        _cache(session.cache),
        _contributors("Largest contributors", "What came into the main agent's context", session.contributors),
        _contributors("Files read", "Text of files that came into the main agent's context", session.files),
        _subagents(session),
        _problems(session),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], bar: int | None = None) -> str:
    """Return a table; a `*` before a head marks a column of numbers, `bar` is the place of the column without text."""
    numbers = [head.startswith("*") for head in heads]
    cells = [f'<th scope="col"{" class=n" if n else ""}>{head.lstrip("*")}</th>' for head, n in zip(heads, numbers)]  # noqa: B905  (of one length)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{''.join(cells)}</tr></thead><tbody>{_body(heads, rows, bar)}</tbody></table></div>"
    )


def _body(heads: Sequence[str], rows: Iterable[Sequence[str]], bar: int | None = None) -> str:
    body = []
    for row in rows:
        made = []
        for place, (cell, head) in enumerate(zip(row, heads, strict=True)):
            kind = ' class="bar" aria-hidden="true"' if place == bar else " class=n" if head.startswith("*") else ""
            made.append(f"<td{kind}>{cell}</td>" if place else f'<th scope="row"{kind}>{cell}</th>')
        body.append(f"<tr>{''.join(made)}</tr>")
    return "".join(body)


def _facts(session: SessionReport) -> str:
    window = window_words(session.window, session.window_source)
    window += " (in doubt)" if session.window_doubtful else ""
    facts = [
        ("Model", markup(session.model or "unknown")),
        ("Window", window if session.window else "unknown"),
        ("Peak", f"{count(session.peak_tokens)} ({share(session.peak_ratio)}{session.unsure})"),
        ("At the end", count(session.tokens)),
        ("Responses", count(session.responses)),
        ("Compactions", count(len(session.compactions))),
        ("Microcompactions", count(session.count("microcompaction"))),
        ("Not as projected", count(session.count("silent_change"))),
        ("Refused requests", count(session.count("refusal"))),
        ("Not in summaries", "not known" if session.missing is None else count(session.missing)),
        ("Subagents", count(len(session.subagents))),
        ("Began (UTC)", moment(session.started_at)),
        ("Last row (UTC)", moment(session.ended_at)),
    ]
    return f'<dl class="facts">{"".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)}</dl>'


def _figure(session: SessionReport, place: int) -> str:
    buttons = "".join(
        f'<button type="button" data-act="{act}"{" aria-pressed=false" if act == "time" else ""}>{words}</button>'
        for act, words in _CONTROLS
    )
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{markup(told(session))}">'
    return (
        f'<figure class="chart" data-session="{place}">'
        f'<div class="controls" role="group" aria-label="Chart controls" hidden>{buttons}</div>'
        f'<div class="still">{drawn}{panel(session, _VARIABLES)}</svg></div>'
        f'<div class="live" hidden tabindex="0" role="application" aria-roledescription="line chart" '
        f'aria-label="{markup(told(session))} Arrow keys go from point to point, plus and minus zoom, 0 shows all.">'
        "</div>"
        f'<span class="sr" aria-live="polite"></span>'
        f'<figcaption class="soft hint">Drag to zoom, double click shows all; arrow keys, plus, minus and 0 do it too. '
        "Every figure is in the tables below.</figcaption></figure>"
    )


def told(session: SessionReport) -> str:
    """Return the picture in words."""
    marks = [f"{plural(session.count(kind), words)}" for kind, words in NAMES.items() if session.count(kind)]
    compactions = [plural(len(session.compactions), "compaction")] if session.compactions else []
    return f"{title(session)}: {', '.join([plural(session.responses, 'response'), *compactions, *marks])}."


def _points(session: SessionReport, place: int) -> str:
    heads = ("*Response", "Time (UTC)", "Agent", "*Tokens", "*Of window", "How known", "*Line of the file")
    number = len(session.points) + sum(len(agent.points) for agent in session.subagents)
    return (
        f'<details class="points" data-session="{place}"><summary>All {number:,} points as a table</summary>'
        f"{table('Size of the context at each response', heads, ())}"
        f'<button type="button" hidden></button></details>'
    )


def _compactions(entries: Sequence[CompactionEntry]) -> str:
    if not entries:
        return "<h3>Compactions</h3><p>None.</p>"
    cards = "".join(_card(number, entry) for number, entry in enumerate(entries, 1))
    return f'<h3>Compactions</h3><div class="cards">{cards}</div>'


def _card(number: int, entry: CompactionEntry) -> str:
    about = "" if entry.after_exact else "about "
    after = "unknown" if entry.after is None else f"{about}{count(entry.after)}"
    before = "unknown" if entry.before is None else f"about {count(entry.before)}"
    cli = "" if entry.cli_before is None else f" The CLI's own figure before it: {count(entry.cli_before)}."
    gone = entry.discarded
    held = ", ".join(f"{markup(each.name, 120)} about {count(each.tokens)}" for each in gone.largest)
    counts = ", ".join(
        plural(size, what)
        for size, what in ((gone.responses, "response"), (gone.prompts, "prompt"), (gone.results, "tool result"))
    )
    kept, words = (", by reference", "kept text") if entry.by_reference else ("", "summary")
    when = f"{moment(entry.time)}, trigger {markup(entry.trigger or 'unknown', 40)}{kept}"
    parts = [
        f'<div class="card"><h4>{number}. {before} → {after} tokens <span class="soft">({when})</span></h4>',
        f"<p>It replaced {counts}{f'; the largest: {held} tokens' if held else ''}.{cli}</p>",
    ]
    if entry.lost is None:
        parts.append(f"<p>What its {words} leaves out is not known.</p>")
    else:
        parts += [f"<p>The {markup(lost_words(entry.lost, words))}.</p>", *_lost(entry)]
    return "".join([*parts, "</div>"])


def _lost(entry: CompactionEntry) -> list[str]:
    parts = []
    for kind, heading in KINDS.items():
        found = (entry.lost or {}).get(kind)
        missing = found.get("missing") if isinstance(found, dict) else None
        if isinstance(missing, list) and missing:
            shown = "".join(f"<li>{markup(item, 300)}</li>" for item in missing[:MOST_LOST])
            more = f"<li>… and {len(missing) - MOST_LOST:,} more</li>" if len(missing) > MOST_LOST else ""
            parts.append(f"<p><strong>{heading}</strong> that it does not mention:</p><ul>{shown}{more}</ul>")
    return parts


def _marks(session: SessionReport) -> str:
    if not session.marks:
        return ""
    heads = ("What", "*Response", "Time (UTC)", "*Context", "*Adds about", "Details")
    rows = [
        (
            NAMES[mark.kind],
            f"{int(mark.x):,}",
            moment(mark.time),
            count(mark.tokens),
            count(mark.size),
            markup(mark.words, 300),
        )
        for mark in session.marks
    ]
    return f"<h3>What happened</h3>{table('Warnings, restarts, refusals and big tool results', heads, rows)}"


def _parts(session: SessionReport) -> str:
    """Return what fills the context at the end, the largest part first."""
    most = max((each["tokens"] for each in session.parts), default=1)
    rows = [
        (
            GROUPS[each["group"]],
            markup(each["path"] or ("" if each["name"] == GROUPS[each["group"]] else each["name"]), 240),
            count(each["tokens"]),
            share(each["tokens"] / max(1, session.tokens or 0)),
            f'<span class="share" style="width:{100 * each["tokens"] / most:.1f}%"></span>',
        )
        for each in sorted(session.parts, key=lambda each: -each["tokens"])[:MOST_ROWS]
    ]
    heads = ("Part", "Name", "*Tokens, about", "*Share", "")
    return (
        f"<h3>What fills the context</h3>{table('The parts of the last request', heads, rows, bar=4)}" if rows else ""
    )


def _cache(use: CacheUse) -> str:
    """Return what the prompt cache did; nothing where no request used it."""
    if not use.read and not use.causes:
        return ""
    rows = [(CAUSES[cause], *(count(round(value)) for value in each)) for cause, each in use.causes]
    heads = ("Written", "*Requests", "*Tokens", "*Cost over reading")
    sums = (
        f"Read {count(use.read)} tokens; written for 5 minutes {count(use.written_5m)}, for an hour "
        f"{count(use.written_1h)}. Of these {count(use.rewritten)} were written again. "
        "Cost is in units of one uncached input token."
    )
    causes = table("Tokens of the main agent, by cause", heads, rows) if rows else ""
    return f"<h3>Prompt cache</h3><p>{sums}</p>{causes}"


def _contributors(heading: str, caption: str, found: Sequence[Contributor]) -> str:
    if not found:
        return ""
    most = max(each.share for each in found) or 1.0
    rows = [
        (
            f'<span class="path">{markup(each.name, 240)}</span>' if each.kind == "file" else markup(each.name, 120),
            count(each.tokens),
            share(each.share),
            f'<span class="share" style="width:{100 * each.share / most:.1f}%"></span>',
            count(each.count),
            count(each.largest),
        )
        for each in found[:MOST_ROWS]
    ]
    rest = found[MOST_ROWS:]
    more = f"<p class=soft>and {len(rest):,} more, {count(sum(e.tokens for e in rest))} tokens</p>" if rest else ""
    heads = ("Name", "*Tokens, about", "*Share", "", "*Times", "*Largest")
    return f"<h3>{heading}</h3>{table(caption, heads, rows, bar=3)}{more}"


def _subagents(session: SessionReport) -> str:
    if not session.subagents:
        return ""
    by_size = sorted(session.subagents, key=lambda each: -(each.peak_tokens or 0))
    rows = [
        (
            f"<code>{markup(each.agent_id, 80)}</code>",
            count(each.responses),
            count(each.peak_tokens),
            count(each.compactions),
        )
        for each in by_size[:MOST_ROWS]
    ]
    rest = len(by_size) - MOST_ROWS
    more = f"<p class=soft>and {rest:,} more</p>" if rest > 0 else ""
    heads = ("Subagent", "*Responses", "*Peak", "*Compactions")
    return f"<h3>Subagents</h3>{table('Subagents, the largest context first', heads, rows)}{more}"


def _problems(session: SessionReport) -> str:
    if not session.problems:
        return ""
    items = "".join(
        f"<li>{markup(each.file, 200)}{'' if each.row is None else f', line {each.row:,}'}: {markup(each.problem, 200)}"
        f"{f' ({each.rows:,} rows)' if each.rows > 1 else ''}</li>"
        for each in session.problems[:MOST_ROWS]
    )
    rest = len(session.problems) - MOST_ROWS
    more = f"<li>… and {rest:,} more</li>" if rest > 0 else ""
    return f"<h3>What could not be read</h3><ul>{items}{more}</ul>"
