"""How many tokens the text since the last response will make of the next request."""

from __future__ import annotations

from typing import Any


class Pending:
    """What was appended since an agent's last response; its text is held until the next one."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def add(self, kind: str, content: Any) -> None:
        """Hold a part; nothing is counted yet."""
        self.parts.append((kind, content))

    def chars(self, parts: int, output: int) -> tuple[int, int]:
        """Count (response, appended) among the first so many parts, in characters."""
        del output
        response = appended = 0
        for kind, content in self.parts[:parts]:
            size = _size(content)
            if kind == "response":
                response += size
            else:
                appended += size
        return response, appended


def _size(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, dict):
        return sum(_size(value) for value in content.values())
    if isinstance(content, list | tuple):
        return sum(_size(value) for value in content)
    for name in ("text", "thinking", "input", "content"):
        value = getattr(content, name, None)
        if value is not None:
            return _size(value)
    return 0
