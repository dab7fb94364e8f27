"""Draw what `mala-context watch` shows: some sessions in 80 and 120 columns, and 250 in 45 to 200 columns, 24 lines.

Run `python docs/pictures/watch.py [directory]`. The same rows give the same bytes each time.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from mala_context.analysis.watch.archived import LastArchive
from mala_context.analysis.watch.state import TranscriptState
from mala_context.analysis.watch.view import WatchRow, joined, ordered, row_of
from mala_context.cli.watch_screen import WatchScreen
from mala_context.cli.watch_table import Look

NOW = 1_800_000_000.0
SESSIONS: tuple[dict[str, Any], ...] = (
    {"id": "4d113b94", "cwd": "/home/dev/web-shop", "sizes": range(31_000, 96_000, 9_000), "seen": 4},
    {"id": "a97b914a", "cwd": "/home/dev/parser", "sizes": range(120_000, 161_000, 6_500), "compacted": 2, "seen": 9},
    {"id": "967d5907", "cwd": "/home/dev/atlas", "sizes": range(90_000, 520_000, 31_000), "model": "claude-opus-5"},
    {
        "id": "c0ffee11",
        "cwd": "/home/dev/atlas",
        "sizes": (18_300, 36_837),
        "model": "claude-haiku-4-5",
        "agent": "a5c0",
    },
    {"id": "7e57ab1e", "cwd": "/home/dev/notes", "sizes": (24_000,), "compacted": 1, "seen": 5_400},
)
"""Recorded shapes: an id, where it works, the size at the end of each turn, compactions, seconds since the last row."""


def rows_of(session: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a transcript."""
    common = {"sessionId": session["id"], "cwd": session["cwd"], "gitBranch": "main"}
    if "agent" in session:
        common |= {"agentId": session["agent"], "isSidechain": True, "sessionId": "967d5907"}
    for number in range(session.get("compacted", 0)):
        meta = {"trigger": "auto", "preTokens": 166_800, "postTokens": 4_000}
        yield common | {"type": "system", "subtype": "compact_boundary", "uuid": f"c{number}", "compactMetadata": meta}
        yield common | {
            "type": "user",
            "isCompactSummary": True,
            "uuid": f"s{number}",
            "message": {"content": "so far"},
        }
    for number, size in enumerate(session["sizes"]):
        yield common | {"type": "user", "uuid": f"p{number}", "message": {"content": session.get("prompt", "go on")}}
        usage = {"input_tokens": size, "output_tokens": 400}
        message = {"id": f"m{number}", "model": session.get("model", "claude-sonnet-4-5"), "usage": usage}
        yield common | {"type": "assistant", "uuid": f"r{number}", "message": message | {"content": []}}


def sessions() -> list[WatchRow]:
    """Return the rows of the table."""
    mains: list[WatchRow] = []
    agents: list[WatchRow] = []
    for session in SESSIONS:
        state = TranscriptState(None, session.get("agent"))
        state.take(rows_of(session))
        (agents if "agent" in session else mains).append(row_of(state, session["id"], NOW - session.get("seen", 2)))
    for place, minutes in ((1, 14), (3, 95)):
        mains[place] = replace(mains[place], archived=LastArchive(NOW - 60 * minutes, "auto", "compacted"))
    return ordered(joined(mains, agents))


def crowd(count: int = 250) -> list[WatchRow]:
    """Return many rows: the sessions above again and again, each with an id and sizes of its own."""
    rows = sessions()
    found = []
    for number in range(count):
        row = rows[number % len(rows)]
        tokens = 15_000 + number * 7_919 % 140_000
        found.append(
            replace(
                row,
                session_id=f"{number * 2_654_435_761 % (1 << 32):08x}",
                path=str(number),
                cwd=f"/home/dev/{PROJECTS[number // 5 % len(PROJECTS)]}",
                tokens=tokens,
                ratio=tokens / row.window,
                last=NOW - number * 97 % 80_000,
                first_prompt=PROMPTS[number % len(PROMPTS)],
                subagents=(),
            )
        )
    return found


PROJECTS = ("web-shop", "parser", "atlas", "notes", "billing")
PROMPTS = ("Fix the rounding of prices in the cart", "Why is the parser slow on long lines?", "Write the release notes")


def draw(rows: list[WatchRow], width: int, height: int) -> str:
    """Return the screen as SVG."""
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in WatchScreen(lambda *_: []).frame(rows, Look(width, NOW), height):
        console.print(line, soft_wrap=True)
    drawn = console.export_svg(title="mala-context watch", unique_id="watch")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # fonts from the network


def main(directory: Path) -> None:
    """Write the pictures."""
    few = (("watch.svg", sessions(), 80), ("watch-wide.svg", sessions(), 120))
    for name, rows, width in (*few, *((f"watch-250-{width}.svg", crowd(), width) for width in (45, 80, 120, 200))):
        (directory / name).write_text(draw(rows, width, 24) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
