"""Search for words in what is archived of a session.

The first search puts the text of a session's pieces into a full-text index (SQLite's FTS5); the next one adds new
pieces. The index lies beside the archives, 0600 in a directory of 0700, and can be deleted at any time. It is made
again if it is damaged, has another version, or holds pieces that are gone. `prune` removes it with its session. SQLite
opens it by its path. If another user could swap a directory on that path, each search makes an index in memory.

A query is words, not a language. All words must be in one text, in any order. Words in quotes must stand in a row, and
a `*` at the end of a word stands for any ending. Everything else in a query is plain text, so no query is invalid.
Chinese and Japanese are written without spaces, so each of their characters is a word of the index, and a word of a
query is a row of them. A text of more than 200,000 characters is split into stretches of that length, and each of them
is searched as a text of its own.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
from contextlib import closing, suppress

from mala_context._util.safe_open import Held
from mala_context.archive import manifests
from mala_context.archive.directory import open_archives, others_may_swap
from mala_context.archive.full_outputs import SEARCH, derived_dir
from mala_context.archive.layout import Frozen
from mala_context.archive.reading import chunks
from mala_context.errors import ArchiveUnavailableError
from mala_context.transcripts.compactions import is_clear, is_summary
from mala_context.transcripts.json_rows import content_text, objects
from mala_context.transcripts.long_rows import Shortening, text_of
from mala_context.transcripts.prompts import is_prompt
from mala_context.transcripts.rows import Row, lines
from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from mala_context.archive.layout import Piece
    from mala_context.archive.store import TranscriptArchive
    from mala_context.transcripts.rows import LongRow

    S = TypeVar("S", str, bytearray)

VERSION = 4
_MOST_WORDS = 32
_STRETCH, _OVERLAP = 200_000, 1_000
"""Characters of one stretch of a text, and the characters that two neighbouring stretches share."""
_HELD = 16 << 20
"""Bytes of a long row's text that are held in memory while its role is not known yet.

A row names its role after its text. A row of 200 MB is indexed as plain `text` beyond this, so memory stays bounded.
"""
_SHOWN, _BEFORE = 240, 60
"""About how many characters of a text a hit shows from the first found word on, and before it."""
_WORD = re.compile(r"[^\W_]+")
_CREATE = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BESIDE = ("agent", "role", "time", "piece", "uuid")
_SCHEMA = (
    "CREATE TABLE piece (name TEXT PRIMARY KEY)",
    "CREATE TABLE seen (uuid TEXT PRIMARY KEY, parent TEXT, prompt INTEGER) WITHOUT ROWID",
    "CREATE TABLE left (uuid TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE INDEX prompts ON seen (parent) WHERE prompt",
    f"CREATE VIRTUAL TABLE text USING fts5(body{''.join(f', {each} UNINDEXED' for each in _BESIDE)})",
    f"PRAGMA user_version = {VERSION}",
)
_BEST = "SELECT rowid, bm25(text) AS score FROM text WHERE text MATCH ? ORDER BY score, rowid DESC LIMIT ?"
_TEXT = "SELECT agent, role, time, piece, uuid, body FROM text WHERE rowid = ?"
_INSERT = "INSERT INTO text VALUES (?, ?, ?, ?, ?, ?)"
_LEFT = (
    "WITH RECURSIVE up(uuid) AS (VALUES (?) UNION SELECT parent FROM seen JOIN up USING (uuid)) "
    "SELECT 1 FROM up JOIN left USING (uuid) LIMIT 1"
)
_SPACELESS = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Han, hiragana and katakana, of which words are written without spaces."""
_UNSPACED = re.compile(f"[{_SPACELESS}]")
_BORDER = re.compile(rf"(?<=[{_SPACELESS}])(?=\w)|(?<=\w)(?=[{_SPACELESS}])")
_MARK = "\u200b"
"""Stands between two words that have no space between them; the index takes it for one."""


class Hit(Frozen):
    """One place that was found."""

    session_id: str
    agent: str
    """`main`, or a subagent's id."""
    role: str
    """`user`, `assistant`, `tool` (a tool's result), `injected` (what the CLI says in the user's place), `summary`."""
    time: str | None
    """When it was said, as the row has it."""
    piece: str
    """Name of the piece that it stands in."""
    text: str
    """The words around it, on one line."""
    score: float
    """The smaller, the better."""
    rewound: bool = False
    """Whether the user took it back: it stands in a branch that was left by rewinding."""


def search_session(archive: TranscriptArchive, session_id: str, query: str, *, limit: int = 20) -> list[Hit]:
    """Return the best places in a session's archive, none where a query has no words. Never raises for a query.

    Raises `InvalidSessionIdError`, `ArchiveUnavailableError`, and `OSError` where the index cannot be written.
    """
    phrases = _phrases(query)
    expression = as_expression(query)
    check_session_id(session_id)
    if not expression:
        return []
    with closing(_up_to_date(archive, session_id)) as index:
        try:
            best = index.execute(_BEST, (expression, max(0, limit))).fetchall()
            words = _pattern(phrases)
            return [_hit(session_id, index, words, rowid, score) for rowid, score in best]
        except sqlite3.DatabaseError as error:
            # Every other error is raised: an index that cannot be read must not look like a search that found nothing.
            if "fts5: syntax" in str(error):  # a query of nothing but separators
                return []
            raise OSError(f"the index of session {session_id} cannot be read: {error}") from error


def _hit(session_id: str, index: sqlite3.Connection, words: re.Pattern[str], rowid: int, score: float) -> Hit:
    """Return one hit. FTS5's own `snippet` is not used: its time grows with the square of the found words."""
    agent, role, time, piece, uuid, text = index.execute(_TEXT, (rowid,)).fetchone()
    return Hit(
        session_id=session_id,
        agent=agent,
        role=role,
        time=time,
        piece=piece,
        text=_excerpt(text.replace(_MARK, ""), words),
        score=score,
        rewound=index.execute(_LEFT, (uuid,)).fetchone() is not None,
    )


def as_expression(query: str) -> str:
    """Return a query in FTS5's language. Every word is quoted, so that none of them is an operator."""
    return " ".join(f'"{phrase.rstrip("*")}"*' if phrase.endswith("*") else f'"{phrase}"' for phrase in _phrases(query))


def _phrases(query: str) -> list[str]:
    """Return the phrases of a query: single words, and quoted words in a row."""
    parts = _clean(query).replace("\0", " ").split('"')
    phrases: list[str] = []
    for place, part in enumerate(parts):
        # A last quote without a partner is text: what follows it is single words.
        quoted = place % 2 == 1 and place < len(parts) - 1
        phrases += [part] if quoted else part.split()
    return [phrase for phrase in phrases if any(c.isalnum() for c in phrase)][:_MOST_WORDS]


def _up_to_date(archive: TranscriptArchive, session_id: str) -> sqlite3.Connection:
    """Return the session's index, with all that is archived now; the caller closes it."""
    directory = derived_dir(archive, SEARCH)
    with archive.view(session_id) as files:
        pieces = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
        if directory is None or not pieces or not _is_private(directory):
            index = _make(sqlite3.connect(":memory:", isolation_level=None))
            index.execute("BEGIN")
            _bring_up(index, pieces, files)
            return index
        path = os.path.join(directory, f"{session_id}.sqlite")
        for attempt in (1, 2):
            _make_private(path)
            index = sqlite3.connect(path, timeout=10.0, isolation_level=None)
            try:
                _begin(index, path)
                _bring_up(index, pieces, files)
            except sqlite3.DatabaseError as error:
                index.close()
                if attempt == 2 or "locked" in str(error):
                    raise OSError(f"the index {path} cannot be used: {error}") from error
                os.unlink(path)
                _drop_journal(path)  # SQLite would roll the new index back by the old one's journal
            except BaseException:
                index.close()
                raise
            else:
                return index
    raise AssertionError("unreachable")


def _is_private(directory: str) -> bool:
    """Make the indexes' directory; false if that is impossible, or if another user could swap it.

    SQLite opens files by path, not by a directory's descriptor, so a swapped directory would get the session's words.
    """
    if not os.path.lexists(directory) and others_may_swap(os.path.dirname(directory)):
        return False
    try:
        os.close(open_archives(directory, create=True))
    except ArchiveUnavailableError:
        return False
    return not others_may_swap(directory)


def _make_private(path: str) -> None:
    """Create the index's file, 0600, if it is missing; replace a file that has a second hard link.

    Through a hard link SQLite would write a database into somebody's other file.
    """
    for last in (False, True):
        with Held(os.open(path, _CREATE, 0o600)) as fd:
            if os.fstat(fd).st_nlink == 1:
                os.fchmod(fd, 0o600)
                return
        if last:
            raise OSError(errno.EMLINK, "the index has another name", path)
        os.unlink(path)


def _make(index: sqlite3.Connection) -> sqlite3.Connection:
    for statement in _SCHEMA:
        index.execute(statement)
    return index


def _begin(index: sqlite3.Connection, path: str) -> None:
    """Become the only writer of an index.

    A killed writer leaves its journal beside the index, and the next opening rolls back by it. SQLite leaves a journal
    in place whose transaction had written nothing yet. Under our lock no other process can own that journal, so we
    remove it: otherwise a later opening would roll back to it. An empty index is new, its journal our own.
    """
    index.execute("PRAGMA journal_mode = DELETE")
    index.execute("PRAGMA synchronous = OFF")  # what a crash of the machine leaves is made again
    index.execute("BEGIN IMMEDIATE")
    if os.path.getsize(path):
        _drop_journal(path)


def _drop_journal(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-journal")


def _bring_up(index: sqlite3.Connection, pieces: Sequence[Piece], files: Any) -> None:
    # Each full copy holds everything that the earlier copies hold, so only the newest one of a chain is indexed.
    there = {piece.plain: piece for piece in pieces if piece.mode != "full"}
    newest = {(piece.subagent, piece.chain): piece for piece in pieces if piece.mode == "full"}
    there |= {piece.plain: piece for piece in newest.values()}
    (version,) = index.execute("PRAGMA user_version").fetchone()
    known = {name for (name,) in index.execute("SELECT name FROM piece")} if version == VERSION else set()
    # A piece of the index is gone (pruned, or replaced by a newer full copy): its texts cannot be told from others, so
    # the index is made again.
    if version != VERSION or known - there.keys():
        for table in ("piece", "seen", "left", "text"):
            index.execute(f"DROP TABLE IF EXISTS {table}")
        _make(index)
        known = set()
    for name, piece in there.items():
        if name not in known:
            index.executemany(_INSERT, _new_texts(index, files, piece))
            index.execute("INSERT INTO piece VALUES (?)", (name,))
    index.execute("COMMIT")


def _new_texts(index: sqlite3.Connection, files: Any, piece: Piece) -> Iterator[tuple[Any, ...]]:
    for line in lines(chunks(files, [piece], strict=False)):
        more = bytearray()
        if isinstance(line, Row):
            row = line.data
        else:
            shortening = Shortening(more.extend)
            for text in _passing_by(line, shortening, more):
                yield text, piece.subagent or "main", "text", None, piece.plain, None
            row = shortening.finish()
        for role, when, text, uuid in _said(index, piece, row, more):
            yield text, piece.subagent or "main", role, when, piece.plain, uuid


def _passing_by(line: LongRow, shortening: Shortening, more: bytearray) -> Iterator[str]:
    """Yield the text of a very long row that no longer fits into `_HELD`, before the row's role is known."""
    for part in line.parts():
        shortening.take(part)
        if len(more) > _HELD:
            for data in _stretches(more):
                yield _clean(text_of(bytes(data)))
            del more[:-_OVERLAP]


def _said(
    index: sqlite3.Connection, piece: Piece, row: bytes, more: bytearray
) -> Iterator[tuple[str, str | None, str, str | None]]:
    """Yield role, time, text and id of each new text in a row; `more` is the text that the row was shortened by."""
    role, when, name = "text", None, None
    for value in objects(row):
        uuid, time = value.get("uuid"), value.get("timestamp")
        if isinstance(uuid, str):
            name, parent = _name(piece, uuid), value.get("parentUuid", False)
            clear = is_clear(value)
            prompt = not clear and is_prompt(value)
            if not _see(index, name, _name(piece, "" if parent is None else parent), prompt=prompt):
                more.clear()
                continue  # a chain that began again repeats what is known
            # After a /clear no earlier prompt counts: the next prompt has no parent either, as the first one of the
            # file, and would look like a rewind to the beginning.
            if clear:
                index.execute("UPDATE seen SET prompt = FALSE WHERE prompt")
        when = _clean(time) if isinstance(time, str) else None
        for role, text in texts(value):
            for stretch in _stretches(text):
                yield role, when, _clean(stretch), name
    for data in _stretches(more):
        yield role, when, _clean(text_of(bytes(data))), name


def _name(piece: Piece, uuid: object) -> str | None:
    """Return a row's id in the index. It begins with the agent: two agents may have rows with the same uuid."""
    return _clean(f"{piece.subagent or 'main'} {uuid}") if isinstance(uuid, str) else None


def _see(index: sqlite3.Connection, name: str | None, parent: str | None, *, prompt: bool) -> bool:
    """Record a row; false if it is known already.

    If two prompts have the same parent, the user rewound before the second: the first one was taken back.
    `transcripts.branches` has the same rule for rows that are read in one go.
    """
    if not index.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (name, parent, prompt)).rowcount:
        return False
    if prompt and parent is not None:
        earlier = "INSERT OR IGNORE INTO left SELECT uuid FROM seen WHERE prompt AND parent = ? AND uuid != ?"
        index.execute(earlier, (parent, name))
    return True


def _stretches(text: S) -> Iterator[S]:
    """Yield the stretches of a text. They overlap, so that a word at a border is whole in one of them."""
    for start in range(0, max(1, len(text) - _OVERLAP), _STRETCH - _OVERLAP):
        yield text[start : start + _STRETCH]


def texts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield role and text of everything in a row: words, inputs and results of tools, a summary."""
    kind = row.get("type")
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else row.get("content")
    if kind not in ("user", "assistant", "system"):
        return
    role = "summary" if is_summary(row) else "injected" if kind == "user" and not is_prompt(row) else str(kind)
    if isinstance(content, str) and content.strip():
        yield role, content
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        block_kind = block.get("type")
        if block_kind == "text" and isinstance(block.get("text"), str):
            yield role, block["text"]
        elif block_kind == "tool_use":
            yield role, f"{block.get('name')} {json.dumps(block.get('input'), ensure_ascii=False)}"
        elif block_kind == "tool_result" and (text := content_text(block.get("content"))):
            yield "tool", text


def _clean(text: str) -> str:
    """Return text for SQLite: lone surrogates are replaced, and each character of an unspaced script is set apart."""
    if text.isascii():
        return text
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if not _UNSPACED.search(text) else _BORDER.sub(_MARK, text)


def _pattern(phrases: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern with one group for each phrase. It matches about what the index matches."""
    groups = []
    for phrase in phrases:
        found = _WORD.findall(_without_accents(phrase).replace(_MARK, ""))
        words = r"[\W_]{1,9}".join(map(re.escape, found))
        if not words:
            continue
        # Where a word begins or ends with a character that is written without spaces there is no border to look for.
        begin = "" if re.match(f"[{_SPACELESS}]", found[0]) else rf"(?<![^\W_{_SPACELESS}])"
        end = "" if phrase.endswith("*") or re.search(f"[{_SPACELESS}]$", found[-1]) else rf"(?![^\W_{_SPACELESS}])"
        groups.append(f"{begin}({words}){end}")
    return re.compile("|".join(groups) or "(?!)", re.IGNORECASE)


def _without_accents(text: str) -> str:
    """Return a text of the same length without accents: the index ignores them too."""
    from unicodedata import normalize

    if text.isascii():
        return text
    return text.translate({ord(each): normalize("NFD", each)[0] for each in set(text) if each > "\x7f"})


def _excerpt(text: str, words: re.Pattern[str]) -> str:
    """Return the part of a text with the most different words of the query, on one line."""
    # A window of `_SHOWN` characters slides over the matches; `counts` has the matches of each phrase inside it.
    found = [(each.start(), each.lastindex or 0) for each in words.finditer(_without_accents(text))]
    counts = [0] * (words.groups + 1)
    end = place = most = 0
    for start, word in found:
        while end < len(found) and found[end][0] < start + _SHOWN:
            counts[found[end][1]] += 1
            end += 1
        different = sum(map(bool, counts))
        if different > most:
            place, most = start, different
        counts[word] -= 1
    first, last = max(0, place - _BEFORE), place + _SHOWN
    before, after = "… " * (first > 0), " …" * (last < len(text))
    if before:
        first = text.find(" ", first, place) + 1 or first
    if after:
        last = max(text.rfind(" ", place, last), place + _BEFORE)
    return f"{before}{' '.join(text[first:last].split())}{after}"
