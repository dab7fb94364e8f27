"""The frozen records of the archive, and the decorator that makes them.

`dataclasses` costs a hook process about 18 ms of import, more than the rest of the archive together, so these records
are made by forty lines of our own. To a type checker they look like frozen, keyword-only dataclasses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")

    @dataclass_transform(frozen_default=True, kw_only_default=True)
    def record(cls: type[T]) -> type[T]: ...  # noqa: D103  # the type checker's view of the function below

else:

    def record(cls: type) -> type:
        """Make a class with annotated attributes a frozen record with keyword arguments, equality, hash and repr."""
        fields = tuple(cls.__annotations__)
        defaults = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}

        names, required = frozenset(fields), frozenset(fields) - defaults.keys()

        def __init__(self: object, **values: object) -> None:  # noqa: N807  # becomes the class's own method
            if not required <= values.keys() <= names:
                unknown, missing = sorted(values.keys() - names), sorted(required - values.keys())
                raise TypeError(f"{cls.__name__}: unknown {unknown}, missing {missing}")
            self.__dict__.update(defaults)
            self.__dict__.update(values)

        def __setattr__(self: object, name: str, value: object) -> None:  # noqa: ARG001, N807  # likewise
            raise AttributeError(f"{cls.__name__} is frozen: cannot set {name}")

        def __delattr__(self: object, name: str) -> None:  # noqa: ARG001, N807  # likewise
            raise AttributeError(f"{cls.__name__} is frozen: cannot delete {name}")

        def __eq__(self: object, other: object) -> bool:  # noqa: N807  # likewise
            return self.__dict__ == other.__dict__ if type(other) is cls else NotImplemented

        def __hash__(self: object) -> int:  # noqa: N807  # likewise
            return hash(tuple(self.__dict__[name] for name in fields))

        def __repr__(self: object) -> str:  # noqa: N807  # likewise
            return f"{cls.__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in fields)})"

        for method in (__init__, __setattr__, __delattr__, __eq__, __hash__, __repr__):
            setattr(cls, method.__name__, method)
        return cls


@record
class StoredFile:
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
    """The address of the object store that alone holds it; `None` where it is here."""


@record
class PieceName:
    """What the name of a piece says; see `docs/reference/archive-format.md`."""

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


@record
class Piece:
    """One piece of an archive: what its file is, with what the manifest knows about it."""

    name: str
    """Name of the file as it is now, `….zst` where it is packed."""
    session_id: str
    subagent: str | None
    chain: int
    stamp: str
    ext: str
    packed: bool
    offset: int | None
    """Where the piece starts in the transcript, in bytes; `None` where a gap before it makes that unknown."""
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
    """The address of the object store that alone holds it; `None` where it is here."""

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


@record
class ArchiveResult:
    """What one call of `TranscriptArchive.archive` did; nothing is to be done next."""

    session_id: str
    path: str | None
    """Path of the new piece; `None` where none was written."""
    reason: str
    """`archived`, or why there is no new piece: `nothing new`, `empty`, `incomplete row`, `another hook archived`."""
    bytes: int = 0
    """Bytes of the new piece."""
    offset: int = 0
    """Where the piece starts in the transcript; without a piece, up to where it is archived."""
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


@record
class SessionSummary:
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
