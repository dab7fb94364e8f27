"""The full text of one compaction: everything that its part only points at, in one file, in order.

A pointer is a range of lines, counted from 1 as Read counts them. A body is written byte for byte: nothing is escaped,
wrapped or indented. A line ends at a newline and nowhere else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LONG = 200
"""Characters from which a text of a tool's input gets lines of its own."""


class FullText:
    """Collects entries; `add` returns where each one stands."""

    def __init__(self) -> None:
        self._entries: list[str] = []
        self.lines = 0

    def add(self, title: str, body: str) -> str:
        """Add an entry and return its pointer, e.g. `[12-80]`. The body is on the lines after the title's."""
        first = self.lines + 1
        self._entries.append(f"==== {title}\n{body}\n")
        self.lines += 2 + body.count("\n")
        return f"[{first}-{self.lines}]"

    def data(self) -> bytes:
        """Return the file's content."""
        return "".join(self._entries).encode("utf-8", "surrogatepass")


def call_body(given: Mapping[str, Any], text: str | None, *, failed: bool) -> str:
    """Return a tool call for the file: its input, long texts of it raw, and its result as the model had it."""
    from json import dumps

    lines = []
    for name, value in given.items():
        raw = isinstance(value, str) and (len(value) > _LONG or "\n" in value)
        lines.append(f"{name}:\n{value}" if raw else f"{name}: {dumps(value, ensure_ascii=False)}")
    if text is None:
        return "\n".join([*lines, "---- no result yet"])
    return "\n".join([*lines, "---- failed:" if failed else "---- result:", text])
