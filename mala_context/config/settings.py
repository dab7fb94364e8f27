"""The configuration as frozen records: a field for each key of `mala.yaml`, with its valid values, use and default.

A section of the file is a record inside a record. `schema` makes the table of all keys from these records.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from mala_context.archive.remote.address import ENCRYPTIONS, PREFIX, Target, is_address
from mala_context.config.values import Kind, choice, either, flag, place, prefix, ratio, size, text, tools, whole
from mala_context.tracking.auto_compact import LARGEST_WINDOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.archive.store import TranscriptArchive

_SHARE: Final = either(None, ratio())


def _key(kind: Kind, doc: str, *, default: Any = None) -> Any:
    """Return the field of a key: its valid values, what it does in one line, and its default."""
    return field(default=default, metadata={"kind": kind, "doc": doc})


@dataclass(frozen=True, slots=True)
class Retention:
    """Which archives `prune` keeps; at least one bound is set."""

    days: int | None = _key(either(None, whole(1, 36_500, "days")), "Remove archives that are older than this.")
    bytes: int | None = _key(either(None, size()), "Remove the oldest archives above this size in all.")


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """How much of the window is kept free, and how large one tool result may be."""

    buffer_tokens: int = _key(whole(1, LARGEST_WINDOW, "tokens"), "Tokens of the window that stay free.", default=8192)
    max_output_tokens: int = _key(
        whole(0, LARGEST_WINDOW, "tokens"), "Tokens kept for the response; the CLI reserves its own.", default=0
    )
    tool_output_tokens: int | Literal["auto"] | None = _key(
        either(None, either("auto", whole(100, LARGEST_WINDOW, "tokens"))),
        "Cap on one tool result; its full text is kept on disk, and the agent gets the path.",
    )


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """Where and how transcripts are archived."""

    enabled: bool = _key(flag(), "Archive the transcript before each compaction.", default=True)
    mode: Literal["incremental", "full"] = _key(
        choice("incremental", "full"),
        "Content of one archive: the bytes since the last archive, or the whole transcript.",
        default="incremental",
    )
    compress: Literal["none", "zstd"] = _key(
        choice("none", "zstd"), "How archives are packed after they are written.", default="none"
    )
    directory: str | None = _key(
        either(None, place()),
        "Where archives go: a folder, or an object store to upload to as well; null is the runs directory alone.",
    )
    prefix: str = _key(
        prefix(),
        "Path below the address of an object store; `{host}` and `{repo}` stand for this machine and repository.",
        default=PREFIX,
    )
    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = _key(
        either(None, choice(*ENCRYPTIONS)), "Server-side encryption to ask S3 for; null leaves it to the bucket."
    )
    kms_key: str | None = _key(
        either(None, text("the name of a key")),
        "Key for `aws:kms` and `aws:kms:dsse`; null is the bucket's own. A name, not a secret.",
    )
    at_session_end: bool = _key(flag(), "Archive the rest when a session ends.", default=True)
    keep: Retention | None = field(default=None, metadata={"section": Retention})
    """Which archives are kept; `None` keeps everything."""
    warn_bytes: int | None = _key(
        either(None, size()), "Log a WARNING above this size per repository.", default=1_000_000_000
    )


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """What a compaction by reference keeps."""

    budget: int | None = _key(
        either(None, whole(1_000, LARGEST_WINDOW, "tokens")),
        "Tokens that a compaction by reference keeps; null is 20,000, or a tenth of the window if that is less.",
    )


@dataclass(frozen=True, slots=True)
class SubagentsConfig:
    """When to act in a subagent; thresholds are ratios of its own window."""

    warn_at: float | None = _key(_SHARE, "Warn a subagent at this ratio of its own window.")
    final_at: float | None = _key(_SHARE, "Allow a subagent only finishing tools from this ratio of its own window on.")


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """The `context:` section of `mala.yaml`; thresholds are ratios of the window."""

    enabled: bool = _key(flag(), "Track the context at all.", default=True)
    estimator: Literal["occupancy", "cumulative", "max_cache_read", "total_tokens"] = _key(
        choice("occupancy", "cumulative", "max_cache_read", "total_tokens"),
        "Formula that says how full the context is.",
        default="occupancy",
    )
    window: int | Literal["auto"] = _key(
        either("auto", whole(1, LARGEST_WINDOW, "tokens")), "Context window.", default="auto"
    )
    warn_at: float | None = _key(_SHARE, "Log a WARNING at this ratio of the window.", default=0.70)
    tell_agent: bool = _key(flag(), "Give that warning to the agent too.", default=True)
    compact_at: float | None = _key(_SHARE, "Ask for `/compact` between turns at this ratio.")
    compact_focus: str | None = _key(either(None, text("words")), "Words for `/compact`.")
    compact_idle: bool = _key(
        flag(),
        "Compact between turns shortly before the prompt cache lapses, where that is cheaper than a cold start.",
        default=False,
    )
    restart_at: float | None = _key(
        _SHARE, "End the session at this ratio, take a checkpoint, and go on in a fresh session."
    )
    max_restarts: int = _key(whole(0, 1000), "Maximum of restarts in one run.", default=3)
    continuation_template: str | None = _key(
        either(None, text("the path of a file")), "File with `{checkpoint}` that opens the fresh session."
    )
    final_at: float | None = _key(_SHARE, "Allow only finishing tools from this ratio on, then stop.")
    finishing_tools: tuple[str, ...] = _key(
        tools(), "Tools of a final turn.", default=("Write", "Edit", "TodoWrite", "Bash(git *)")
    )
    subagents: SubagentsConfig = field(default_factory=SubagentsConfig)
    """The `subagents:` section."""
    alarm_at: float | None = _key(
        _SHARE,
        "Log a WARNING if a request differs from its projection by this share, and by 2,000 tokens.",
        default=0.05,
    )
    pin: str | None = _key(
        either(None, text("auto, the path of a file")),
        "Give back after every compaction: the things that the summary lost (`auto`), or a file's text.",
    )
    search_tool: bool = _key(
        flag(),
        "Give the agent a tool that searches its own dropped history; `compaction: reference` always gives it.",
        default=False,
    )
    compaction: Literal["cli", "reference"] = _key(
        choice("cli", "reference"),
        "How to compact: with the CLI's summary (`cli`), or with your words and archive pointers (`reference`).",
        default="cli",
    )
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    """The `reference:` section."""
    guard: GuardConfig = field(default_factory=GuardConfig)
    """The `guard:` section."""
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    """The `archive:` section."""


def archive_of(
    repo_path: str | os.PathLike[str], config: ArchiveConfig, *, projects_dirs: Sequence[str] | None = None
) -> TranscriptArchive:
    """Return the archive of a repository; check `config.enabled` first.

    A relative directory is one below the repository. `projects_dirs` are those of `TranscriptArchive`.
    """
    from mala_context.archive.store import TranscriptArchive  # most readers of a configuration open no archive

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


def target_of(config: ArchiveConfig) -> Target | None:
    """Return the object store that archives are sent to, `None` where they go to a folder."""
    if config.directory is None or not is_address(config.directory):
        return None
    return Target(address=config.directory, prefix=config.prefix, encryption=config.encryption, kms_key=config.kms_key)
