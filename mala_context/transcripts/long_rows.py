"""Handle rows that are too long to be decoded: split them into tokens while they are read, and shorten their strings.

Decoded JSON takes up to thirty times its bytes (a list of empty lists), and text takes four times its bytes if a single
character of it lies beyond the first planes. So a row longer than `LONG` is never decoded as it is. `Tokens` splits it,
block by block, into the bytes outside of strings and those inside. `shortened` cuts each long string; the result is a
row again, with every field in its place. A row that is too long even without its strings has too many values: nothing
of it is kept.
"""

from __future__ import annotations

import json
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LONG = 4 << 20
"""Bytes up to which a row is decoded whole."""
KEPT = 64 << 10
"""Bytes of each string that a shortened row keeps, while the row itself is no longer than `_ENOUGH`."""
# Past 512 KiB each string keeps only 1 KiB. A row that reaches 1 MiB even so has too many values and is given up.
# `_AGAIN` limits how far back the beginning of a cut word is searched.
_ENOUGH, _FEW, _MOST = 1 << 19, 1 << 10, 1 << 20
_AGAIN = 1_000

OUTSIDE, OPEN, TEXT, CLOSE = range(4)
"""Kinds of tokens: bytes between strings, a string's quotes, and its text with its escapes."""
OR_BACK = rb"|(?!)" if sys.version_info < (3, 11, 5) else b""
"""An alternative that never matches, for the end of a group that is repeated possessively.

Before 3.11.5 Python ends such a repeat where its last failed try ended, not where it began (gh-106052). A restored row
of more than 4 MiB then kept the old session's id on Debian 12's Python 3.11.2.
"""
_STRING = re.compile(rb'(?:[^"\\]++|\\(?:u[0-9A-Fa-f]{4}|["\\/bfnrt])%b)*+' % OR_BACK)
_LAST_WORD = re.compile(rb"[^A-Za-z0-9_+/=.~-][A-Za-z0-9_+/=.~-]*\Z")
_HIGH = re.compile(rb"\\u[dD][89abAB][0-9A-Fa-f]{2}\Z")
_ESCAPE, _QUOTE = 6, 0x22


class Tokens:
    """Splits a row, part by part, into tokens.

    The text of a long string comes in several tokens; each of them can be decoded by itself (see `text_of`). All tokens
    joined are the row.
    """

    def __init__(self) -> None:
        self._inside = False
        self._rest = b""

    def feed(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield kind and bytes of the tokens in a part. Exhaust the iterator before you feed the next part."""
        data, at = self._rest + part, 0
        self._rest = b""
        while at < len(data):
            if self._inside:
                end = _STRING.match(data, at).end()  # type: ignore[union-attr]  # it matches everywhere
                goes_on = end == len(data) or data[end] != _QUOTE
                if goes_on and len(data) - end >= _ESCAPE:  # not a cut escape: one that JSON does not know, kept as is
                    yield TEXT, data[at : end + 2]
                    at = end + 2
                    continue
                if goes_on:
                    end -= _unfinished(data[at:end])
                if end > at:
                    yield TEXT, data[at:end]
                if goes_on:
                    self._rest = data[end:]
                    return
                yield CLOSE, b'"'
            else:
                end = data.find(b'"', at)
                end = len(data) if end < 0 else end
                if end > at:
                    yield OUTSIDE, data[at:end]
                if end == len(data):
                    return
                yield OPEN, b'"'
            self._inside, at = not self._inside, end + 1

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes that were held back, for a row that ends inside a string."""
        if self._rest:
            yield TEXT, self._rest


def _unfinished(data: bytes) -> int:
    """Return how many bytes at the end of a string's text belong to a character that is not complete."""
    # `\ud83d\ude00` is one character: neither half can be decoded alone. An even number of backslashes before it is
    # text that reads so, not an escape.
    if _HIGH.search(data[-_ESCAPE:]):
        before = data[:-5]
        if (len(before) - len(before.rstrip(b"\\"))) % 2:
            return _ESCAPE
    # A UTF-8 character has at most three bytes after its first; 0x80-0xBF goes on, 0xC0 and above begins one.
    for count, byte in enumerate(reversed(data[-3:]), 1):
        if byte < 0x80:
            return 0
        if byte >= 0xC0:
            return count if count < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
    return 0


def shortened(parts: Iterable[bytes]) -> bytes:
    """Return a row without the ends of its long strings; empty if it is too long even without them.

    All parts are read in any case.
    """
    shortening = Shortening(lambda _: None)
    for part in parts:
        shortening.take(part)
    return shortening.finish()


class Shortening:
    """Shortens a row, part by part.

    `left_out` is called with the text that is not in the result, piece by piece and with its escapes. Before each cut
    it gets the last words before it again, so that a search finds words across the cut; after each string a newline.
    """

    def __init__(self, left_out: Callable[[bytes], object]) -> None:
        self._left_out = left_out
        self._tokens = Tokens()
        self._row = bytearray()
        self._room = 0
        self._cut = False
        self._given_up = False

    def take(self, part: bytes) -> None:
        """Take the next part."""
        if self._given_up:
            self._left_out(part.replace(b'"', b"\n"))
            return
        for kind, data in self._tokens.feed(part):
            self._token(kind, data)
        if len(self._row) > _MOST:
            self._given_up = True
            self._left_out(bytes(self._row).replace(b'"', b"\n"))
            self._row.clear()

    def _token(self, kind: int, data: bytes) -> None:
        if kind == TEXT:
            kept = _beginning(data, self._room)
            self._row += kept
            self._room -= len(kept)
            if len(kept) < len(data):
                if not self._cut:
                    self._left_out(bytes(self._row[-_AGAIN:]).rpartition(b'"')[2])
                    del self._row[_last_edge(self._row) :]
                self._room, self._cut = 0, True
                self._left_out(data[len(kept) :])
            return
        # A crash of the machine leaves NUL bytes before a row, perhaps megabytes. Counted as values, they made the row
        # too long: restore left it out and called the session whole.
        self._row += data.translate(None, b"\0") if kind == OUTSIDE else data
        if kind == OPEN:
            self._room, self._cut = KEPT if len(self._row) < _ENOUGH else _FEW, False
        elif kind == CLOSE and self._cut:
            self._left_out(b"\n")

    def finish(self) -> bytes:
        """Return the row; empty if it is too long even without the ends of its strings."""
        for kind, data in self._tokens.finish():
            self._token(kind, data)
        return bytes(self._row)


def _beginning(data: bytes, room: int) -> bytes:
    """Return at most `room` bytes of a string's text, without cutting a character."""
    if len(data) <= room:
        return data
    data = data[: _STRING.match(data, 0, room).end()]  # type: ignore[union-attr]  # as above
    return data[: len(data) - _unfinished(data)]


def _last_edge(row: bytearray) -> int:
    """Return where the last word of a cut string begins. The whole word is cut off: half a secret is not recognised."""
    found = _LAST_WORD.search(row, max(0, len(row) - _AGAIN))
    if found is None:
        return len(row)
    at = found.start()
    escaped = (at - len(row[:at].rstrip(b"\\"))) % 2
    if row[at] == _QUOTE and not escaped:
        return at + 1  # the string's opening quote: the cut word is its first
    at -= escaped
    while row[at] & 0xC0 == 0x80:
        at -= 1
    return at - _unfinished(bytes(row[max(0, at - _AGAIN) : at]))


def text_of(data: bytes) -> str:
    """Decode a piece of a string's text; characters that are cut at its ends are replaced. Never raises."""
    found, at = [], 0
    while at < len(data):
        end = _STRING.match(data, at).end()  # type: ignore[union-attr]  # as above
        found.append(json.loads(f'"{data[at:end].decode("utf-8", "replace")}"', strict=False))
        at = end + 1  # skips half an escape
    return "\ufffd".join(found)
