"""Rows of one session as rows of another: with its id, and a word on which row each of them was.

A row that is too long to be decoded gets the same as it passes by: the strings that stand for its own fields are
replaced, and what has no place yet is added at its end.
"""

from __future__ import annotations

import json

from mala_context.archive.long_rows import CLOSE, OPEN, OUTSIDE, TEXT, Tokens, text_of
from mala_context.archive.objects import objects
from mala_context.archive.reading import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from mala_context.archive.reading import LongRow

_MOST_NAME = 1 << 10
"""Bytes of a field's name, or of an id, that are looked at."""


class Renaming:
    """Makes rows of one session those of another."""

    def __init__(self, old_id: str, new_id: str, now: str) -> None:
        self._old, self._new, self._now = old_id, new_id, now

    def rows(self, line: Row | LongRow, newest: str | None = None) -> Iterator[bytes]:
        """Yield the bytes of the rows that stand on a line, newlines included; none where there is no object on it.

        That with the id `newest` is stamped as of now. A long row must be an object; that is not looked at.
        """
        if isinstance(line, Row):
            for value in objects(line.data):
                yield self._row(value, newest is not None and value.get("uuid") == newest)
            return
        strings = {"sessionId": self._new} if newest is None else {"sessionId": self._new, "timestamp": self._now}
        fields = _Fields(strings)
        yield from fields.of(line.parts(), lambda: self._from(fields.uuid))
        yield b"\n"

    def _row(self, value: dict[str, Any], is_newest: bool) -> bytes:
        value["sessionId"] = self._new
        value.update(self._from(value.get("uuid")))
        if is_newest:
            value["timestamp"] = self._now
        return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"

    def _from(self, uuid: object) -> dict[str, object]:
        if not isinstance(uuid, str):
            return {}
        return {"forkedFrom": {"sessionId": self._old, "messageUuid": uuid}}


class _Fields:
    """Gives a row that is one object other strings for some of its own fields, as it passes by. For one row."""

    def __init__(self, strings: Mapping[str, str]) -> None:
        self._strings = {name.encode(): json.dumps(value).encode() for name, value in strings.items()}
        self._missing = dict(strings)
        self._key = b""
        self._uuid: bytes | None = None

    @property
    def uuid(self) -> str | None:
        """The row's `uuid`, once it was read."""
        return None if self._uuid is None else text_of(self._uuid)

    def of(self, parts: Iterable[bytes], more: Callable[[], Mapping[str, object]]) -> Iterator[bytes]:
        """Yield the row; what `more` gives at its end stands there, and so does a string that was not there.

        Of two fields of one name the last one counts. A row that does not end as an object does stays as it is.
        """
        held = b""
        for kind, data in self._renamed(parts):
            if kind != OUTSIDE or data.strip():
                yield held
                held = data
        if held.rstrip().endswith(b"}"):
            held = held.rstrip()[:-1]
            fields = json.dumps({**self._missing, **more()}, separators=(",", ":"))
            held += b"," + fields[1:].encode() if len(fields) > len("{}") else b"}"
        yield held

    def _renamed(self, parts: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        cutting = Tokens()
        depth, before, kept = 0, b"", True
        for kind, data in (token for part in parts for token in cutting.feed(part)):
            if kind == OUTSIDE:
                depth += sum(map(data.count, (b"{", b"["))) - sum(map(data.count, (b"}", b"]")))
                before = data.rstrip()[-1:] or before
            elif depth == 1 and before == b":":
                if kind == OPEN and self._key == b"uuid":
                    self._uuid = b""
                elif kind == OPEN and self._key in self._strings:
                    kept = False
                    self._missing.pop(self._key.decode(), None)
                    yield TEXT, self._strings[self._key]
                elif kind == TEXT and self._uuid is not None and self._key == b"uuid":
                    self._uuid = (self._uuid + data[:_MOST_NAME])[:_MOST_NAME]
            elif depth == 1:
                self._key = (
                    b"" if kind == OPEN else (self._key + data[:_MOST_NAME])[:_MOST_NAME] if kind == TEXT else self._key
                )
            if kept:
                yield kind, data
            kept = kept or kind == CLOSE
