"""Rows of one session as rows of another: with its id, and a word on which row each of them was.

A row that is too long to be decoded gets the same as it passes by: the strings that stand for its own fields are
replaced, and what has no place yet is added at its end. What lies deeper may be tens of millions of values, so it is
passed over by a pattern, and not value by value.
"""

from __future__ import annotations

import json
import re

from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.long_rows import CLOSE, OPEN, OR_BACK, OUTSIDE, TEXT, text_of
from mala_context.transcripts.rows import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from mala_context.transcripts.rows import LongRow

_MOST_NAME = 1 << 10
"""Bytes of a field's name, or of an id, that are looked at."""
_AT_ONCE = 1 << 16
"""Bytes of a long row that are collected before they are passed on."""
_HELD = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_PLAIN = rb'[^"{}\[\]]*+'
_FLAT = rb'%b(?:(?:"%b"%b)%b)*+' % (_PLAIN, _HELD, OR_BACK, _PLAIN)
_STRING = re.compile(_HELD, re.DOTALL)
_OWN = re.compile(_PLAIN)
_DEEPER = re.compile(rb'%b(?:(?:"%b"|[{\[]%b[}\]]%b)%b)*+' % (_PLAIN, _HELD, _FLAT, OR_BACK, _PLAIN), re.DOTALL)
"""What a string holds; what stands between the strings and brackets of a row; and all that stands deeper in it up to
the next bracket that is not closed at once, and to a string that goes on in the next part."""
_QUOTE, _BACKSLASH = b'"\\'
_BLANK = b" \t\r\n\0"
"""What may stand around a row; a crash of the machine leaves NUL bytes."""


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
        yield from _collected(fields.of(line.parts(), lambda: self._from(fields.uuid)))
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


def _collected(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join parts of a few bytes: each that is passed on is written by itself."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _AT_ONCE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


class _Tokens:
    """Cuts a row, which is fed part by part, into the strings among its own fields and all that is between them."""

    def __init__(self) -> None:
        self.depth = 0
        self.inside = False
        """Whether the row has come to a string that has not ended."""
        self._rest = b""

    def of(self, parts: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield kind and bytes of the tokens; joined, they are the row. Use it up."""
        for part in parts:
            yield from self._feed(self._rest + part)
        yield from self._token(self._rest)

    def _feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = begun = 0
        while at < len(data):
            if self.inside:
                at = _STRING.match(data, at).end()  # type: ignore[union-attr]  # it matches everywhere, as the next do
                if at == len(data) or data[at] == _BACKSLASH:
                    break  # which the next part goes on with
                if self.depth == 1:
                    yield from self._token(data[begun:at])
                    yield CLOSE, b'"'
                    begun = at + 1
                self.inside = False
            else:
                at = (_DEEPER if self.depth > 1 else _OWN).match(data, at).end()  # type: ignore[union-attr]  # as above
                if at == len(data):
                    break
                if data[at] == _QUOTE:
                    if self.depth == 1:
                        yield from self._token(data[begun:at])
                        yield OPEN, b'"'
                        begun = at + 1
                    self.inside = True
                else:
                    self.depth += 1 if data[at] in b"{[" else -1
            at += 1
        self._rest = data[at:]
        yield from self._token(data[begun:at])

    def _token(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        if data:
            yield TEXT if self.inside and self.depth == 1 else OUTSIDE, data


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
        held, begun, row = b"", False, _Tokens()
        for token in self._renamed(row.of(parts)):
            data = token if begun else token.lstrip(_BLANK)
            if data and (row.depth or row.inside or data.strip(_BLANK)):
                yield held
                held, begun = data, True
        if not row.depth and not row.inside and held.rstrip(_BLANK).endswith(b"}"):
            held = held.rstrip(_BLANK)[:-1]
            fields = json.dumps({**self._missing, **more()}, separators=(",", ":"))
            held += b"," + fields[1:].encode() if len(fields) > len("{}") else b"}"
        yield held

    def _renamed(self, tokens: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        before, kept = b"", True
        for kind, data in tokens:
            if kind == OUTSIDE:
                before = data.rstrip()[-1:] or before
            elif before == b":":
                if kind == OPEN and self._key == b"uuid":
                    self._uuid = b""
                elif kind == OPEN and self._key in self._strings:
                    kept = False
                    self._missing.pop(self._key.decode(), None)
                    yield self._strings[self._key]
                elif kind == TEXT and self._uuid is not None and self._key == b"uuid":
                    self._uuid = (self._uuid + data[:_MOST_NAME])[:_MOST_NAME]
            elif kind != CLOSE:
                self._key = b"" if kind == OPEN else (self._key + data[:_MOST_NAME])[:_MOST_NAME]
            if kept:
                yield data
            kept = kept or kind == CLOSE
