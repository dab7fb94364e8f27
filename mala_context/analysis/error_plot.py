"""The spread of errors as an SVG picture: for each truth, how large a share of it each number misses by how much."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Final

from mala_context.analysis.error_stats import errors
from mala_context.analysis.ground_truth import NAMES, TRUTHS, Findings
from mala_context.analysis.svg import line, png, tag, words

_WIDTH: Final = 760
_PANEL: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 140, 34, 34
_DECADES: Final = (-5, 0)
"""From 0.001 % to 100 %."""
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
_STEPS: Final = 200


def svg(findings: Findings) -> str:
    """Return the picture: one panel for each truth that was found."""
    truths = [truth for truth in TRUTHS if any(each.truth == truth for each in findings.observations)]
    height = _PANEL * max(1, len(truths))
    panels = "\n".join(_panel(findings, truth, place * _PANEL) for place, truth in enumerate(truths))
    paper = tag("rect", width=_WIDTH, height=height, fill="white")
    xmlns = "http://www.w3.org/2000/svg"
    return (
        tag("svg", f"\n{paper}\n{panels}\n", xmlns=xmlns, width=_WIDTH, height=height, font_family="sans-serif") + "\n"
    )


def draw(findings: Findings, path: str) -> bytes:
    """Return the picture for a file of this name, as PNG where that says so.

    Raises `MalaContextError` where a PNG needs a package that is not there.
    """
    picture = svg(findings)
    return png(picture) if path.lower().endswith(".png") else picture.encode()


def _panel(findings: Findings, truth: str, top: int) -> str:
    observations = [each for each in findings.observations if each.truth == truth]
    parts = [words(_LEFT, top + 20, f"{truth} (n = {len(observations):,})", 14, "black")]
    bottom = top + _PANEL - _BOTTOM
    for decade in range(_DECADES[0], _DECADES[1] + 1):
        x = _x(10.0**decade)
        parts.append(line(x, top + _TOP, x, bottom, "#ddd"))
        parts.append(words(x, bottom + 16, f"{10.0 ** (decade + 2):g} %", 10, "black", text_anchor="middle"))
    for place, name in enumerate(NAMES):
        sizes = sorted(map(abs, errors(observations, name)))
        if sizes:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _curve(sizes, top + _TOP, bottom))
            parts.append(tag("polyline", points=points, fill="none", stroke=_COLOURS[place], stroke_width=1.5))
            parts.append(words(_WIDTH - _RIGHT + 12, top + _TOP + 14 * (place + 1), name, 12, _COLOURS[place]))
    return "\n".join(parts)


def _x(error: float) -> float:
    low, high = _DECADES
    place = (log10(max(error, 10.0**low)) - low) / (high - low)
    return _LEFT + min(1.0, max(0.0, place)) * (_WIDTH - _LEFT - _RIGHT)


def _curve(sizes: Sequence[float], top: int, bottom: int) -> list[tuple[float, float]]:
    """Return points of the cumulative share, at most `_STEPS` of them."""
    last = len(sizes) - 1
    places = sorted({round(last * step / _STEPS) for step in range(_STEPS + 1)})
    return [(_x(sizes[place]), bottom - (place + 1) / len(sizes) * (bottom - top)) for place in places]
