"""The line of a session as SVG: what a page shows before its script runs and on paper, and what goes into a chat.

Nothing in it depends on a script, a font or a file from elsewhere. Colours are given as a palette, so that a page can
use its own variables; kinds of marks differ in shape too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mala_context.analysis.report.html_text import count, markup, plain, share, short
from mala_context.analysis.report.model import Mark, Points, SessionReport
from mala_context.analysis.svg import apart, line, tag, ticks, words

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
    "microcompaction": "#7a5195",
    "silent_change": "#b3261e",
}
"""Colours by role; each stands out from the paper by at least 4.5 to 1, the grid and the fill excepted."""
NAMES: Final[Mapping[str, str]] = {
    "compaction": "compaction",
    "microcompaction": "microcompaction",
    "silent_change": "not as projected",
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
    heading = title(shown[0]) if len(shown) == 1 else f"Context of {len(shown)} sessions"
    parts = [tag("title", markup(heading)), tag("rect", width=WIDTH, height=height, fill=palette["paper"])]
    parts += [tag("g", panel(s, palette), transform=f"translate(0 {place * HEIGHT})") for place, s in enumerate(shown)]
    return (
        tag(
            "svg",
            "".join(parts),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {height}",
            width=WIDTH,
            height=height,
            font_family="system-ui, DejaVu Sans, sans-serif",
            role="img",
        )
        + "\n"
    )


def title(session: SessionReport) -> str:
    """Return the heading of a session's picture."""
    name = session.session_id or session.path
    peak = "" if session.peak_tokens is None else f", peak {count(session.peak_tokens)} tokens"
    window = short(session.window) + session.unsure
    peak_share = "" if session.peak_ratio is None else f" ({share(session.peak_ratio)} of {window})"
    return (
        f"Context of {name[:8] if session.session_id else name}, {session.model or 'model unknown'}{peak}{peak_share}"
    )


def top_of(session: SessionReport) -> tuple[float, bool]:
    """Return the upper end of the picture in tokens, and whether the window is inside of it."""
    sizes = [size for size in session.points.tokens if size is not None]
    sizes += [size for agent in session.subagents for size in agent.points.tokens if size is not None]
    peak = max(sizes, default=0) or session.window or 1
    holds_window = session.window > 0 and peak >= 0.4 * session.window
    return 1.08 * max(peak, session.window if holds_window else 0), holds_window


class _Scale:
    """From responses and tokens to places in the panel."""

    def __init__(self, session: SessionReport, palette: Mapping[str, str]) -> None:
        self.palette = palette
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
    scale = _Scale(session, palette)
    parts = [
        words(_LEFT, 24, plain(title(session), 110), 15, palette["ink"], font_weight=600),
        *_grid(scale),
        *_limits(session, scale),
        *(_line(agent.points, scale, "agent", 1.2) for agent in session.subagents),
        *_main(session.points, scale),
        *_compactions(session, scale),
        *(_symbol(mark.kind, scale.x(mark.x), _height(mark, scale), palette) for mark in session.marks),
        *_legend(session, palette),
    ]
    return "".join(parts)


def _grid(scale: _Scale) -> list[str]:
    soft, parts = scale.palette["soft"], []
    for value in ticks(scale.top):
        y = scale.y(value)
        parts.append(line(_LEFT, y, scale.right, y, scale.palette["grid"]))
        parts.append(words(_LEFT - 8, y + 4, short(value), 12, soft, text_anchor="end"))
    for value in ticks(scale.last, 8, least_step=1.0):
        number = max(1.0, value)
        parts.append(words(scale.x(number), scale.bottom + 18, f"{number:,.0f}", 12, soft, text_anchor="middle"))
    middle = (_LEFT + scale.right) / 2
    parts.append(words(middle, scale.bottom + 36, "response of the main agent", 12, soft, text_anchor="middle"))
    parts.append(words(_LEFT - 46, _TOP - 14, "tokens", 12, soft))
    return parts


def limits(session: SessionReport) -> list[tuple[str, float, str]]:
    """Return the horizontal lines: role, tokens, words."""
    found = []
    top, holds = top_of(session)
    if session.window > 0 and holds:
        found.append(("window", float(session.window), f"window {session.window:,}"))
        if session.threshold is not None:
            text = "auto-compact" if session.threshold_acts else "auto-compact, where proactive"
            found.append(("threshold", float(session.threshold), f"{text} {session.threshold:,}"))
    if session.warn_at is not None and 0 < session.warn_at * session.window <= top:
        found.append(("warning", session.warn_at * session.window, f"warning {session.warn_at:.0%}"))
    return found


_DASHES: Final = {"threshold": "7 4", "warning": "2 4"}


def _limits(session: SessionReport, scale: _Scale) -> list[str]:
    palette, parts = scale.palette, []
    for role, tokens, text in limits(session):
        y, colour = scale.y(tokens), palette[role]
        parts.append(line(_LEFT, y, scale.right, y, colour, stroke_dasharray=_DASHES.get(role), data_limit=role))
        # A rim in the colour of the paper keeps the session's line from crossing the words.
        rim = {"stroke": palette["paper"], "stroke_width": 4, "stroke_linejoin": "round", "aria_hidden": "true"}
        parts.append(words(_LEFT + 6, y - 4, text, 11, palette["paper"], **rim))
        parts.append(words(_LEFT + 6, y - 4, text, 11, colour))
    if not scale.holds_window and session.window > 0:
        text = f"the window, {session.window:,}, is far above"
        parts.append(words(scale.right, HEIGHT - 12, text, 11, palette["window"], text_anchor="end"))
    return parts


def _runs(points: Points) -> list[list[tuple[float, int]]]:
    """Return the parts of a line between its gaps."""
    runs: list[list[tuple[float, int]]] = [[]]
    for x, tokens in zip(points.x, points.tokens, strict=True):
        if tokens is None:
            runs.append([])
        else:
            runs[-1].append((x, tokens))
    return [run for run in runs if run]


def _path(run: Sequence[tuple[float, int]], scale: _Scale) -> str:
    return "M" + "L".join(f"{scale.x(x):.1f} {scale.y(tokens):.1f}" for x, tokens in run)


def _line(points: Points, scale: _Scale, role: str, width: float) -> str:
    runs = _runs(points.downsampled(_COLUMNS))
    path = "".join(_path(run, scale) + ("h.1" if len(run) == 1 else "") for run in runs)
    look = {"fill": "none", "stroke": scale.palette[role], "stroke_width": width}
    return tag("path", d=path, **look, stroke_linejoin="round", stroke_linecap="round", data_line=role) if path else ""


def _main(points: Points, scale: _Scale) -> list[str]:
    parts = []
    for run in _runs(points.downsampled(_COLUMNS)):
        start, end = scale.x(run[0][0]), scale.x(run[-1][0])
        area = f"{_path(run, scale)}L{end:.1f} {scale.bottom}L{start:.1f} {scale.bottom}Z"
        parts.append(tag("path", d=area, fill=scale.palette["fill"], fill_opacity="0.12"))
    parts.append(_line(points, scale, "main", 2))
    if sum(size is not None for size in points.tokens) <= 40:
        parts += [
            tag("circle", cx=scale.x(x), cy=scale.y(size), r=2.5, fill=scale.palette["main"])
            for x, size, exact in zip(points.x, points.tokens, points.exact, strict=True)
            if size is not None and exact
        ]
    return parts


def _compactions(session: SessionReport, scale: _Scale) -> list[str]:
    colour, parts = scale.palette["compaction"], []
    places = [scale.x(each.x) for each in session.compactions if each.x is not None]
    for number, (x, numbered) in enumerate(zip(places, apart(places, 16), strict=True), 1):
        parts.append(line(x, _TOP - 4, x, scale.bottom, colour, stroke_dasharray="3 3", stroke_opacity="0.7"))
        parts.append(_symbol("compaction", x, _TOP - 8, scale.palette))
        if numbered:
            parts.append(words(x, _TOP - 17, number, 11, colour, text_anchor="middle"))
    return parts


def _height(mark: Mark, scale: _Scale) -> float:
    if mark.kind in {"restart", "clear"} or mark.tokens is None:
        return float(scale.bottom - 8)
    return scale.y(mark.tokens)


_SHAPES: Final[Mapping[str, str]] = {
    "compaction": "M-6 -5H6L0 5Z",
    "microcompaction": "M-6 -4H6V-1H-6ZM-6 1H6V4H-6Z",
    "silent_change": "M-2 -7H2V2H-2ZM-2 4H2V7H-2Z",
    "warning": "M-6 5H6L0 -6Z",
    "restart": "M0 -7L6 0L0 7L-6 0Z",
    "clear": "M-5 -5H5V5H-5Z",
    "refusal": "M-6 -4L-4 -6L0 -2L4 -6L6 -4L2 0L6 4L4 6L0 2L-4 6L-6 4L-2 0Z",
    "big_result": "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
}


def _symbol(kind: str, x: float, y: float, palette: Mapping[str, str], **data: str) -> str:
    place = f"translate({x:.1f} {y:.1f})"
    data = data or {"data_mark": kind}
    return tag("path", d=_SHAPES[kind], transform=place, fill=palette[kind], stroke=palette["paper"], **data)


def _legend(session: SessionReport, palette: Mapping[str, str]) -> list[str]:
    y, x = HEIGHT - 12.0, float(_LEFT)
    kinds = {mark.kind for mark in session.marks} | ({"compaction"} if session.compactions else set())
    entries = [("main", "main agent")] if len(session.points) else []
    lines = sum(bool(len(agent.points)) for agent in session.subagents)
    entries += [("agent", f"subagents ({lines})")] if lines else []
    entries += [(kind, text) for kind, text in NAMES.items() if kind in kinds]
    parts = []
    for kind, text in entries:
        if kind in _SHAPES:
            parts.append(_symbol(kind, x + 8, y - 4, palette, data_key=kind))
        else:
            parts.append(line(x, y - 4, x + 16, y - 4, palette[kind], stroke_width=2))
        parts.append(words(x + 22, y, text, 12, palette["ink"]))
        x += 34 + 7 * len(text)
    return parts
