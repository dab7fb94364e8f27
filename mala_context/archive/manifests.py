"""The manifest: a row for each piece, outcome and side file of a session, as JSON lines.

The files are the truth. The manifest holds what they cannot say: why a piece was written, whose compaction it was, how
that compaction ended. So it is read with distrust: a row that is cut, edited or from a newer version is kept or
reported, and never fatal. If the manifest is lost, rows are made again from the files as far as these can tell. All
functions here are pure. Rows and fields of kinds that we do not know pass through unchanged.
"""

from __future__ import annotations

from mala_context.archive import layout
from mala_context.archive.layout import Frozen, Piece, PieceName, SessionSummary, StoredFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]

VERSION = 1
_NAMES_OF_KINDS = "piece nothing_new packed outcome sizes file session kept removing uploaded unreadable"
_OURS = frozenset(_NAMES_OF_KINDS.split())
_TEXTS = (
    "time name mode sha256 subagent began transcript trigger agent model cwd clock piece outcome summary error path "
    "host started to text"
)
_COUNT_NAMES = "chain offset length tokens tokens_before tokens_after cli_before duration_ms pid mtime_ns"
_COUNTS = frozenset(_COUNT_NAMES.split())
_KINDS: dict[str, type] = {
    **dict.fromkeys(_TEXTS.split(), str),
    "names": list,
    "lost": dict,
    "kept": dict,
}
"""Fields of our rows, and the type of each."""
_MOST_GAP = 1000
"""How far a chain's number may be above the count of chains. Some numbers are missing if somebody removed pieces."""
PRECOMPACT_TRIGGERS = frozenset({"auto", "manual", "unknown"})
"""Triggers of a piece that was written before a compaction; `unknown` where the hook's input names no valid one."""
SIZES = ("tokens_before", "tokens_after")
LATER = (*SIZES, "summary", "lost")
"""Fields of an outcome that may become known only after it was written; a row `sizes` adds them."""
_BESIDE = 10_000_000
"""Most microseconds between the boundary of a compaction and its PostCompact hook."""
OUTCOMES = frozenset({"compacted", "failed", "blocked", "hook_skipped", "by_reference"})
TOOK_PLACE = frozenset({"compacted", "hook_skipped", "by_reference"})
"""Outcomes of compactions that replaced the conversation."""


class Manifest(Frozen):
    """The rows of one session that could be read."""

    rows: tuple[Row, ...]
    """All rows in the order in which they were written, those of unknown kinds included."""
    unreadable: tuple[tuple[int, bytes], ...] = ()
    """Number (from 1) and bytes of each line that is no JSON object, or that has a field of the wrong type.

    In the second case the other fields of the row are in `rows`.
    """

    def of_kind(self, kind: str) -> list[Row]:
        """Return the rows of one kind: `piece`, `packed`, `outcome`, `file`, `session`, `removing`.

        An outcome also has the fields of a `sizes` row that follows it and names the same piece. A piece may have
        several outcomes: later compactions may have found nothing new to archive. Each `sizes` row belongs to the last
        outcome before it.
        """
        found: list[Row] = []
        latest: dict[object, int] = {}
        for row in self.rows:
            at = latest.get(row.get("piece"))
            if row.get("row") == kind:
                latest[row.get("piece")] = len(found)
                found.append(row)
            elif kind == "outcome" and row.get("row") == "sizes" and at is not None:
                # The outcome's own fields win: `sizes` only adds what it did not know.
                found[at] = {**{name: value for name in LATER if (value := row.get(name))}, **found[at]}
        return found

    def pieces(self) -> dict[str, Row]:
        """Return the piece rows by the name of the plain piece; the last row of a name wins."""
        return {row["name"]: row for row in self.of_kind("piece") if isinstance(row.get("name"), str)}

    def removed(self) -> set[str]:
        """Return the names of files that were removed on purpose, or were about to be. Their absence is no damage."""
        named = (row.get("names") for row in self.of_kind("removing"))
        return {name for names in named if isinstance(names, list) for name in names if isinstance(name, str)}

    def packed(self) -> dict[str, str]:
        """Return the known hashes of packed files by the name of the plain piece."""
        rows = self.of_kind("packed")
        return {row["piece"]: row["sha256"] for row in rows if row.get("piece") and row.get("sha256")}

    def open_piece(
        self, agent: str | None = None, between: tuple[int, int] | None = None, *, but: str | None = None
    ) -> Row | None:
        """Return the newest piece whose compaction has no outcome yet.

        If PreCompact found nothing new, that is the piece that holds everything, with that hook's trigger, agent and
        time. With `agent`, only pieces of that agent count. With `between`, the piece must have been written between
        these two times (microseconds since 1970). `but` names a piece that does not count.
        """
        for row, is_open in self._before_compactions():
            if row.get("name") == but or (agent is not None and row.get("agent") not in {None, agent}):
                continue
            if between is not None:
                # The stamp of a piece is never earlier than that of the piece before it, so after the clock was set
                # back it is not the time of writing. The row then has `clock`. Without it a clock set back by up to an
                # hour made three PreCompact hooks archive nothing.
                written = str(row.get("clock") or layout.stamp_of(str(row.get("time"))))
                if not layout.stamp(between[0]) <= written <= layout.stamp(between[1]):
                    return None
            return row if is_open else None
        return None

    def waits(self, piece: str) -> bool:
        """Tell whether this piece was archived before a compaction that has no outcome yet."""
        return any(is_open and row.get("name") == piece for row, is_open in self._before_compactions())

    def _before_compactions(self) -> Iterator[tuple[Row, bool]]:
        """Yield what PreCompact archived, newest first, and whether that compaction has no outcome yet."""
        pieces = self.pieces()
        closed = {row.get("piece") for row in self.of_kind("outcome")}
        later: set[object] = set()
        for row in reversed(self.rows):
            kind, piece = row.get("row"), row.get("piece")
            if kind == "outcome":
                later.add(piece)
            elif kind == "nothing_new" and isinstance(piece, str) and piece in pieces:
                # An earlier compaction may have an outcome with this piece: only an outcome after this row closes it.
                yield {**pieces[piece], "clock": None, **row, "name": piece}, piece not in later
            elif kind == "piece" and row.get("trigger") in PRECOMPACT_TRIGGERS and row.get("subagent") is None:
                yield row, row.get("name") not in closed

    def open_kept(self, agent: str) -> Row | None:
        """Return the `kept` row of an agent's compaction by reference that has no outcome yet, if there is one."""
        for row in reversed(self.rows):
            if row.get("agent") == agent and row.get("row") in ("kept", "outcome"):
                return row if isinstance(row.get("kept"), dict) and row.get("row") == "kept" else None
        return None

    def tells(self, agent: str | None, summary: object) -> bool:
        """Tell whether an agent's newest outcome already has this summary, and no piece waits for an outcome.

        Only for hooks that are processes of their own: a hook that is installed twice (by the plugin and by `init`)
        reports each compaction twice. A process that holds a whole session reports each compaction once, and two of its
        compactions may have the same summary: it must not ask this.
        """
        if not summary or self.open_piece(agent) is not None:
            return False
        newest = next((row for row in reversed(self.of_kind("outcome")) if row.get("agent") == agent), {})
        return newest.get("summary") == summary

    def last_outcome(self, agent: str | None) -> Row | None:
        """Return the outcome of the last compaction of an agent that took place; `None` if there was none."""
        outcomes = (row for row in reversed(self.of_kind("outcome")) if row.get("outcome") in TOOK_PLACE)
        return next((row for row in outcomes if row.get("agent") in {None, agent}), None)

    def just_told(self, fields: Row, now: int) -> Row | None:
        """Return the outcome, written a moment ago, of the same compaction that `fields` describe; else `None`.

        PostCompact knows the summary, the boundary knows the sizes, and either may come first. The two belong together
        if each has what the other lacks and they are at most `_BESIDE` apart.
        """
        last = self.last_outcome(fields.get("agent"))
        if last is None or not last.get("piece"):
            return None
        told = [row.get("summary") is not None for row in (last, fields)]
        sized = [row.get("tokens_before") is not None for row in (last, fields)]
        recent = layout.stamp(now - _BESIDE) <= layout.stamp_of(str(last.get("time"))) <= layout.stamp(now)
        apart = sized[0] if told == [False, True] else told == [True, False] and sized == [False, True]
        return last if recent and apart else None


def parse(data: bytes) -> Manifest:
    """Return the rows of a manifest; never raises, whatever the bytes are."""
    import json

    rows: list[Row] = []
    unreadable: list[tuple[int, bytes]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        valid = _valid(row) if isinstance(row, dict) else None
        if valid is not None:
            rows.append(valid)
        if valid is not row or valid is None:
            unreadable.append((number, line))
    return Manifest(rows=tuple(rows), unreadable=tuple(unreadable))


def _valid(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row without the fields of a wrong type; the row itself if there are none. `None` if its kind is no text.

    So no reader of a field has to check its type. Rows of kinds that we do not know stay as they are.
    """
    kind = row.get("row")
    if not isinstance(kind, str | None):
        return None
    # One row `{"row":"outcome","piece":[]}` stopped a session's archive, and gave tracebacks in list, verify and
    # restore.
    if kind not in _OURS:
        return row
    odd = {name for name, value in row.items() if value is not None and not _is_of_kind(name, value)}
    return {name: value for name, value in row.items() if name not in odd} if odd else row


def _is_of_kind(name: str, value: object) -> bool:
    if name in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    if name == "sha256":  # also its shape: no bytes can match a damaged hash, so the piece would be refused for ever
        return isinstance(value, str) and len(value) == 64 and not value.strip("0123456789abcdef")
    return isinstance(value, _KINDS.get(name, object))


def dump(rows: Iterable[Row]) -> bytes:
    """Return rows as bytes of the file: one line of ASCII each, ended by a newline."""
    import json

    return "".join(json.dumps(row, separators=(",", ":"), default=str) + "\n" for row in rows).encode("ascii")


def new_row(kind: str, moment: int | str, **fields: Any) -> dict[str, Any]:
    """Return a row of our version with its time (UTC, ISO 8601); fields that are `None` are left out.

    `moment` is in microseconds since 1970, or the stamp of a name.
    """
    when = moment if isinstance(moment, str) else layout.stamp(moment)
    time = f"{when[:4]}-{when[4:6]}-{when[6:11]}:{when[11:13]}:{when[13:]}"
    return {
        "v": VERSION,
        "row": kind,
        "time": time,
        **{key: value for key, value in fields.items() if value is not None},
    }


def late_row(moment: int, piece: str, fields: Row) -> dict[str, Any]:
    """Return a `sizes` row: the fields of an outcome that became known after it."""
    return new_row("sizes", moment, piece=piece, **{name: fields.get(name) for name in LATER})


def pieces_of(files: Iterable[StoredFile], manifest: Manifest) -> list[Piece]:
    """Return the pieces among the files, in the order of stream, chain and time, each with its row of the manifest.

    A piece that is there both plain and packed (packing was interrupted) counts as plain.
    """
    best: dict[str, tuple[PieceName, StoredFile]] = {}
    for file in files:
        name = layout.parse_piece_name(file.name)
        if name is not None and (not name.packed or name.plain not in best):
            best[name.plain] = (name, file)
    rows = manifest.pieces()
    ordered = sorted(best.values(), key=lambda each: (each[0].stream, each[0].chain, each[0].stamp))
    result: list[Piece] = []
    for name, file in ordered:
        row = rows.get(name.plain)
        same_chain = result and (result[-1].subagent, result[-1].chain) == (name.subagent, name.chain)
        previous = result[-1] if same_chain else None
        result.append(_piece(name, file, row, previous))
    return result


def summaries(files: Iterable[StoredFile]) -> list[SessionSummary]:
    """Return the sessions that an archive's files belong to, the one that was archived last first."""
    groups: dict[str, list[StoredFile]] = {}
    pieces: dict[str, int] = {}
    for file in files:
        name = layout.parse_piece_name(file.name)
        session_id = layout.session_of(file.name) if name is None else name.session_id
        if session_id is not None:
            groups.setdefault(session_id, []).append(file)
            pieces[session_id] = pieces.get(session_id, 0) + (name is not None)
    found = [
        SessionSummary(
            session_id=session_id,
            pieces=pieces[session_id],
            stored=sum(file.size for file in group),
            newest_ns=max(file.mtime_ns for file in group),
            files=tuple(file.name for file in group),
        )
        for session_id, group in groups.items()
    ]
    return sorted(found, key=lambda each: (-each.newest_ns, each.session_id))


def _piece(name: PieceName, file: StoredFile, row: Row | None, previous: Piece | None) -> Piece:
    known = row or {}
    full = known.get("mode") == "full"
    length = count(known.get("length")) if name.packed else file.size
    # The files give the offset. The row's own offset only shows a contradiction: then bytes before this piece are lost,
    # or the row is wrong, and the offset counts as unknown until `verify` finds out which.
    offset: int | None = 0 if full or previous is None else previous.end
    stated = count(known.get("offset"))
    if stated is not None and stated != offset:
        offset = None
    return Piece(
        name=file.name,
        session_id=name.session_id,
        subagent=name.subagent,
        chain=name.chain,
        stamp=name.stamp,
        ext=name.ext,
        packed=name.packed,
        offset=offset,
        length=length,
        stored=file.size,
        mtime_ns=file.mtime_ns,
        mode="full" if full else "incremental",
        row=row,
        remote=file.remote,
    )


def count(value: object) -> int | None:
    """Return the value if it is an integer from 0, else `None`."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def chains_of(pieces: Sequence[Piece], subagent: str | None) -> list[list[Piece]]:
    """Return one transcript's pieces by chain, the newest chain last.

    A number far above the count of chains is in the name of a file that somebody else put there. It is sorted first, so
    that no archive continues it: numbers end at 999,999, and after a planted 999999 the session was never archived
    again.
    """
    chains: dict[int, list[Piece]] = {}
    for piece in pieces:
        if piece.subagent == subagent:
            chains.setdefault(piece.chain, []).append(piece)
    places = {number: place for place, number in enumerate(sorted(chains))}
    return [chains[number] for number in sorted(chains, key=lambda each: (each <= places[each] + 1 + _MOST_GAP, each))]


def without_row(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces without a row: the manifest was lost or cut, or a writer was killed before it wrote the row."""
    return [piece for piece in pieces if piece.row is None]


def gone(pieces: Iterable[Piece], manifest: Manifest) -> list[str]:
    """Return the names of pieces that the manifest knows and that are there neither plain nor packed.

    Pieces that were removed on purpose do not count, even if that removal was interrupted.
    """
    there = {piece.plain for piece in pieces} | manifest.removed()
    return sorted(name for name in manifest.pieces() if name not in there)
