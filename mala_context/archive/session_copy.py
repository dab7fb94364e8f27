"""Turn rows of one session into rows of another: with its id, and with `forkedFrom`, which names the old row.

A row that is too long to be decoded is changed while its bytes pass by. The strings of its own fields are replaced, and
fields that it does not have are added at its end. Deeper levels may hold tens of millions of values, so a pattern skips
them as a whole. With the row held in memory instead, `restore` took 162 MiB for a row of 70 MB.
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
"""Three patterns: the inside of a string; everything between the strings and brackets of a row; and the deeper levels,
up to the next bracket that is not closed at once, or to a string that continues in the next part."""
_QUOTE, _BACKSLASH = b'"\\'
_BLANK = b" \t\r\n\0"
"""Bytes that may stand around a row; a crash of the machine leaves NUL bytes."""


class Renaming:
    """Turns rows of one session into rows of another."""

    def __init__(self, old_id: str, new_id: str, now: str) -> None:
        self._old, self._new, self._now = old_id, new_id, now

    def rows(self, line: Row | LongRow, newest: str | None = None) -> Iterator[bytes]:
        """Yield the changed rows of a line with their newlines; nothing if the line holds no object.

        The row with the uuid `newest` gets the present time as its timestamp. A long row must be an object; this is not
        checked.
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
    """Join small parts, because each yielded part costs one system call."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= _AT_ONCE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


class _Tokens:
    """Splits a row, part by part, into the strings of its own level and everything between them."""

    def __init__(self) -> None:
        self.depth = 0
        self.inside = False
        """Whether the row has come to a string that has not ended."""
        self._rest = b""

    def of(self, parts: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield kind and bytes of the tokens; joined, they are the row. Exhaust the iterator."""
        for part in parts:
            yield from self._feed(self._rest + part)
        yield from self._token(self._rest)

    def _feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        at = begun = 0
        while at < len(data):
            if self.inside:
                at = _STRING.match(data, at).end()  # type: ignore[union-attr]  # it matches everywhere, as the next do
                if at == len(data) or data[at] == _BACKSLASH:
                    break  # the string, or its escape, continues in the next part
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
    """Replaces the strings of some fields of a row, an object, while its bytes pass by. Make one for each row."""

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
        """Yield the changed row. The fields of `more`, which is called at the end, and missing strings are appended.

        If a name occurs twice, the last field counts for every reader of JSON, so an appended field wins. A row that
        does not end like an object stays as it is.
        """
        held, begun, row = b"", False, _Tokens()
        # The last token is held back until it is known to be the last: only then may its closing bracket be taken off.
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
