"""SVG as text: elements, round ticks for an axis, and a PNG of a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from mala_context._util.text import printable
from mala_context.errors import MalaContextError

_STEPS: Final = (1, 2, 2.5, 5, 10)


def tag(name: str, content: str | None = None, /, **attributes: object) -> str:
    """Return an element; `content` is markup. Underscores in names become hyphens, `None` leaves an attribute out."""
    found = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{found}/>" if content is None else f"<{name}{found}>{content}</{name}>"


def words(x: float, y: float, text: object, size: int, fill: str, /, **attributes: object) -> str:
    """Return a line of text, escaped and printable."""
    return tag("text", html.escape(printable(str(text))), x=x, y=y, font_size=size, fill=fill, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, /, **attributes: object) -> str:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else html.escape(printable(str(value)))


def png(picture: str, scale: float = 1) -> bytes:
    """Return a picture as PNG, `scale` times as fine as the SVG's own measure.

    Raises `MalaContextError` where the package for it (extra `plot`) or its library is not there.
    """
    try:
        from cairosvg import svg2png  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra
    except ImportError:
        raise MalaContextError("a PNG needs a package: pip install 'mala-context[plot]', or name an .svg") from None
    except OSError:
        text = "a PNG needs the cairo library: apt install libcairo2 (brew install cairo), or name an .svg"
        raise MalaContextError(text) from None
    made: bytes = svg2png(bytestring=picture.encode("utf-8", "backslashreplace"), scale=scale)
    return made


def ticks(top: float, most: int = 6, least_step: float = 0.0) -> list[float]:
    """Return round numbers from 0 up to `top`, at most about `most` of them and at least `least_step` apart."""
    if top <= 0:
        return [0.0]
    rough = max(top / most, least_step)
    scale = 1.0
    while scale * 10 <= rough:
        scale *= 10
    while scale > rough:
        scale /= 10
    step = next(each * scale for each in _STEPS if each * scale >= rough and (not least_step or each * scale % 1 == 0))
    return [min(step * number, top) for number in range(int(top / step) + 1)]  # the last product may be rounded up


def apart(places: Sequence[float], gap: float) -> list[bool]:
    """Tell of each place, in order, whether it is at least `gap` after the last one of which that is true."""
    last, found = float("-inf"), []
    for place in places:
        found.append(place - last >= gap)
        if found[-1]:
            last = place
    return found
