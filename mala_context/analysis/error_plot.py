"""The spread of errors as a picture: for each truth, how large a share of it each number misses by how much.

The picture is SVG, written here; a PNG is made of it by `cairosvg` (extra `plot`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Final

from mala_context.analysis.error_stats import errors
from mala_context.analysis.ground_truth import NAMES, TRUTHS, Findings
from mala_context.errors import MalaContextError

_WIDTH: Final = 760
_PANEL: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 140, 34, 34
_DECADES: Final = (-5, 0)
"""From 0.001 % to 100 %."""
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
_STEPS: Final = 200


def svg(findings: Findings) -> str:
    """Return the picture: one panel for each truth that there is."""
    truths = [truth for truth in TRUTHS if any(each.truth == truth for each in findings.observations)]
    height = _PANEL * max(1, len(truths))
    panels = [_panel(findings, truth, place * _PANEL) for place, truth in enumerate(truths)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{height}" fill="white"/>', *panels, "</svg>\n"])


def draw(findings: Findings, path: str) -> None:
    """Write the picture to a file, as PNG where its name says so.

    Raises `OSError` where it cannot be written, `MalaContextError` where a PNG needs a package that is not there.
    """
    picture = svg(findings)
    if not path.lower().endswith(".png"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture)
        return
    try:
        from cairosvg import svg2png  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra
    except ImportError:
        raise MalaContextError("a PNG needs a package: pip install 'mala-context[plot]', or name an .svg") from None
    svg2png(bytestring=picture.encode(), write_to=path)


def _panel(findings: Findings, truth: str, top: int) -> str:
    observations = [each for each in findings.observations if each.truth == truth]
    parts = [f'<text x="{_LEFT}" y="{top + 20}" font-size="14">{truth} (n = {len(observations):,})</text>']
    bottom = top + _PANEL - _BOTTOM
    for decade in range(_DECADES[0], _DECADES[1] + 1):
        x = _x(10.0**decade)
        parts.append(f'<line x1="{x:.1f}" y1="{top + _TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        label = f"{10.0 ** (decade + 2):g} %"
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" font-size="10" text-anchor="middle">{label}</text>')
    for place, name in enumerate(NAMES):
        sizes = sorted(map(abs, errors(observations, name)))
        if not sizes:
            continue
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _curve(sizes, top + _TOP, bottom))
        colour = _COLOURS[place]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = top + _TOP + 14 * (place + 1)
        parts.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{y}" font-size="12" fill="{colour}">{name}</text>')
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
