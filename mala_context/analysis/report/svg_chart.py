"""The line of a session as SVG: what a page shows before its script runs and on paper, and what goes into a chat.

Nothing in it depends on a script, a font or a file of elsewhere. Colours are given as a palette, so that a page can
use its own variables; kinds of marks differ in shape too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mala_context.analysis.report.downsample import thinned
from mala_context.analysis.report.html_text import apart, count, markup, percent, short, ticks
from mala_context.analysis.report.model import Mark, Points, SessionReport
from mala_context.errors import MalaContextError

WIDTH: Final = 960
HEIGHT: Final = 400
MOST_PANELS: Final = 6
"""Sessions of one picture."""
LIGHT: Final[Mapping[str, str]] = {
    "paper": "#ffffff",
    "ink": "#1c2024",
    "soft": "#5c6570",
    "grid": "#e3e6ea",
    "main": "#1f6fc4",
    "fill": "#1f6fc4",
    "agent": "#8a63c9",
    "window": "#b3261e",
    "threshold": "#a15c00",
    "warning": "#a15c00",
    "compaction": "#b3261e",
    "restart": "#147a52",
    "clear": "#147a52",
    "refusal": "#b3261e",
    "big_result": "#0b7285",
}
"""Colours by role; each stands out from the paper by at least 4.5 to 1, the grid and the fill excepted."""
NAMES: Final[Mapping[str, str]] = {
    "compaction": "compaction",
    "warning": "warning",
    "restart": "restart",
    "clear": "/clear",
    "refusal": "refused",
    "big_result": "big tool result",
}
"""Kinds of marks, with their words in the legend."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 20, 64, 70
_COLUMNS: Final = 1_200


def svg(sessions: Sequence[SessionReport], palette: Mapping[str, str] = LIGHT) -> str:
    """Return a picture with a panel for each session, at most `MOST_PANELS` of them."""
    shown = sessions[:MOST_PANELS]
    height = HEIGHT * max(1, len(shown))
    panels = [f'<g transform="translate(0 {place * HEIGHT})">{panel(s, palette)}</g>' for place, s in enumerate(shown)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, DejaVu Sans, sans-serif" role="img">'
        f"<title>{markup(title(shown[0]) if len(shown) == 1 else f'Context of {len(shown)} sessions')}</title>"
        f'<rect width="{WIDTH}" height="{height}" fill="{palette["paper"]}"/>{"".join(panels)}</svg>\n'
    )


def png(sessions: Sequence[SessionReport]) -> bytes:
    """Return the picture as PNG, twice as fine as the SVG's own measure.

    Raises `MalaContextError` where the package for it (extra `plot`) or its library is not there.
    """
    try:
        from cairosvg import svg2png  # type: ignore[import-untyped,unused-ignore]  # it has no types
    except ImportError:
        raise MalaContextError("a PNG needs a package: pip install 'mala-context[plot]', or name an .svg") from None
    except OSError:
        words = "a PNG needs the cairo library: apt install libcairo2 (brew install cairo), or name an .svg"
        raise MalaContextError(words) from None
    picture: bytes = svg2png(bytestring=svg(sessions).encode("utf-8", "backslashreplace"), scale=2)
    return picture


def title(session: SessionReport) -> str:
    """Return what the picture of a session is called."""
    name = session.session_id or session.path
    peak = "" if session.peak_tokens is None else f", peak {count(session.peak_tokens)} tokens"
    window = short(session.window) + session.unsure
    share = "" if session.peak_ratio is None else f" ({percent(session.peak_ratio)} of {window})"
    return f"Context of {name[:8] if session.session_id else name}, {session.model or 'model unknown'}{peak}{share}"


def top_of(session: SessionReport) -> tuple[float, bool]:
    """Return the upper end of the picture in tokens, and whether the window is inside of it."""
    sizes = [size for size in session.points.tokens if size is not None]
    sizes += [size for agent in session.subagents for size in agent.points.tokens if size is not None]
    peak = max(sizes, default=0) or session.window or 1
    holds_window = session.window > 0 and peak >= 0.4 * session.window
    return 1.08 * max(peak, session.window if holds_window else 0), holds_window


class _Scale:
    """From responses and tokens to places in the panel."""

    def __init__(self, session: SessionReport) -> None:
        self.top, self.holds_window = top_of(session)
        last = [points.x[-1] for points in (session.points, *(a.points for a in session.subagents)) if len(points)]
        self.last = max([2.0, *last, *(c.x for c in session.compactions if c.x is not None)])
        self.right, self.bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def x(self, value: float) -> float:
        return _LEFT + (value - 1.0) / (self.last - 1.0) * (self.right - _LEFT) if value > 1 else float(_LEFT)

    def y(self, tokens: float) -> float:
        return self.bottom - min(1.0, tokens / self.top) * (self.bottom - _TOP)


def panel(session: SessionReport, palette: Mapping[str, str]) -> str:
    """Return the drawing of one session, without the tag around it."""
    scale = _Scale(session)
    heading = f'<text x="{_LEFT}" y="24" font-size="15" font-weight="600" fill="{palette["ink"]}">'
    parts = [
        f"{heading}{markup(title(session), 110)}</text>",
        *_grid(scale, palette),
        *_limits(session, scale, palette),
        *(_line(agent.points, scale, palette["agent"], "agent", 1.2) for agent in session.subagents),
        *_main(session.points, scale, palette),
        *_compactions(session, scale, palette),
        *(_symbol(mark.kind, scale.x(mark.x), _height(mark, scale), palette) for mark in session.marks),
        *_legend(session, palette),
    ]
    return "".join(parts)


def _grid(scale: _Scale, palette: Mapping[str, str]) -> list[str]:
    parts = []
    for value in ticks(scale.top):
        y = scale.y(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{scale.right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{palette["grid"]}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" font-size="12" text-anchor="end" fill="{palette["soft"]}">'
            f"{short(value)}</text>"
        )
    for value in ticks(scale.last, 8):
        number = max(1.0, value)
        if number <= scale.last and number == int(number):
            parts.append(
                f'<text x="{scale.x(number):.1f}" y="{scale.bottom + 18}" font-size="12" text-anchor="middle" '
                f'fill="{palette["soft"]}">{int(number):,}</text>'
            )
    middle = (_LEFT + scale.right) / 2
    parts.append(
        f'<text x="{middle}" y="{scale.bottom + 36}" font-size="12" text-anchor="middle" fill="{palette["soft"]}">'
        "response of the main agent</text>"
        f'<text x="{_LEFT - 46}" y="{_TOP - 14}" font-size="12" fill="{palette["soft"]}">tokens</text>'
    )
    return parts


def limits(session: SessionReport) -> list[tuple[str, float, str]]:
    """Return the horizontal lines: role, tokens, words."""
    found = []
    _, holds = top_of(session)
    if session.window > 0 and holds:
        found.append(("window", float(session.window), f"window {session.window:,}"))
        if session.threshold is not None:
            words = "auto-compact" if session.threshold_acts else "auto-compact, where proactive"
            found.append(("threshold", float(session.threshold), f"{words} {session.threshold:,}"))
    top, _ = top_of(session)
    if session.warn_at is not None and 0 < session.warn_at * session.window <= top:
        at = session.warn_at * session.window
        found.append(("warning", at, f"warning {session.warn_at:.0%}"))
    return found


_DASHES: Final = {"threshold": "7 4", "warning": "2 4"}


def _limits(session: SessionReport, scale: _Scale, palette: Mapping[str, str]) -> list[str]:
    parts = []
    for role, tokens, words in limits(session):
        y = scale.y(tokens)
        dashes = f'stroke-dasharray="{_DASHES[role]}"' if role in _DASHES else ""
        parts.append(
            f'<line x1="{_LEFT}" x2="{scale.right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{palette[role]}" '
            f'{dashes} data-limit="{role}"/>'
            + _on_paper(f'x="{_LEFT + 6}" y="{y - 4:.1f}" font-size="11"', words, role, palette)
        )
    if not scale.holds_window and session.window > 0:
        parts.append(
            f'<text x="{scale.right}" y="{HEIGHT - 12}" font-size="11" text-anchor="end" fill="{palette["window"]}">'
            f"the window, {session.window:,}, is far above</text>"
        )
    return parts


def _on_paper(where: str, words: str, role: str, palette: Mapping[str, str]) -> str:
    """Return text with a rim in the colour of the paper, so that lines behind it do not cross it."""
    rim = f'<text {where} stroke="{palette["paper"]}" stroke-width="4" stroke-linejoin="round" aria-hidden="true">'
    return f'{rim}{words}</text><text {where} fill="{palette[role]}">{words}</text>'


def _runs(points: Points) -> list[list[tuple[float, int]]]:
    """Return the stretches of a line between its gaps."""
    runs: list[list[tuple[float, int]]] = [[]]
    for x, tokens in zip(points.x, points.tokens, strict=True):
        if tokens is None:
            runs.append([])
        else:
            runs[-1].append((x, tokens))
    return [run for run in runs if run]


def _path(run: Sequence[tuple[float, int]], scale: _Scale) -> str:
    return "M" + "L".join(f"{scale.x(x):.1f} {scale.y(tokens):.1f}" for x, tokens in run)


def _line(points: Points, scale: _Scale, colour: str, name: str, width: float) -> str:
    runs = _runs(thinned(points, _COLUMNS))
    path = "".join(_path(run, scale) + ("h.1" if len(run) == 1 else "") for run in runs)
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round" '
        f'stroke-linecap="round" data-line="{name}"/>'
        if path
        else ""
    )


def _main(points: Points, scale: _Scale, palette: Mapping[str, str]) -> list[str]:
    parts = []
    for run in _runs(thinned(points, _COLUMNS)):
        start, end = scale.x(run[0][0]), scale.x(run[-1][0])
        area = f"{_path(run, scale)}L{end:.1f} {scale.bottom}L{start:.1f} {scale.bottom}Z"
        parts.append(f'<path d="{area}" fill="{palette["fill"]}" fill-opacity="0.12"/>')
    parts.append(_line(points, scale, palette["main"], "main", 2))
    if sum(size is not None for size in points.tokens) <= 40:
        parts += [
            f'<circle cx="{scale.x(x):.1f}" cy="{scale.y(size):.1f}" r="2.5" fill="{palette["main"]}"/>'
            for x, size, exact in zip(points.x, points.tokens, points.exact, strict=True)
            if size is not None and exact
        ]
    return parts


def _compactions(session: SessionReport, scale: _Scale, palette: Mapping[str, str]) -> list[str]:
    colour, parts = palette["compaction"], []
    drawn = [each for each in session.compactions if each.x is not None]
    places = [scale.x(each.x or 0) for each in drawn]
    for number, (x, numbered) in enumerate(zip(places, apart(places, 16), strict=True), 1):
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{scale.bottom}" stroke="{colour}" '
            f'stroke-dasharray="3 3" stroke-opacity="0.7"/>{_symbol("compaction", x, _TOP - 8, palette)}'
        )
        if numbered:
            parts.append(
                f'<text x="{x:.1f}" y="{_TOP - 17}" font-size="11" text-anchor="middle" fill="{colour}">{number}</text>'
            )
    return parts


def _height(mark: Mark, scale: _Scale) -> float:
    if mark.kind in {"restart", "clear"} or mark.tokens is None:
        return float(scale.bottom - 8)
    return scale.y(mark.tokens)


_SHAPES: Final[Mapping[str, str]] = {
    "compaction": "M-6 -5H6L0 5Z",
    "warning": "M-6 5H6L0 -6Z",
    "restart": "M0 -7L6 0L0 7L-6 0Z",
    "clear": "M-5 -5H5V5H-5Z",
    "refusal": "M-6 -4L-4 -6L0 -2L4 -6L6 -4L2 0L6 4L4 6L0 2L-4 6L-6 4L-2 0Z",
    "big_result": "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
}


def _symbol(kind: str, x: float, y: float, palette: Mapping[str, str]) -> str:
    return (
        f'<path d="{_SHAPES[kind]}" transform="translate({x:.1f} {y:.1f})" fill="{palette[kind]}" '
        f'stroke="{palette["paper"]}" data-mark="{kind}"/>'
    )


def _legend(session: SessionReport, palette: Mapping[str, str]) -> list[str]:
    y, x = HEIGHT - 12.0, float(_LEFT)
    kinds = {mark.kind for mark in session.marks} | ({"compaction"} if session.compactions else set())
    entries = [("main", "main agent")] if len(session.points) else []
    lines = sum(bool(len(agent.points)) for agent in session.subagents)
    entries += [("agent", f"subagents ({lines})")] if lines else []
    entries += [(kind, words) for kind, words in NAMES.items() if kind in kinds]
    parts = []
    for kind, words in entries:
        if kind in _SHAPES:
            parts.append(_symbol(kind, x + 8, y - 4, palette).replace("data-mark", "data-key"))
        else:
            parts.append(
                f'<line x1="{x}" x2="{x + 16}" y1="{y - 4}" y2="{y - 4}" stroke="{palette[kind]}" stroke-width="2"/>'
            )
        parts.append(f'<text x="{x + 22}" y="{y}" font-size="12" fill="{palette["ink"]}">{words}</text>')
        x += 34 + 7 * len(words)
    return parts
