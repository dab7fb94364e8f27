"""Mask secrets in a copy of a transcript, never in the archive.

The patterns are those of `detect-secrets` (extra `redact`) without two kinds of detectors: the entropy ones, which take
every word outside of quotes for a secret, and the one for IP addresses. Its detectors say that there is a secret, but
they do not cut it out: of a GitHub token they return `ghp` alone, and they cut off the signature of a JSON web token.
So the whole match is masked here, and everything that follows it without a break. Our own patterns cover shapes that it
does not know. Nothing is asked over the network.

Rows are decoded first, so that no escape hides a secret, and each string is searched line by line. A row without a
finding stays as it is, byte for byte. A row that is no JSON, or nested too deep to be decoded, is searched as text. Not
found are: secrets without a known shape or a telling name next to them (a bare password in a sentence), secrets that
are split over two lines or two strings, names, addresses and other personal data, and everything in images. Of a row of
more than 16 MiB only the beginnings of its strings are passed on.
"""

from __future__ import annotations

import base64
import json
import re

from mala_context.transcripts.json_rows import objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mala_context.transcripts.rows import Row

MASK = "[redacted]"
MOST = 16 << 20
"""Bytes past which a row is shortened before it is searched; rows with pictures are smaller."""
_LEFT_OUT = frozenset({"Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector"})
_WINDOW, _OVERLAP = 20_000, 1_000
"""A long line is searched in windows of this many characters, which overlap: a secret must be whole in one of them."""
_SHORT, _REMEMBERED = 2_000, 20_000
"""Clean lines up to this length, at most this many, are remembered and not searched again: transcripts repeat them."""
_TAIL = re.compile(r"[A-Za-z0-9_+/=.~-]*")
_NAME = r"(?:pass(?:wd|word|phrase)?|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credential)s?"
_SURELY = (
    r"(?:pass(?:wd|word|phrase)|secret|(?:access|auth|refresh|api|bearer|id|session)[_-]?token"
    r"|(?:api|access|private)[_-]?key)"
)
"""Names that are surely of secrets. `token` alone is not among them: rows are full of counts of tokens."""
_TELLING = re.compile(_NAME, re.IGNORECASE)
_NO_SECRETS = frozenset({"signature", "encrypted_content", "encrypted_index"})
"""Fields of the API that hold long random words, and no secret of a user."""
_VALUE = re.compile(r"[^\s\"'`,;<>]{6,}")
_NAMED = re.compile(rf"(?:^|[\W_]|(?<=[a-z])(?=[A-Z])){_NAME}$", re.IGNORECASE)
"""The name of a field whose value is a secret. Nothing may follow the word: `token_count` is no such name."""

OUR_PATTERNS = (
    re.compile(r"sk-ant-[A-Za-z0-9_-]{8,}"),
    re.compile(r"\bBearer\s+([A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE),
    re.compile(rf"{_NAME}\w*\s*=\s*([^\s\"'`;&|]{{6,}})", re.IGNORECASE),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    re.compile(r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    re.compile(r"\b(?:AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,})"),
    re.compile(r"\b(?:do[oprt]_v1_[a-f0-9]{64}|AGE-SECRET-KEY-1[A-Z0-9]{50,})"),
    re.compile(r"\bAuthorization\W{1,5}Basic\s+([A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE),
    re.compile(r"\b(?:Set-)?Cookie:\s*([\w.-]+=[^\"'\s][^\"']{5,})"),
    re.compile(  # YAML, also with the numbers of lines that the Read tool puts before them
        rf"^\s*(?:\d+\s*[→\t|:]\s*)?(?:-\s+)?[\w.-]*{_SURELY}[\w-]*:\s+([^\s\"'`,;<>]{{6,}})\s*$", re.IGNORECASE
    ),
    re.compile(rf"\s--?{_SURELY}[\w-]*\s+([^\s\"'`;&|<>$-][^\s\"'`;&|<>]{{5,}})", re.IGNORECASE),  # an option
    re.compile(r"\bya29\.[A-Za-z0-9_-]{20,}"),
    re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"']*:([^\s/@\"']{3,})@"),  # also without a user
    re.compile(r"\bcurl\b.*?\s(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"']+:([^\s\"']{3,})"),
    re.compile(
        r"(?<![A-Za-z0-9_-])(?![0-9a-f]{8}-[0-9a-f]{4}-)"  # session ids
        r"(?!(?:toolu|srvtoolu|msg|req|call|chatcmpl|resp|file|agent|sess)[_-])"  # by which rows name each other
        r"(?!(?:sha\d*|md5|commit|rev|tree|blob|digest|hash|trace|span|image|layer|build|cache|chunk|session|uuid)[_-])"
        r"[A-Za-z][A-Za-z0-9]{1,11}[_-](?:[A-Za-z0-9]{1,9}[_-]){0,2}"
        r"(?:(?=[A-Za-z0-9_-]*[0-9])(?=[A-Za-z0-9_-]*[a-z])(?=[A-Za-z0-9_-]*[A-Z])[A-Za-z0-9_-]{24,}"
        r"|(?=(?:[a-z]*\d+[a-z]){3})[0-9a-z]{24,}|(?=(?:[A-Z]*\d+[A-Z]){3})[0-9A-Z]{24,})"
    ),  # a service's prefix and a random word, which is what keys have looked like for years
    re.compile(  # a long random word, in which letters and digits change all the time
        r"(?<![A-Za-z0-9+/=_-])(?=(?:[A-Za-z0-9_-]*?[a-z][A-Z]){3})(?=(?:[A-Za-z0-9_-]*?[A-Za-z][0-9]){3})"
        r"[A-Za-z][A-Za-z0-9_-]{39,}(?![A-Za-z0-9+/])"
    ),
    re.compile(r"\bdapi[0-9a-f]{32}"),
    re.compile(r"\blogin\s+\S+\s+password\s+(\S{6,})"),  # .netrc
    re.compile(rf"{_SURELY}\w*\\+\"\s*:\s*\\+\"([^\"\\]{{6,}})", re.IGNORECASE),  # JSON within JSON
)
"""Our own patterns. The first group is masked, or the whole match if the pattern has no group."""

_PEM = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.DOTALL
)


class Redactor:
    """Masks secrets in rows; raises `ArchiveError` where the detector library is not installed."""

    def __init__(self) -> None:
        try:
            from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        except ImportError:
            from mala_context.errors import ArchiveError

            raise ArchiveError("masking secrets needs a detector library: pip install 'mala-context[redact]'") from None
        self.found = 0
        self._patterns: list[tuple[re.Pattern[str], int]] = []
        self._keyword: Any = None
        self._clean: set[str] = set()
        detector: Any
        for detector in get_mapping_from_secret_type_to_class().values():
            name = detector.__name__
            if name == "KeywordDetector":
                self._keyword = detector()
            elif name not in _LEFT_OUT:
                group = 1 if name == "BasicAuthDetector" else 0
                self._patterns += [(pattern, group) for pattern in getattr(detector(), "denylist", ())]
        self._patterns += [(pattern, pattern.groups) for pattern in OUR_PATTERNS]

    def row(self, row: Row) -> bytes:
        """Return a row and its newline with secrets masked; the same bytes if there are none."""
        end = b"\n" if row.ended else b""
        before = self.found
        values = objects(row.data)
        if not values:
            text = self.text(row.data.decode("utf-8", "surrogateescape"))
            return text.encode("utf-8", "surrogateescape") + end
        for value in values:
            self._mask(value)
        if self.found == before:
            return row.data + end
        try:
            return b"".join(json.dumps(value, separators=(",", ":")).encode("ascii") for value in values) + end
        except RecursionError:  # it is nested just as deep as can be decoded
            return json.dumps(MASK).encode("ascii") + end

    def text(self, text: str) -> str:
        """Return a text with secrets masked."""
        text, count = _PEM.subn(MASK, text) if "PRIVATE KEY" in text else (text, 0)
        self.found += count
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _mask(self, value: dict[str, Any]) -> None:
        """Mask secrets in place, with a list of work instead of recursion: a row may be nested very deep."""
        todo: list[tuple[Any, str]] = [(value, "")]
        while todo:
            holder, name = todo.pop()
            if isinstance(holder, list):
                holder[:] = [self._entry(each, name, todo) for each in holder]
            else:
                self._mask_base64(holder)
                entries, holder_type = list(holder.items()), holder.get("type")
                holder.clear()
                for key, each in entries:
                    # `_mask_base64` has dealt with the data: searched as text, a picture would be cut where it looks
                    # like a key.
                    is_binary = key == "data" and holder_type == "base64"
                    holder[self.text(key)] = each if is_binary else self._entry(each, key, todo)

    def _mask_base64(self, holder: dict[str, Any]) -> None:
        """Mask secrets in the text of a base64 source. A picture stays as it is; data that is no base64 is text."""
        data = holder.get("data")
        if holder.get("type") != "base64" or not isinstance(data, str):
            return
        try:
            text = base64.b64decode(data, validate=True).decode()
        except UnicodeDecodeError:
            return  # a picture, or another file of bytes
        except ValueError:
            holder["data"] = self.text(data)
            return
        masked = self.text(text)
        if masked is not text and masked != text:
            holder["data"] = base64.b64encode(masked.encode()).decode()

    def _entry(self, value: Any, name: str, todo: list[tuple[Any, str]]) -> Any:
        """Return the value of a field with secrets masked; a list or an object is added to `todo` instead."""
        if isinstance(value, str):
            if name in _NO_SECRETS:
                return value
            tells = name and _VALUE.fullmatch(value)
            if tells and (_NAMED.search(name) or self._keywords(f'{name} = "{value}"')):
                self.found += 1
                return MASK
            return self.text(value)
        if isinstance(value, list | dict):
            todo.append((value, name))
        return value

    def _keywords(self, line: str) -> set[str]:
        if self._keyword is None or not _TELLING.search(line):
            return set()
        return {each for each in self._keyword.analyze_string(line) if each and each != MASK}

    def _line(self, line: str) -> str:
        if line in self._clean:
            return line
        masked = self._masked(line)
        if masked is line and len(line) <= _SHORT:
            if len(self._clean) >= _REMEMBERED:
                self._clean.clear()
            self._clean.add(line)
        return masked

    def _masked(self, line: str) -> str:
        spans: list[tuple[int, int]] = []
        for start in range(0, max(1, len(line) - _OVERLAP), _WINDOW - _OVERLAP):
            part = line[start : start + _WINDOW]
            spans += [(start + first, start + last) for first, last in self._spans(part)]
        # A word that goes on past its pattern, or past the window that it was found in, is masked to its end.
        spans = [(first, tail.end() if (tail := _TAIL.match(line, last)) else last) for first, last in spans]
        if not spans:
            return line
        result, position = [], 0
        for first, last in sorted(spans):
            if last <= position:
                continue
            if first >= position:
                result += [line[position:first], MASK]
                self.found += 1
            position = last
        return "".join((*result, line[position:]))

    def _spans(self, part: str) -> Iterator[tuple[int, int]]:
        for pattern, group in self._patterns:
            for match in pattern.finditer(part):
                first, last = match.span(group)
                if first == last or MASK in part[first:last]:
                    continue
                yield first, last
        for word in self._keywords(part):
            start = part.find(word)
            while start >= 0:
                yield start, start + len(word)
                start = part.find(word, start + len(word))
