"""Check an archive: every hash, every permission, every gap. Repair what can be repaired.

The files are the truth, so a repair never touches a piece's bytes. It restores permissions, and rows of the manifest
that are missing, cut or state a wrong offset. It cannot repair a piece with a wrong hash, a lost piece or a lost side
file. If the transcript still exists, its next archive begins a new chain with all of it.
"""

from __future__ import annotations

import os
import stat

from mala_context.archive import layout, manifests
from mala_context.archive.atomic_write import ARCHIVE_TEMPORARY
from mala_context.archive.directory import set_mode
from mala_context.archive.increment import repair_pieces
from mala_context.archive.layout import Frozen
from mala_context.archive.reading import open_current
from mala_context.archive.source import digest_of
from mala_context.errors import ArchiveError, SessionNotFoundError
from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from mala_context.archive.interface import SessionFiles, SessionView
    from mala_context.archive.layout import Piece, StoredFile
    from mala_context.archive.manifests import Manifest
    from mala_context.archive.store import TranscriptArchive

    Progress = Callable[[int], object]

KINDS = {
    "directory": "others can enter the archives' directory",
    "mode": "others can read the file",
    "stray": "not a file of the archive, and others can read it",
    "hash": "the piece is not what its hash says",
    "packed": "the packed file is not what was written, though it still unpacks to the right bytes",
    "unreadable": "the piece cannot be read",
    "gone": "the manifest knows a piece that is not there",
    "gap": "bytes between two pieces are missing",
    "offset": "the manifest states another place than the files give",
    "row": "the manifest has no row for the piece",
    "manifest": "a line of the manifest is no row, or holds fields that cannot be understood",
    "side file": "a side file is gone or not what its hash says",
    "session": "the session cannot be read",
    "repair": "the session cannot be repaired now",
    "empty": "the session has a manifest and no piece",
}
"""Every kind of problem, in words."""


class ArchiveProblem(Frozen):
    """One thing that is wrong."""

    kind: str
    """A key of `KINDS`."""
    path: str
    """The file that it is about."""
    detail: str = ""
    session_id: str | None = None
    fixed: bool = False

    @property
    def text(self) -> str:
        """What is wrong, in words."""
        return KINDS[self.kind] + (f" ({self.detail})" if self.detail else "")


class VerifyReport(Frozen):
    """What `verify` found."""

    location: str
    """The archive's directory or address."""
    sessions: int
    """Sessions that were checked."""
    pieces: int
    """Pieces that were read."""
    bytes: int
    """Plain bytes of these pieces."""
    problems: tuple[ArchiveProblem, ...]
    """Whatever is wrong, with those problems that were fixed."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong any more."""
        return all(problem.fixed for problem in self.problems)


def verify_archive(
    archive: TranscriptArchive,
    session_ids: Sequence[str] | None = None,
    *,
    repair: bool = False,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check an archive, or the sessions of `session_ids`. With `repair`, fix the problems that can be fixed.

    `progress` is called with the bytes of each piece that was read. Raises `SessionNotFoundError` for a session that
    is not there, and `ArchiveUnavailableError` for the whole archive.
    """
    location = archive.location
    problems: list[ArchiveProblem] = []
    if session_ids is None:
        problems += _check_directory(location, repair=repair)
    listed = archive.listed()
    known = dict.fromkeys(each.session_id for each in listed.sessions(progress=getattr(progress, "found", None)))
    wanted = list(known) if session_ids is None else [check_session_id(each) for each in session_ids]
    count = size = 0
    for session_id in wanted:
        if session_id not in known:
            raise SessionNotFoundError(session_id, location)
        path = os.path.join(location, layout.manifest_name(session_id))
        try:
            check = _check(listed, session_id, progress)
            if check.problems:
                # No lock was held, so a writer may have been between a file and its row, and the listing may be old.
                # Only what is wrong a second time, with a new listing, is a problem.
                listed = listed.listed()
                check = _check(listed, session_id, None)
        except (ArchiveError, OSError) as error:  # one bad session must not end the check of the others
            # A manifest of mode 000 cannot be read. If its mode can be repaired, the session is checked after all.
            fixed = repair and set_mode(path, 0o600)
            problems.append(
                ArchiveProblem(kind="session", path=path, detail=str(error), session_id=session_id, fixed=fixed)
            )
            if not fixed:
                continue
            check = _check(listed.listed(), session_id, None)
        found = check.problems
        if repair and found:
            try:
                with archive.lock(session_id) as locked:
                    found = _repaired(locked, found)
            except (ArchiveError, OSError) as error:  # one bad session must not end the repair of the others
                found.append(ArchiveProblem(kind="repair", path=path, detail=str(error), session_id=session_id))
        problems += found
        count += check.pieces
        size += check.bytes
    return VerifyReport(location=location, sessions=len(wanted), pieces=count, bytes=size, problems=tuple(problems))


def _check(archive: TranscriptArchive, session_id: str, progress: Progress | None) -> _Check:
    with archive.view(session_id) as files:
        check = _Check(files, progress)
        check.run()
    return check


class _Check:
    """Reads all that one session has."""

    def __init__(self, files: SessionView, progress: Progress | None) -> None:
        self._files = files
        self._progress = progress
        self._packed: dict[Any, Any] = {}
        self.problems: list[ArchiveProblem] = []
        self.pieces = 0
        self.bytes = 0

    def run(self) -> None:
        listed = self._files.list()
        manifest = manifests.parse(self._files.manifest())
        pieces = manifests.pieces_of(listed, manifest)
        self.pieces = len(pieces)
        self._packed = {row.get("piece"): row.get("sha256") for row in manifest.of_kind("packed")}
        for file in listed:
            if file.mode & 0o177:
                self._say("mode", file.name, f"{file.mode:04o}")
        manifest_name = layout.manifest_name(self._files.session_id)
        for number, line in manifest.unreadable:
            self._say("manifest", manifest_name, f"line {number}: {line[:60]!r}")
        for name in manifests.gone(pieces, manifest):
            self._say("gone", name)
        if listed and not pieces and not manifest.of_kind("session"):
            self._say("empty", manifest_name)
        self._places(pieces)
        for piece in pieces:
            self._piece(piece)
        self._side_files(listed, manifest)

    def _say(self, kind: str, name: str, detail: str = "") -> None:
        path = self._files.path(name)
        self.problems.append(ArchiveProblem(kind=kind, path=path, detail=detail, session_id=self._files.session_id))

    def _places(self, pieces: Sequence[Piece]) -> None:
        """Compare where the rows say that pieces start with where the files put them.

        A piece that starts later than its files say has a gap before it, unless the next one starts where the files
        say.
        """
        for chain in _chains(pieces):
            position: int | None = 0
            for piece, following in zip(chain, [*chain[1:], None], strict=True):
                stated = _stated(piece)
                position = 0 if piece.mode == "full" else position
                if stated is not None and position is not None and stated != position:
                    end = None if piece.length is None else position + piece.length
                    # If the next piece starts where the files put it, only this row is wrong, and `--repair` corrects
                    # it. Else the bytes before this piece are lost, and no repair may hide that.
                    gap = stated > position and (following is None or end is None or _stated(following) != end)
                    self._say("gap" if gap else "offset", piece.name, f"stated {stated}, the files give {position}")
                    position = stated if gap else position
                position = None if position is None or piece.length is None else position + piece.length

    def _piece(self, piece: Piece) -> None:
        if piece.row is None:
            self._say("row", piece.name)
        try:
            digest, length = digest_of(open_current(self._files, piece))
        except (ArchiveError, OSError) as error:
            self._say("unreadable", piece.name, str(error))
            return
        self.bytes += length
        stated = piece.row.get("length") if piece.row else None
        if piece.sha256 is not None and digest != piece.sha256:
            self._say("hash", piece.name)
        elif isinstance(stated, int) and stated != length:
            self._say("hash", piece.name, f"{length} bytes instead of {stated}")
        # zstd ignores some damage: a packed piece that is cut by three bytes still unpacks to the right bytes. So the
        # packed file has a hash of its own.
        elif piece.packed and self._packed.get(piece.plain) not in {None, self._digest(piece.name)}:
            self._say("packed", piece.name)
        if self._progress is not None:
            self._progress(length)

    def _digest(self, name: str) -> str:
        return digest_of(self._files.open(name))[0]

    def _side_files(self, listed: Sequence[StoredFile], manifest: Manifest) -> None:
        there = {file.name for file in listed} | manifest.removed()
        for row in {row.get("path"): row for row in manifest.of_kind("file")}.values():
            name = row.get("name")
            if isinstance(name, str) and name not in there:
                self._say("side file", name, f"gone: {row.get('path')}")
        for file in listed:
            head, mark, expected = file.name.partition(".file-")
            if not mark or head != self._files.session_id:
                continue
            try:
                digest = self._digest(file.name)
            except (ArchiveError, OSError) as error:
                self._say("side file", file.name, str(error))
                continue
            if digest != expected:
                self._say("side file", file.name)


def _chains(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    for subagent in dict.fromkeys(piece.subagent for piece in pieces):
        yield from manifests.chains_of(pieces, subagent)


def _stated(piece: Piece) -> int | None:
    offset = piece.row.get("offset") if piece.row else None
    return offset if isinstance(offset, int) else None


def _check_directory(location: str, *, repair: bool) -> list[ArchiveProblem]:
    """Check the directory of a local archive, and what lies in it without being part of it."""
    try:
        status = os.lstat(location)
    except OSError:
        return []
    problems = []
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode) and mode & 0o077:
        fixed = repair and set_mode(location, 0o700)
        problems.append(ArchiveProblem(kind="directory", path=location, detail=f"{mode:04o}", fixed=fixed))
    for path, mode in strays(location):
        if mode & 0o177:
            fixed = repair and set_mode(path, 0o600)
            problems.append(ArchiveProblem(kind="stray", path=path, detail=f"{mode:04o}", fixed=fixed))
    return problems


def strays(location: str) -> list[tuple[str, int]]:
    """Return the path and the mode of each regular file of ours in a directory that is not part of the archive."""
    found = []
    try:
        with os.scandir(location) as entries:
            for entry in entries:
                if layout.session_of(entry.name) is not None or entry.name.startswith(ARCHIVE_TEMPORARY):
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                    found.append((entry.path, stat.S_IMODE(status.st_mode)))
    except OSError:
        return []
    return sorted(found)


def _repaired(files: SessionFiles, problems: Sequence[ArchiveProblem]) -> list[ArchiveProblem]:
    """Repair what can be repaired; return all problems, the repaired ones marked."""
    kinds = {problem.kind for problem in problems}
    done = {"row", "manifest", "offset"} & kinds
    now = layout.now()
    if "manifest" in done:
        _rewrite(files, now)
    if "row" in done:
        repair_pieces(files, manifests.pieces_of(files.list(), manifests.parse(files.manifest())), now)
    if "offset" in done:
        _correct(files, [problem for problem in problems if problem.kind == "offset"])
    # Only if nothing else is wrong: a manifest with unreadable rows may be all that tells of lost pieces.
    if kinds == {"empty"} or kinds == {"empty", "mode"}:
        done.add("empty")
        for file in files.list():
            files.remove(file.name)
    result = []
    for problem in problems:
        fixed = problem.kind in done or (problem.kind == "mode" and set_mode(problem.path, 0o600))
        result.append(problem.but(fixed=fixed))
    return result


def _rewrite(files: SessionFiles, now: int) -> None:
    """Write the manifest again. Lines that are no rows are kept as text, in rows of kind `unreadable`."""
    manifest = manifests.parse(files.manifest())
    kept: list[Any] = [
        manifests.new_row("unreadable", now, text=line.decode("utf-8", "backslashreplace"))
        for _, line in manifest.unreadable
    ]
    files.replace_manifest(manifests.dump([*manifest.rows, *kept]))


def _correct(files: SessionFiles, problems: Sequence[ArchiveProblem]) -> None:
    """Add rows with the offsets that follow from the files; the last row of a name counts."""
    names = {os.path.basename(problem.path).removesuffix(layout.PACKED) for problem in problems}
    pieces = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
    rows = []
    for chain in _chains(pieces):
        position = 0
        for piece in chain:
            if piece.mode == "full":
                position = 0
            if piece.plain in names and piece.row is not None:
                rows.append({**piece.row, "offset": position})
            if piece.length is None:
                break
            position += piece.length
    files.append(manifests.dump(rows))
