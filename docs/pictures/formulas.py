"""Draw what the five formulas said of one recorded session: `python docs/pictures/formulas.py`.

The picture is `formulas.svg` beside this file; the test suite checks that it is the current one.
"""

from __future__ import annotations

import pathlib

from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.estimators import ESTIMATORS
from mala_context.tracking.events import Compaction, Event, Response

HERE = pathlib.Path(__file__).parent
RECORDING = HERE.parent.parent / "tests/data/recorded/a97b914a-613e-441f-a83c-9345e5e55881.jsonl.gz"
PICTURE = HERE / "formulas.svg"

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 420, 70, 250, 30, 50
HIGHEST, WINDOW = 220_000, 200_000
BETWEEN = 34
"""Least distance of two labels."""
LINES = {
    "max_cache_read": ("#e69f00", "9 4", "stays high after the compaction"),
    "occupancy": ("#0072b2", "", "counted by the API"),
    "total_tokens": ("#56b4e9", "3 3", "occupancy and the answer"),
    "characters": ("#777777", "1 3", "no system prompt, no tools"),
    "cumulative": ("#cc79a7", "12 3 2 3", "misses what comes from the cache"),
}
"""Formula → colour, dashes, and a note."""


class Sampler(RecordingReader):
    """Records the value of each formula after each of the main agent's responses, and where it compacted."""

    said: dict[str, dict[str, int | None]]
    compactions: list[int]

    def after(self, event: Event, state: AgentState | None) -> None:
        """Ask all formulas."""
        if state is not self.tracker.main:
            return
        if isinstance(event, Compaction):
            self.compactions.append(len(self.said))
        elif isinstance(event, Response) and event.message_id:
            estimates = self.tracker.estimates_of(state)
            self.said[event.message_id] = {name: estimates[name].tokens for name in ESTIMATORS}


def sample(path: pathlib.Path = RECORDING) -> tuple[list[dict[str, int | None]], list[int]]:
    """Return what each formula said after each response, and before which responses the session was compacted."""
    (recording,) = find([str(path)])
    sampler = Sampler(recording)
    sampler.said, sampler.compactions = {}, []
    sampler.run()
    return list(sampler.said.values()), sampler.compactions


def apart(places: dict[str, float], lowest: float) -> dict[str, float]:
    """Return places of labels that do not touch, as near to their own as they can be."""
    moved, limit = {}, lowest
    for name in sorted(places, key=places.__getitem__, reverse=True):
        moved[name] = min(places[name], limit)
        limit = moved[name] - BETWEEN
    return moved


def picture(said: list[dict[str, int | None]], compactions: list[int]) -> str:
    """Return the picture as SVG."""

    def x(place: float) -> float:
        return LEFT + place * (WIDTH - LEFT - RIGHT) / max(1, len(said) - 1)

    def y(tokens: float) -> float:
        return HEIGHT - BOTTOM - min(tokens, HIGHEST) * (HEIGHT - TOP - BOTTOM) / HIGHEST

    right = WIDTH - RIGHT
    parts = []
    for tokens in range(0, HIGHEST + 1, 50_000):
        parts.append(f'<line x1="{LEFT}" y1="{y(tokens):.1f}" x2="{right}" y2="{y(tokens):.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tokens) + 4:.1f}" text-anchor="end">{tokens:,}</text>')
    parts.append(f'<line x1="{LEFT}" y1="{y(WINDOW):.1f}" x2="{right}" y2="{y(WINDOW):.1f}" stroke="#c00"/>')
    parts.append(f'<text x="{LEFT + 6}" y="{y(WINDOW) - 5:.1f}" fill="#c00">the window</text>')
    for place in compactions:
        at = x(place - 0.5)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#999"/>')
        parts.append(f'<text x="{at - 4:.1f}" y="{TOP - 8}" text-anchor="middle" fill="#555">compaction</text>')
    ends = {name: y(said[-1][name] or 0) for name in LINES}
    labels = apart(ends, HEIGHT - BOTTOM)
    for name, (colour, dashes, words) in LINES.items():
        known = [(place, value) for place, each in enumerate(said) if (value := each[name]) is not None]
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in known)
        style = f'stroke="{colour}" stroke-dasharray="{dashes}"' if dashes else f'stroke="{colour}"'
        parts.append(f'<polyline points="{points}" fill="none" {style} stroke-width="2.5"/>')
        end = labels[name]
        parts.append(f'<text x="{right + 8}" y="{end:.1f}" fill="{colour}" font-weight="bold">{name}</text>')
        parts.append(f'<text x="{right + 8}" y="{end + 14:.1f}" font-size="11" fill="#333">{words}</text>')
    middle = (LEFT + right) // 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">responses of the main agent</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12" role="img">\n<title>Five formulas over one session, in '
        f'tokens</title>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(*sample()), encoding="utf-8")


if __name__ == "__main__":
    main()
