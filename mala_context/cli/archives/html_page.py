"""A conversation as one HTML page to read: no script, no network. Code and what tools got and gave is folded.

All text is made printable and escaped, and the page's Content-Security-Policy lets nothing run or load, since a
transcript holds whatever an agent read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mala_context._util.text import plural, size_text
from mala_context.analysis.report.html_text import count, markup, moment

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_FENCE: Final = re.compile(r"^```([^\n`]*)\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NAMES: Final = {
    "user": "Prompt",
    "assistant": "Answer",
    "summary": "Summary of a compaction",
    "note": "Note of the CLI",
    "thinking": "Thinking",
    "tool": "Tool",
    "result": "Result",
}
_FOLDED: Final = frozenset({"summary", "note", "thinking", "tool", "result"})
_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --soft: #5c6570; --panel: #f6f7f9; --line: #e3e6ea;
  --user: #1f6fc4; --compaction: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8eaed; --soft: #a3acb7; --panel: #1d2125;
  --line: #2d333a; --user: #6fb1f5; --compaction: #ff8a80; } }
body { margin: 0 auto; max-width: 860px; padding: 20px; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.4rem; } h1, p, pre { overflow-wrap: anywhere; }
article { margin: 14px 0; padding: 2px 14px; border-left: 4px solid var(--line); }
article.user { border-color: var(--user); background: var(--panel); }
article > header, summary { color: var(--soft); font-size: .85rem; }
pre { white-space: pre-wrap; font: .86em/1.45 ui-monospace, "DejaVu Sans Mono", monospace; margin: 6px 0; }
pre.text { font: inherit; }
details { margin: 6px 0; } details > pre { background: var(--panel); padding: 8px 12px; border-radius: 6px; }
summary { cursor: pointer; }
.compaction { border-top: 3px solid var(--compaction); color: var(--compaction); padding-top: 4px; margin: 26px 0; }
@media print { body { max-width: none; } details > pre { white-space: pre-wrap; } }
"""


def conversation_page(session_id: str, found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the page of a conversation, as `conversation.messages` gives it, a part at a time."""
    yield (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>Conversation {markup(session_id)}</title>\n<style>{_STYLE}</style></head><body>\n"
        f"<h1>Conversation {markup(session_id)}</h1>\n"
    )
    for said in found:
        yield _part(said)
    yield "</body></html>\n"


def _part(said: dict[str, Any]) -> str:
    kind, text = said["kind"], str(said.get("text", ""))
    if kind == "compaction":
        sizes = " → ".join(count(said[each]) for each in ("tokens_before", "tokens_after"))
        when = f", {moment(said['time'])} UTC" if said["time"] else ""
        about = f"{markup(said['trigger'] or 'trigger unknown')}, {sizes} tokens{when}"
        return f'<p class="compaction">Compaction {said["number"]} ({about})</p>\n'
    if kind == "left_out":
        return f'<p class="compaction">{size_text(said["bytes"])} of a row too long to be shown are left out</p>\n'
    if not text.strip() and "name" not in said:
        return ""
    name = _NAMES.get(kind, kind)
    heading = " ".join(
        part
        for part in (
            f"{name} {markup(said['name'], 120)}" if "name" in said else name,
            f"of subagent {markup(said['agent'], 80)}" if "agent" in said else "",
            markup(moment(said["time"])) if said.get("time") and kind in {"user", "assistant"} else "",
        )
        if part
    )
    if kind in _FOLDED:
        return f'<article class="{markup(kind)}">{_folded(heading, text)}</article>\n'
    return f'<article class="{markup(kind)}"><header>{heading}</header>{_prose(text)}</article>\n'


def _folded(heading: str, text: str) -> str:
    size = plural(text.count("\n") + 1, "line")
    return f"<details><summary>{heading}, {size}</summary><pre>{_lines(text)}</pre></details>"


def _prose(text: str) -> str:
    """Return a text with its fenced code folded."""
    parts, place = [], 0
    for found in _FENCE.finditer(text):
        parts.append(_text(text[place : found.start()]))
        language = markup(found[1].strip(), 40)
        parts.append(_folded(f"Code{f' ({language})' if language else ''}", found[2].rstrip("\n")))
        place = found.end()
    return "".join([*parts, _text(text[place:])])


def _text(text: str) -> str:
    return f'<pre class="text">{_lines(text.strip(chr(10)))}</pre>' if text.strip() else ""


def _lines(text: str) -> str:
    return "\n".join(map(markup, text.split("\n")))
