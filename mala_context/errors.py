"""Every error that this package raises on its own account.

::

    MalaContextError
    ├── ConfigError (also ValueError)           mala.yaml cannot be used; lists every problem found
    ├── ContextPressureError                    `restart_at` is set and was reached
    ├── BaselineError                           the CLI does not say what a fresh session holds
    ├── RecordingNotFoundError (LookupError)    a path to replay that is not there
    ├── ClusterError                            a cluster for replay that cannot be used
    └── ArchiveError
        ├── ArchiveUnavailableError             there is no directory to write to, or it is not safe
        ├── ArchiveBusyError (TimeoutError)     another process has held the session for longer than we may wait
        ├── TranscriptError                     a transcript that cannot be archived: missing, no regular file, …
        ├── InvalidSessionIdError (ValueError)  a session id that cannot be part of a file's name
        ├── SessionNotFoundError (LookupError)  no archive holds that session
        ├── PartNotFoundError (LookupError)     the session is there, but not that compaction, chain or agent
        ├── ObjectStoreError                    an object store cannot be used now, or its library is not installed
        └── CorruptArchiveError                 a piece is missing, cut, or does not match its hash

Each error carries its facts as attributes, so that a caller never has to parse a message.
"""

# No `from __future__ import annotations`: the first annotation that `typing` has to compile takes 2 ms of every start.
from typing import NamedTuple


class MalaContextError(Exception):
    """Base of all errors of this package. All of them survive a process boundary with their attributes."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by message and attributes, since the message alone does not rebuild an error."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[MalaContextError], args: tuple[object, ...], attributes: dict[str, object]) -> MalaContextError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigProblem(NamedTuple):
    """One problem of a configuration."""

    key: str
    """Dotted path of the key, e.g. `context.guard.buffer_tokens`; empty for the file itself."""
    message: str
    """What was found and what would be right."""
    line: int | None = None
    """Line in the file, counted from 1; `None` where there is none."""


class ConfigError(MalaContextError, ValueError):
    """A configuration that cannot be used.

    Attributes:
        problems: every problem found, in the order of the file.
        path: the file, where there is one.
    """

    def __init__(self, message: str, *, problems: tuple[ConfigProblem, ...] = (), path: str | None = None) -> None:
        super().__init__(message)
        self.problems = problems
        self.path = path


class ContextPressureError(MalaContextError):
    """The context is fuller than `restart_at` allows; start a fresh session from a checkpoint.

    Attributes:
        session_id: the session that has to be left.
        input_tokens: uncached input tokens since the last reset.
        output_tokens: output tokens since the last reset.
        cache_read_tokens: tokens read from the prompt cache since the last reset.
        pressure_ratio: the ratio that reached the threshold; may exceed 1.0.
    """

    def __init__(
        self,
        session_id: str,
        input_tokens: int,
        output_tokens: int,
        cache_read_tokens: int,
        pressure_ratio: float,
    ) -> None:
        super().__init__(
            f"Context pressure {pressure_ratio:.1%} in session {session_id} "
            f"(input={input_tokens}, output={output_tokens}, cache_read={cache_read_tokens})"
        )
        self.session_id = session_id
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cache_read_tokens = cache_read_tokens
        self.pressure_ratio = pressure_ratio


class BaselineError(MalaContextError):
    """The CLI does not say what a fresh session holds, neither to the SDK nor by its `/context` command.

    Attributes:
        reason: why the SDK gave no answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"no baseline: {reason}, and /context printed no counts")
        self.reason = reason


class RecordingNotFoundError(MalaContextError, LookupError):
    """A path of recorded sessions is not there, or a pattern matches nothing.

    Attributes:
        path: the path or pattern that was asked for.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"no such file, folder or match: {path}")
        self.path = path


class ClusterError(MalaContextError):
    """A Dask cluster cannot be used: not installed, not reachable, or its workers cannot read the recordings.

    Attributes:
        reason: the reason, in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"cluster: {reason}")
        self.reason = reason


class ArchiveError(MalaContextError):
    """An archive that cannot be written or read."""


class ArchiveUnavailableError(ArchiveError):
    """There is no directory to write archives to, or the directory is not safe to write to.

    Attributes:
        path: the directory, where one was found.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class ArchiveBusyError(ArchiveError, TimeoutError):
    """Another process has held the session's archive for longer than we may wait; try again later.

    Attributes:
        session_id: the session.
        waited: seconds spent waiting.
    """

    def __init__(self, session_id: str, waited: float) -> None:
        super().__init__(f"the archive of session {session_id} is held by another process (waited {waited:.1f} s)")
        self.session_id = session_id
        self.waited = waited


class TranscriptError(ArchiveError):
    """A transcript that cannot be archived.

    Attributes:
        path: the path as it came, which may hold anything.
        reason: `missing`, `unreadable`, `not a regular file`, `changing`, or `empty path`.
    """

    def __init__(self, path: object, reason: str, detail: str = "") -> None:
        super().__init__(f"transcript {path!r:.300}: {reason}" + (f" ({detail})" if detail else ""))
        self.path = path
        self.reason = reason


class InvalidSessionIdError(ArchiveError, ValueError):
    """A session's or a subagent's id that cannot become part of a file's name.

    Attributes:
        session_id: the id as it came, which may hold anything.
    """

    def __init__(self, session_id: object, reason: str, whose: str = "session") -> None:
        super().__init__(f"{whose} id {session_id!r:.120} cannot name a file: {reason}")
        self.session_id = session_id


class SessionNotFoundError(ArchiveError, LookupError):
    """No archive holds the session.

    Attributes:
        session_id: the id that was asked for.
        path: the archive that was searched.
        near: a session there whose id is nearly the same, if there is one.
    """

    def __init__(self, session_id: str, path: str, near: str | None = None) -> None:
        meant = "" if near is None else f"; did you mean {near}?"
        super().__init__(f"no archive of session {session_id} in {path}{meant}")
        self.session_id = session_id
        self.path = path
        self.near = near


class PartNotFoundError(ArchiveError, LookupError):
    """The session is archived, but not the part of it that was asked for.

    Attributes:
        session_id: the session.
        part: the missing part: a compaction, a chain or an agent.
    """

    def __init__(self, session_id: str, part: str, there: str) -> None:
        super().__init__(f"session {session_id} has no {part}; {there}")
        self.session_id = session_id
        self.part = part


class ObjectStoreError(ArchiveError):
    """An object store cannot be used now. Pieces that wait for their upload stay on disk and are tried again.

    Attributes:
        address: the store's address, without any credential.
        reason: the reason in our own words, because a store's answer may hold secrets.
        installed: whether the library for it is installed.
    """

    def __init__(self, address: str, reason: str, *, installed: bool = True) -> None:
        super().__init__(f"object store {address}: {reason}")
        self.address = address
        self.reason = reason
        self.installed = installed


class CorruptArchiveError(ArchiveError):
    """A piece of an archive is missing, cut, or does not match its hash.

    Attributes:
        path: the piece.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(f"{message}: {path}")
        self.path = path
