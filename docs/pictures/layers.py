"""Draw the layers of the package from the import contracts in `pyproject.toml`: `python docs/pictures/layers.py`.

The picture is `layers.svg` beside this file; the test suite checks that it is the current one.
"""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any

HERE = pathlib.Path(__file__).parent
PYPROJECT = HERE.parent.parent / "pyproject.toml"
PICTURE = HERE / "layers.svg"

WIDTH, LEFT, ROW, GAP, PAD = 1000, 96, 30, 6, 10
CHAR = 7.2
"""Width of a character of the names, in the picture's units."""
KINDS = {
    "shell": ("#d7e8f7", "shells: they touch the SDK, files, the clock, the terminal"),
    "core": ("#fdebc8", "the pure core: the same code live and in replay"),
    "archive": ("#dcefdc", "the archive: the standard library alone"),
}
"""Kind of a module → its colour and its words in the legend."""


def contracts(path: pathlib.Path = PYPROJECT) -> dict[str, Any]:
    """Return the import contracts by their id."""
    with path.open("rb") as file:
        found = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return {each["id"]: each for each in found}


def layers(found: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """Return the layers from the top, each a list of modules and their kinds."""
    pure = {name.removeprefix("mala_context.") for name in found["pure"]["source_modules"]}

    def kind(name: str) -> str:
        return "core" if name in pure else "archive" if name == "archive" else "shell"

    rows = [[name.strip(" ()") for name in line.split("|")] for line in found["layers"]["layers"]]
    return [[(name, kind(name)) for name in sorted(names)] for names in rows]


def boxes(names: list[tuple[str, str]], top: int) -> tuple[list[str], int]:
    """Return a layer's boxes, broken into lines where they are wider than the picture, and where the next may start."""
    parts, x, y = [], float(LEFT), top
    for name, kind in names:
        width = CHAR * len(name) + 2 * PAD
        if x + width > WIDTH - PAD and x > LEFT:
            x, y = float(LEFT), y + ROW + GAP
        colour = KINDS[kind][0]
        parts.append(
            f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{ROW}" rx="5" fill="{colour}" stroke="#888"/>'
        )
        parts.append(f'<text x="{x + width / 2:.0f}" y="{y + 20}" text-anchor="middle">{name}</text>')
        x += width + GAP
    return parts, y + ROW + GAP


def picture(found: list[list[tuple[str, str]]]) -> str:
    """Return the picture as SVG."""
    parts: list[str] = []
    y = 20
    for number, names in enumerate(found):
        drawn, after = boxes(names, y)
        if number % 2 == 0:
            parts.append(f'<rect x="{PAD}" y="{y - 3}" width="{WIDTH - 2 * PAD}" height="{after - y}" fill="#f4f4f4"/>')
        parts += drawn
        y = after
    arrow = f"M 50 24 V {y - 22}"
    parts.append(f'<path d="{arrow}" stroke="#666" stroke-width="2" marker-end="url(#head)"/>')
    middle = y // 2
    words = "may import what stands below, never above or beside"
    parts.append(f'<text x="40" y="{middle}" text-anchor="middle" transform="rotate(-90 40 {middle})">{words}</text>')
    y += 8
    for colour, legend in KINDS.values():
        parts.append(f'<rect x="{LEFT}" y="{y}" width="18" height="18" rx="3" fill="{colour}" stroke="#888"/>')
        parts.append(f'<text x="{LEFT + 26}" y="{y + 14}">{legend}</text>')
        y += 26
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 6}" width="{WIDTH}" height="{y + 6}" '
        'font-family="sans-serif" font-size="13" role="img">\n<title>The layers of mala-context, from the import '
        "contracts</title>\n"
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 Z" fill="#666"/></marker></defs>\n'
    )
    return head + f'<rect width="{WIDTH}" height="{y + 6}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(layers(contracts())), encoding="utf-8")


if __name__ == "__main__":
    main()
