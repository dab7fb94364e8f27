"""The page: one HTML file that needs nothing else, asks nobody, and can be kept, mailed and printed.

Its Content-Security-Policy lets no request out and lets two scripts run, named by their hashes: its own and the chart
library's. So text from a recording could not run even if it were not escaped, and it is escaped everywhere. Before the
library is unpacked, and on paper, each chart is an SVG; a chart is drawn when its section is about to be seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from mala_context._util.formatting import plural
from mala_context.analysis.report import plotly_assets, sections
from mala_context.analysis.report.html_text import markup, plain
from mala_context.analysis.report.model import Report
from mala_context.analysis.report.svg_chart import NAMES, limits, title, top_of


def page(report: Report) -> Iterator[str]:
    """Yield the page's text, a part at a time.

    Raises `MalaContextError`, before the first part, where the chart library (extra `report`) is not installed.
    """
    charts, own, style = plotly_assets.source(), _file("page.js"), _file("page.css")
    rules = (
        "default-src 'none'",
        f"script-src '{plotly_assets.fingerprint(own)}' '{plotly_assets.fingerprint(charts)}'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    one = report.sessions[0] if len(report.sessions) == 1 else None
    heading = title(one) if one is not None else f"Context of {plural(len(report.sessions), 'session')}"
    yield (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">\n'
        f"<title>{markup(heading)}</title>\n<style>{style}</style></head><body>\n"
        '<a class="skip" href="#main">To the sessions</a>\n'
        f'<header class="top"><h1>{"Context report" if one is not None else markup(heading)}</h1>'
        '<button type="button" id="theme" class="theme" hidden>Dark colours</button></header>\n<main id="main">\n'
    )
    yield from (f'<p class="note">{markup(note)}</p>' for note in report.notes)
    if not report.sessions:
        yield "<p>There is no session in what was given.</p>"
    if len(report.sessions) > 1:
        yield sections.index(report)
    for place, session in enumerate(report.sessions):
        yield sections.section(session, place)
    yield (
        "</main>\n<footer>Tokens of requests are what the API counted. What is “about” is told from characters, and "
        "from what this session showed of them. Made by mala-context.</footer>\n"
    )
    yield '<script type="application/json" id="data">'
    yield _json(report)
    yield '</script>\n<script type="text/plain" id="library">'
    yield plotly_assets.packed(charts)
    yield f"</script>\n<script>{own}</script>\n</body></html>\n"


def _json(report: Report) -> str:
    """Return the data behind the charts, in ASCII, and with nothing in it that ends a script."""
    shown = []
    for session in report.sessions:
        found = session.as_dict()
        found["limits"] = limits(session)
        found["top"] = round(top_of(session)[0])
        shown.append({name: found[name] for name in _CHARTED})
    text = json.dumps(_harmless({"words": NAMES, "sessions": shown}), separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


_CHARTED = ("window", "top", "limits", "points", "compactions", "marks", "subagents")


def _harmless(value: Any) -> Any:
    """Return the value with its texts harmless, and without what no chart shows."""
    if isinstance(value, str):
        return plain(value, 300)
    if isinstance(value, dict):
        return {plain(key): _harmless(each) for key, each in value.items() if key not in {"lost", "discarded"}}
    if isinstance(value, list | tuple):
        return [_harmless(each) for each in value]
    return value


def _file(name: str) -> str:
    return files("mala_context.analysis.report").joinpath(name).read_text(encoding="utf-8")
