"""Rows of one session as rows of another: with its id, and a word on which row each of them was.

A row that is too long to be decoded takes its bytes in memory and no more: the strings among its own fields are found
by their places and replaced there, and a field that it does not have is added at its end.
"""

from __future__ import annotations

import json
import re

from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.long_rows import text_of
from mala_context.transcripts.rows import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mala_context.transcripts.rows import LongRow

# Possessive (`++`), since a row may hold millions of strings or none that ends: a plain `+` would go back over each of
# them. A quote without an end matches nothing, so what follows it counts as brackets; such a row is no object.
_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)"([ \t\r\n]*+:)?+|[{}\[\]]', re.DOTALL)


class Renaming:
    """Makes rows of one session those of another."""

    def __init__(self, old_id: str, new_id: str, now: str) -> None:
        self._old, self._new, self._now = old_id, new_id, now

    def rows(self, line: Row | LongRow, newest: str | None = None) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the rows that stand on a line, newlines included; none where there is no object on it.

        That with the id `newest` is stamped as of now. A long row must be an object; that is not looked at.
        """
        if isinstance(line, Row):
            for value in objects(line.data):
                is_newest = newest is not None and value.get("uuid") == newest
                value.update(self._strings(is_newest=is_newest) | self._from(value.get("uuid")))
                yield json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
            return
        yield from self._long_row(b"".join(line.parts()), is_newest=newest is not None)
        yield b"\n"

    def _long_row(self, row: bytes, *, is_newest: bool) -> Iterator[bytes | memoryview]:
        places, depth = _own_strings(row)
        added: dict[str, object] = {**self._strings(is_newest=is_newest)}
        view, at = memoryview(row), 0
        for name, (start, end) in places.items():
            if name in added:
                yield view[at:start]
                yield json.dumps(added.pop(name)).encode()
                at = end
        uuid = places.get("uuid")
        added |= self._from(None if uuid is None else text_of(row[uuid[0] + 1 : uuid[1] - 1]))
        body = len(row.rstrip())
        if added and depth == 0 and row[body - 1 : body] == b"}":
            yield view[at : body - 1]
            yield b"," + json.dumps(added, separators=(",", ":"))[1:].encode()
        else:
            yield view[at:]

    def _strings(self, *, is_newest: bool) -> dict[str, str]:
        return {"sessionId": self._new, "timestamp": self._now} if is_newest else {"sessionId": self._new}

    def _from(self, uuid: object) -> dict[str, object]:
        if not isinstance(uuid, str):
            return {}
        return {"forkedFrom": {"sessionId": self._old, "messageUuid": uuid}}


def _own_strings(row: bytes) -> tuple[dict[str, tuple[int, int]], int]:
    """Return where the strings among a row's own fields stand, quotes included, and how many brackets stay open.

    A field that stands there twice has the place of the last one, which is the one that counts.
    """
    found: dict[str, tuple[int, int]] = {}
    key, depth = b"", 0
    for token in _TOKEN.finditer(row):
        if token[1] is None:
            depth += 1 if token[0] in b"{[" else -1
        elif depth == 1 and token[2] is not None:
            key = token[1]
        elif depth == 1 and key:
            name = key.decode("utf-8", "replace")
            found.pop(name, None)  # so that the places stay in their order
            found[name], key = token.span(), b""
    return found, depth
