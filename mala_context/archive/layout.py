"""The archive's format: names of files, places of directories, and the frozen records that other modules pass around.

Functions on names are pure. Functions on places read the environment that they are given, and the file system. No
function here writes anything.

A session id has no dot (`transcripts.session_ids`), because a dot separates the parts that we add: `SESSION.agent-ID`,
`SESSION.2`, `SESSION.manifest.jsonl`. So the glob `SESSION_*` names the first chain of the main transcript and no other
file of that session.

Importing `dataclasses` costs a hook process about 18 ms, more than the rest of the archive together. So `Frozen` makes
the records here. A type checker sees frozen, keyword-only dataclasses.
"""

from __future__ import annotations

import os
import time

from mala_context._util.safe_open import READ, Held
from mala_context.transcripts.projects import home_dir
from mala_context.transcripts.session_ids import AGENT_ID_MAX, SESSION_ID_MAX, is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any, ClassVar, Self, dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        """Do nothing: the real one is in `typing`, which a hook does not load."""
        return lambda cls: cls


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Frozen:
    """A record. Its annotations are its fields: each is given by name and never changes."""

    _fields: ClassVar[dict[str, Any]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        # The class is asked: from Python 3.14 on an object does not find the annotations of a module without the
        # `__future__` import.
        if fields := cls.__annotations__:
            cls._fields = fields
            cls._defaults = {name: vars(cls)[name] for name in fields if name in vars(cls)}

    def __init__(self, **values: Any) -> None:
        """Take all fields that have no default; raises `TypeError` for others."""
        fields, given = self._fields.keys(), self._defaults | values
        if given.keys() != fields:
            unknown, missing = sorted(given.keys() - fields), sorted(fields - given.keys())
            raise TypeError(f"{self.__class__.__name__}: unknown {unknown}, missing {missing}")
        vars(self).update(given)

    def but(self, **changes: Any) -> Self:
        """Return a copy with other values in some fields."""
        return self.__class__(**{**vars(self), **changes})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self.__class__.__name__} is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self.__class__.__name__} is frozen: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self._fields))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{self.__class__.__name__}({values})"


class StoredFile(Frozen):
    """One file of an archive, as the store lists it."""

    name: str
    """Name inside the archive's directory; never a path."""
    size: int
    """Bytes as stored; of a packed piece the packed ones."""
    mtime_ns: int
    """Modification time in nanoseconds since 1970."""
    mode: int = 0o600
    """Permission bits; 0o600 where the store has none."""
    remote: str | None = None
    """The address of the object store, if only that holds the file; `None` if the file is here."""


class PieceName(Frozen):
    """The parts of a piece's name; see `docs/reference/archive-format.md`."""

    session_id: str
    subagent: str | None
    """The subagent whose own transcript this is; `None` for the session's main transcript."""
    chain: int
    """Chain number, from 1; a transcript that was rewritten or shrank starts the next one."""
    stamp: str
    """UTC time of the archive, `YYYYMMDDTHHMMSS.ffffffZ`; ordered as text."""
    ext: str
    """Extension of the transcript with its dot."""
    packed: bool = False
    """Whether the file holds the piece compressed."""

    @property
    def stream(self) -> str:
        """The transcript that the piece belongs to: `SESSION` or `SESSION.agent-ID`."""
        return self.session_id if self.subagent is None else f"{self.session_id}.agent-{self.subagent}"

    @property
    def plain(self) -> str:
        """Name of the plain piece, which is also the manifest's key for a packed one."""
        chain = "" if self.chain == 1 else f".{self.chain}"
        return f"{self.stream}{chain}_{self.stamp}_transcript{self.ext}"


class Piece(Frozen):
    """One piece of an archive: its file, and the manifest's row for it."""

    name: str
    """Name of the file as it is now, `….zst` where it is packed."""
    session_id: str
    subagent: str | None
    chain: int
    stamp: str
    ext: str
    packed: bool
    offset: int | None
    """Where the piece starts in the transcript, in bytes; `None` if a gap before it makes that unknown."""
    length: int | None
    """Bytes of the plain piece; `None` where it is packed and the manifest does not know."""
    stored: int
    """Bytes on disk."""
    mtime_ns: int
    mode: str
    """`incremental` (what the transcript gained) or `full` (the whole transcript)."""
    row: Mapping[str, Any] | None = None
    """The manifest's row for it, unknown fields included; `None` where there is none."""
    remote: str | None = None
    """The address of the object store, if only that holds the piece; `None` if the piece is here."""

    @property
    def plain(self) -> str:
        """Name of the plain piece, which is also the manifest's key for a packed one."""
        return self.name[: -len(".zst")] if self.packed else self.name

    @property
    def sha256(self) -> str | None:
        """Hash of the plain bytes as the manifest has it, in hexadecimal."""
        value = self.row.get("sha256") if self.row else None
        return value if isinstance(value, str) else None

    @property
    def end(self) -> int | None:
        """Where the piece ends in the transcript, in bytes."""
        return None if self.offset is None or self.length is None else self.offset + self.length


class ArchiveResult(Frozen):
    """What one call of `TranscriptArchive.archive` did; nothing is to be done next."""

    session_id: str
    path: str | None
    """Path of the new piece; `None` where none was written."""
    reason: str
    """`archived`, or why there is no new piece: `nothing new`, `empty`, `incomplete row`, `another hook archived`."""
    bytes: int = 0
    """Bytes of the new piece."""
    offset: int = 0
    """Where the piece starts in the transcript. If no piece was written: how many of its bytes are archived."""
    chain: int = 1
    new_chain: bool = False
    """Whether the transcript was rewritten or shrank, so that this piece holds all of it."""
    sha256: str | None = None
    """Hash of the new piece, in hexadecimal."""
    transcript: str | None = None
    """The file that was read."""

    @property
    def archived(self) -> bool:
        """Whether a piece was written."""
        return self.path is not None


class SessionSummary(Frozen):
    """One archived session, as `TranscriptArchive.sessions` lists it."""

    session_id: str
    pieces: int
    """Number of pieces, subagents' included."""
    stored: int
    """Bytes on disk, side files and manifest included."""
    newest_ns: int
    """Modification time of the session's newest file: its age counts from here."""
    files: tuple[str, ...] = ()
    """Names of all its files."""


REPO_KEY_MAX = 200
ARCHIVES = "archives"
REPO_MARKER = ".repo-path"
PACKED = ".zst"

_MARK = "_transcript."


def extension(transcript: str) -> str:
    """Return the transcript's extension with its dot, `.txt` where it has none that can be part of a name."""
    ext = os.path.splitext(transcript)[1]
    return ext if 2 <= len(ext) <= 16 and ext.isascii() and ext[1:].isalnum() else ".txt"


def now() -> int:
    """Return the microseconds since 1970."""
    return time.time_ns() // 1000


def stamp(microseconds: int) -> str:
    """Return the UTC time of a piece's name from microseconds since 1970."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f".{rest:06d}Z"


def stamp_microseconds(text: str) -> int:
    """Return the microseconds since 1970 of a stamp; raises `ValueError` where it is no date."""
    # Only the next stamp after one that is not in the past needs this: a clock that was set back, or two pieces in one
    # microsecond.
    from datetime import UTC, datetime, timedelta  # strptime would cost a hook 3 ms more

    date = int(text[:4]), int(text[4:6]), int(text[6:8])
    clock = int(text[9:11]), int(text[11:13]), int(text[13:15]), int(text[16:22])
    return (datetime(*date, *clock, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def stamp_of(time: str) -> str:
    """Return the stamp of a manifest row's time (ISO 8601 with microseconds); for another text an invalid stamp."""
    return time.replace("-", "").replace(":", "")


def next_stamp(now_microseconds: int, previous: str | None) -> str:
    """Return the stamp of the next piece: now, or just after the previous stamp if the clock was set back.

    The order of the names is the order of a chain's bytes, so stamps must never go back.
    """
    now = stamp(now_microseconds)
    if previous is None or now > previous:
        return now
    return stamp(stamp_microseconds(previous) + 1)


def piece_name(session_id: str, subagent: str | None, chain: int, when: str, ext: str) -> str:
    """Return the name of a plain piece."""
    return PieceName(session_id=session_id, subagent=subagent, chain=chain, stamp=when, ext=ext).plain


def parse_piece_name(name: str) -> PieceName | None:
    """Return the parts of a piece's name, or `None` for a name that no archive gives."""
    # A transcript may end in .zst itself: `…_transcript.zst` is a plain piece of it, `…_transcript.jsonl.zst` is
    # packed.
    packed = name.endswith(PACKED) and name.count(".", name.rfind("_")) == 2
    plain = name[: -len(PACKED)] if packed else name
    left, mark, ext = plain.rpartition(_MARK)
    if not mark or not 1 <= len(ext) <= 15 or not (ext.isascii() and ext.isalnum()):
        return None
    key, _, when = left.rpartition("_")
    if not _is_stamp(when):
        return None
    session_id, *rest = key.split(".")
    subagent = rest.pop(0)[len("agent-") :] if rest and rest[0].startswith("agent-") else None
    number = rest.pop(0) if rest else "1"
    if (
        rest
        or not is_plain(session_id, SESSION_ID_MAX)
        or (subagent is not None and not is_plain(subagent, AGENT_ID_MAX))
    ):
        return None
    # At most 999,999 and no leading zero: one number must have one spelling, and `manifests.chains_of` sorts by it.
    if not (number.isascii() and number.isdigit() and len(number) <= 6 and not number.startswith("0")):
        return None
    chain = int(number)
    # One piece, one name: the first chain is written without a number, so that the glob `SESSION_*` finds it alone.
    if chain == 1 and key.endswith(".1"):
        return None
    return PieceName(session_id=session_id, subagent=subagent, chain=chain, stamp=when, ext=f".{ext}", packed=packed)


def plain_name(name: str) -> str:
    """Return the name that a file had before it was packed."""
    parsed = parse_piece_name(name)
    return name if parsed is None else parsed.plain


def _is_stamp(text: str) -> bool:
    digits = text[:8] + text[9:15] + text[16:22]
    if len(text) != 23 or text[8] + text[15] + text[22] != "T.Z" or not (digits.isascii() and digits.isdigit()):
        return False
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    if year < 1970 or not 1 <= month <= 12 or text[9:11] > "23" or text[11:13] > "59" or text[13:15] > "59":
        return False
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= (28 + leap if month == 2 else 30 if month in {4, 6, 9, 11} else 31)


def manifest_name(session_id: str) -> str:
    """Return the name of a session's manifest, which is also its lock."""
    return f"{session_id}.manifest.jsonl"


def side_file_name(session_id: str, sha256: str) -> str:
    """Return the name under which a side file is kept, once for each content."""
    return f"{session_id}.file-{sha256}"


def session_of(name: str) -> str | None:
    """Return the session that a stored file belongs to, or `None` for a temporary or foreign file."""
    if name.endswith(".manifest.jsonl"):
        candidate = name[: -len(".manifest.jsonl")]
        return candidate if is_plain(candidate, SESSION_ID_MAX) else None
    # A session id has no dot, so the first ".file-" ends it.
    head, mark, digest = name.partition(".file-")
    if mark and len(digest) == 64 and is_plain(head, SESSION_ID_MAX):
        return head
    parsed = parse_piece_name(name)
    return parsed.session_id if parsed else None


def repo_key(path: str, *, hashed: bool = False) -> str:
    """Return the name of a repository's directory from its absolute path: `/` becomes `-`.

    If that is too long, or another repository already has it (`hashed`), the key is a readable part and a hash.
    """
    key = path.replace("/", "-")
    if not hashed and len(os.fsencode(key)) <= REPO_KEY_MAX:
        return key
    from hashlib import sha256

    digest = sha256(os.fsencode(path)).hexdigest()[:12]
    readable = os.fsencode(key)[: REPO_KEY_MAX - len(digest) - 1]
    return f"{readable.decode('utf-8', 'ignore')}-{digest}"


def runs_dir(env: Mapping[str, str] | None = None) -> str:
    """Return the runs directory; raises `ArchiveUnavailableError` where the environment leaves no place for one.

    `$MALA_RUNS_DIR`, else `$XDG_CONFIG_HOME/mala/runs`, else `~/.config/mala/runs`. A variable that is empty or
    relative is skipped, because it would end below the working directory; so is a home that is `/` or is not there.
    """
    values = os.environ if env is None else env
    own = values.get("MALA_RUNS_DIR", "")
    if os.path.isabs(own):
        return own
    config = values.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(config):
        return os.path.join(config, "mala", "runs")
    home = home_dir(values)
    if home is not None:
        return os.path.join(home, ".config", "mala", "runs")
    from mala_context.errors import ArchiveUnavailableError

    raise ArchiveUnavailableError("no home directory to keep archives in: set MALA_RUNS_DIR to an absolute path")


def repo_runs_dir(repo_path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> str:
    """Return `get_repo_runs_dir` as text, without the cost of `pathlib`."""
    path = os.path.realpath(os.fspath(repo_path))
    runs = runs_dir(env)
    plain = os.path.join(runs, repo_key(path))
    # `/a/b-c` and `/a-b/c` have the same key: whoever wrote the marker first keeps it, the other gets a hash.
    holder = read_marker(plain)
    if holder is None or holder == path:
        return plain
    return os.path.join(runs, repo_key(path, hashed=True))


def read_marker(directory: str) -> str | None:
    """Return the repository that claimed a directory of the runs directory, or `None` where none did."""
    try:
        fd = os.open(os.path.join(directory, REPO_MARKER), READ)
    except OSError:
        return None
    with Held(fd):
        try:
            return os.fsdecode(os.read(fd, 65536)) or None
        except OSError:
            return None


def get_repo_runs_dir(repo_path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the repository `repo_path` below the runs directory that `env` names; nothing is created.

    `/home/cyou/mala` gives `{runs}/-home-cyou-mala`. Where another repository has claimed that name (`/a/b-c` and
    `/a-b/c`), or it is too long, a short hash follows the readable part. Raises `ArchiveUnavailableError` where there
    is no place at all; then go on without an archive and name `MALA_RUNS_DIR` to the user.
    """
    from pathlib import Path

    return Path(repo_runs_dir(repo_path, env))


def known_archives(env: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield, for each archive, the path of its repository (its key where that is unknown) and its directory.

    They come in the order of their keys; links are skipped. A runs directory that does not exist has no archives.
    Raises `ArchiveUnavailableError` if there is no place for a runs directory, and `OSError` if it cannot be read.
    """
    runs = runs_dir(env)
    try:
        keys = sorted(os.listdir(runs))
    except FileNotFoundError:
        return
    for key in keys:
        directory = os.path.join(runs, key, ARCHIVES)
        if os.path.isdir(directory) and not os.path.islink(directory):
            yield read_marker(os.path.join(runs, key)) or key, directory
