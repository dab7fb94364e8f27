"""The configuration as frozen records, whose defaults are the defaults of `mala.yaml`, and the archive they name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mala_context.archive.remote.address import PREFIX, Target, is_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.archive.store import TranscriptArchive

Estimator = Literal["occupancy", "cumulative", "max_cache_read", "total_tokens"]


@dataclass(frozen=True, slots=True)
class Retention:
    """What `prune` leaves at most; at least one bound is set."""

    days: int | None = None
    """Age in days of a session's newest piece."""
    bytes: int | None = None
    """Size of all archives of a repository, in bytes."""


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """How much of the window is kept free, and how large one tool result may be."""

    buffer_tokens: int = 8192
    """Tokens of the window that stay free."""
    max_output_tokens: int = 0
    """Tokens kept for the response; 0, since the CLI reserves its own."""
    tool_output_tokens: int | Literal["auto"] | None = None
    """Cap on one tool result in tokens; `None` for no cap."""


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """Where and how transcripts are archived."""

    enabled: bool = True
    """Archive before each compaction."""
    mode: Literal["incremental", "full"] = "incremental"
    """Content of one archive: the bytes since the last archive, or the whole transcript."""
    compress: Literal["none", "zstd"] = "none"
    """How pieces are packed after they were written."""
    directory: str | None = None
    """Folder or address such as `s3://bucket/prefix`; `None` for the runs directory of this repository."""
    prefix: str = PREFIX
    """What follows an address, with `{host}` and `{repo}` for the machine and the repository."""
    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """Server-side encryption to ask S3 for; `None` leaves it to the bucket."""
    kms_key: str | None = None
    """The key for `aws:kms` and `aws:kms:dsse`; `None` for the bucket's own."""
    at_session_end: bool = True
    """Archive what the last compaction has not archived when a session ends."""
    keep: Retention | None = None
    """What `prune` keeps; `None` for everything."""
    warn_bytes: int | None = 1_000_000_000
    """Size of a repository's archives, in bytes, above which a WARNING says so; `None` for never."""


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """What a compaction by reference keeps."""

    budget: int | None = None
    """Tokens that stay; `None` for 20,000, or a tenth of the window where that is less."""


@dataclass(frozen=True, slots=True)
class SubagentsConfig:
    """When to act in a subagent; thresholds are ratios of its own window."""

    warn_at: float | None = None
    """Ratio at which a WARNING is logged, and the subagent hears of it; `None` for never."""
    final_at: float | None = None
    """Ratio from which only finishing tools are allowed."""


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """The `context:` section of `mala.yaml`; thresholds are ratios of the window."""

    enabled: bool = True
    """Track at all."""
    estimator: Estimator = "occupancy"
    """The formula that says how full the context is."""
    window: int | Literal["auto"] = "auto"
    """Context window in tokens, or `auto` to ask the sources in order."""
    warn_at: float | None = 0.70
    """Ratio at which a WARNING is logged; `None` for never."""
    tell_agent: bool = True
    """Give that warning to the agent too."""
    compact_at: float | None = None
    """Ratio at which `/compact` is asked for between turns."""
    compact_focus: str | None = None
    """Words for `/compact`."""
    compact_idle: bool = False
    """Compact between turns shortly before the prompt cache lapses, where that is cheaper than a cold start."""
    restart_at: float | None = None
    """Ratio at which the session is ended and goes on in a fresh one from a checkpoint."""
    max_restarts: int = 3
    """Maximum of restarts in one run."""
    continuation_template: str | None = None
    """File with `{checkpoint}` that opens the fresh session."""
    final_at: float | None = None
    """Ratio from which only finishing tools are allowed."""
    finishing_tools: tuple[str, ...] = ("Write", "Edit", "TodoWrite", "Bash(git *)")
    """Tools of a final turn, by name or as `Name(pattern)`."""
    alarm_at: float | None = 0.05
    """Share of the projected request from which a request that differs from it is a WARNING; `None` for never."""
    pin: str | None = None
    """`auto`, or a file whose text is put back after every compaction."""
    search_tool: bool = False
    """Offer the agent a tool that searches its own dropped history."""
    compaction: Literal["cli", "reference"] = "cli"
    """How to compact: with the CLI's summary, or with your words and pointers into the archive."""
    subagents: SubagentsConfig = field(default_factory=SubagentsConfig)
    """The `subagents:` section."""
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    """The `reference:` section."""
    guard: GuardConfig = field(default_factory=GuardConfig)
    """The `guard:` section."""
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    """The `archive:` section."""


def archive_of(
    repo_path: str | os.PathLike[str], config: ArchiveConfig, *, projects_dirs: Sequence[str] | None = None
) -> TranscriptArchive:
    """Return the archive of a repository; the caller looks at `config.enabled` first.

    A relative directory is one below the repository. `projects_dirs` are those of `TranscriptArchive`.
    """
    from mala_context.archive.store import TranscriptArchive  # who reads a configuration may want no archive

    target = target_of(config)
    place = None if config.directory is None or target is not None else os.path.expanduser(config.directory)
    return TranscriptArchive(
        None if place is None else os.path.join(repo_path, place),
        target=target,
        repo_path=os.fspath(repo_path),
        mode=config.mode,
        compress=config.compress,
        keep=None if config.keep is None else {"days": config.keep.days, "bytes": config.keep.bytes},
        warn_bytes=config.warn_bytes,
        projects_dirs=projects_dirs,
    )


def names_object_store(directory: str | None) -> bool:
    """Tell whether an archive's directory is an address such as `s3://bucket/prefix` and no folder."""
    return is_address(directory)


def target_of(config: ArchiveConfig) -> Target | None:
    """Return the object store that archives are sent to, `None` where they go to a folder."""
    if config.directory is None or not is_address(config.directory):
        return None
    return Target(address=config.directory, prefix=config.prefix, encryption=config.encryption, kms_key=config.kms_key)
