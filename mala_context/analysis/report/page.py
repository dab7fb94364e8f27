"""The page: one HTML file that needs no other file and no network, and can be kept, mailed and printed.

Its Content-Security-Policy lets no request out and lets two scripts run, named by their hashes: its own and the chart
library's. So text from a recording could not run even if it were not escaped, and it is escaped everywhere. Before the
library is unpacked, and on paper, each chart is an SVG; a chart is drawn when its section is about to be seen.

The chart library is plotly.js, as the Python package `plotly` ships it. Its charts are SVG with text in them (legible
when printed, and to a screen reader), the package needs little else, and a company and a large community maintain it.
Packed it makes a page of about 1.9 MB; bokeh's script is a quarter of that, but draws on a canvas and brings numpy and
Pillow.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any, Final

from mala_context._util.text import plural
from mala_context.analysis.report import sections
from mala_context.analysis.report.html_text import markup, plain
from mala_context.analysis.report.model import ContextReport, SessionReport
from mala_context.analysis.report.svg_chart import NAMES, limits, title, top_of
from mala_context.errors import MalaContextError

MOST_OPEN: Final = 60
"""Sessions of one page that stand in it as they are. Of more, each is packed, and unpacked when a reader opens it, so
that a page of 2,000 sessions opens at once."""


def page(report: ContextReport) -> Iterator[str]:
    """Yield the page's text, a part at a time.

    Raises `MalaContextError`, before the first part, where the chart library (extra `report`) is not installed.
    """
    charts, own, style = library_source(), _file("page.js"), _file("page.css")
    rules = (
        "default-src 'none'",
        f"script-src '{fingerprint(own)}' '{fingerprint(charts)}'",
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
    is_packed = len(report.sessions) > MOST_OPEN
    for place, session in enumerate(report.sessions):
        yield _packed_section(session, place) if is_packed else sections.section(session, place)
    if is_packed:
        yield '<div id="opened"></div><noscript><p class="note">Single sessions need JavaScript here.</p></noscript>'
    yield (
        "</main>\n<footer>Tokens of requests are what the API counted. What is “about” is told from characters, and "
        "from what this session showed of them. Made by mala-context.</footer>\n"
    )
    yield '<script type="application/json" id="data">'
    yield _json([] if is_packed else report.sessions)
    yield '</script>\n<script type="text/plain" id="library">'
    yield packed(charts)
    yield f"</script>\n<script>{own}</script>\n</body></html>\n"


def _packed_section(session: SessionReport, place: int) -> str:
    """Return a session's section and data compressed, for the page's script to unpack when it is opened."""
    text = json.dumps({"html": sections.section(session, place), "session": _charted(session)}, separators=(",", ":"))
    return f'<script type="text/plain" id="p{place}">{packed(text, level=6)}</script>\n'


def _json(shown: Iterable[SessionReport]) -> str:
    """Return the charts' data, in ASCII, and with nothing in it that ends a script."""
    found = {"words": NAMES, "sessions": [_charted(each) for each in shown]}
    text = json.dumps(_harmless(found), separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _charted(session: SessionReport) -> dict[str, Any]:
    """Return what the chart of a session shows, with harmless texts."""
    found = session.as_dict() | {"limits": limits(session), "top": round(top_of(session)[0])}
    shown: dict[str, Any] = _harmless({name: found[name] for name in _CHARTED})
    return shown


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


# -- the chart library ----------------------------------------------------------------------------------------------


def library_source() -> str:
    """Return the library's script. Raises `MalaContextError` where the extra `report` is not installed."""
    try:
        script = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    except (ImportError, OSError):
        words = "a page needs the package plotly: pip install 'mala-context[report]', or name an .svg"
        raise MalaContextError(words) from None
    return script


def packed(text: str, level: int = 9) -> str:
    """Return a text compressed and in ASCII; the same text always gives the same result."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), level, mtime=0)).decode("ascii")


def fingerprint(script: str) -> str:
    """Return what a Content-Security-Policy calls a script by, so that this one may run and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
