"""What is known of a machine: frozen records, made by `gather` and read by `checks`.

`None` in a field of `Facts` means that it was not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mala_context.config import ContextConfig


@dataclass(frozen=True, slots=True)
class Program:
    """One Claude Code CLI."""

    path: str
    source: str
    """Whose it is: `the SDK's own`, `on PATH`, or `installed`."""
    version: str | None = None
    """As `1.2.3`; `None` where it printed none."""
    error: str | None = None
    """Why it could not be asked."""


@dataclass(frozen=True, slots=True)
class HookProof:
    """How a short session with our hooks went, against a scripted API on the loopback."""

    archived: bool = False
    """Whether PreCompact fired and archived the transcript."""
    seconds: float = 0.0
    error: str | None = None
    """Why the session itself failed."""


@dataclass(frozen=True, slots=True)
class PathMode:
    """A file or a directory and who may do what with it."""

    path: str
    mode: int
    """Permission bits."""
    owner: int = 0
    """User id."""
    directory: bool = False
    regular: bool = True


@dataclass(frozen=True, slots=True)
class RunsDirectory:
    """The directory below which archives are kept."""

    path: str | None
    error: str | None = None
    """Why there is no place, or why it cannot be written to."""
    us: int = 0
    """Our own user id."""
    directories: tuple[PathMode, ...] = ()
    """The runs directory itself, if it exists, and the directories in it that are ours to keep private."""
    archives: int = 0


@dataclass(frozen=True, slots=True)
class ClaudeDirectory:
    """Where Claude Code keeps its settings and transcripts."""

    path: str | None
    """The directory, or the value of the variable that should name it; `None` where nothing names it."""
    error: str | None = None
    """Why nothing can be kept there, or found."""
    variable: str = "HOME"
    """The variable that it comes from."""
    there: bool = True
    """Whether the folder of transcripts exists already."""


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """The object store that archives go to, and how a test write to it went."""

    address: str
    """Its address, which never holds a credential."""
    seconds: float = 0.0
    """How long it took to write, read and remove a few bytes."""
    error: str | None = None
    installed: bool = True
    """Whether the library for it is installed."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The disk that archives go to."""

    path: str
    free: int
    """Bytes that we may still write."""
    stored: int = 0
    """Bytes that all archives take."""
    per_day: float = 0.0
    """Bytes that archives gained a day lately, by the times in the names of pieces."""
    estimated: bool = False
    """Whether `stored` is projected from the newest sessions, because there are too many to look at."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One settings file of Claude Code."""

    source: str
    """`managed`, `local`, `project`, `user` or `global`."""
    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Its contents; empty where it could not be read."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One `mala.yaml` that was read."""

    path: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnarchivedProject:
    """The transcripts of one project folder whose compactions are in no archive."""

    folder: str
    cwd: str | None
    """Working directory of the newest of them, where it still exists."""
    transcripts: tuple[str, ...]
    compactions: int
    """Compactions that no archive covers."""
    known: bool = False
    """Whether an archive has earlier parts of all these sessions, so that it can catch up by itself."""


@dataclass(frozen=True, slots=True)
class TranscriptFacts:
    """What was seen of the CLI's own transcripts."""

    files: int = 0
    """Transcripts that exist."""
    searched: int = 0
    """Those of them that were searched for compactions; the newest."""
    unarchived: tuple[UnarchivedProject, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMaps:
    """What fills the contexts of the newest sessions."""

    sessions: int
    """How many were read."""
    memory: Mapping[str, float]
    """Memory file → the largest share of the window that it takes in one of them."""
    idle_servers: Mapping[str, int]
    """MCP server of which no tool was called in any of them → tokens of its tools in the last one."""


@dataclass(frozen=True, slots=True)
class DamagedArchive:
    """One archive in which something is wrong."""

    location: str
    problems: tuple[str, ...]
    """`path: what is wrong`, each."""


@dataclass(frozen=True, slots=True)
class VerifiedArchives:
    """What was verified of all archives."""

    sessions: int = 0
    verified: int = 0
    """Sessions that were read; the newest."""
    damaged: tuple[DamagedArchive, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadableFiles:
    """Files with a transcript's text in them that other users can read."""

    root: str
    """The directory below which they lie: the runs directory, or the CLI's projects."""
    files: tuple[PathMode, ...]
    looked: int = 0
    """Files that were looked at."""
    complete: bool = True
    """Whether that was all of them."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a machine."""

    repo: str = ""
    """The repository that was asked about."""
    config: ContextConfig = field(default_factory=ContextConfig)
    """Its configuration; the defaults where it cannot be used."""
    sdk: str | None = None
    """Version of the installed claude-agent-sdk, as `1.2.3`."""
    programs: tuple[Program, ...] | None = None
    hooks: HookProof | None = None
    claude: ClaudeDirectory | None = None
    stores: tuple[StoreProbe, ...] | None = None
    """Empty where none is named."""
    runs: RunsDirectory | None = None
    space: DiskSpace | None = None
    settings: tuple[SettingsFile, ...] | None = None
    """The strongest first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The few variables that the checks look at, where they are set."""
    configs: tuple[ConfigFile, ...] | None = None
    maps: ContextMaps | None = None
    transcripts: TranscriptFacts | None = None
    verified: VerifiedArchives | None = None
    readable: tuple[ReadableFiles, ...] | None = None
    models: Mapping[str, str] | None = None
    """Model → where it was seen."""
