"""The table of the keys under `context:` in `mala.yaml`, made from the records, and other fields of the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Final

from mala_context.config.settings import ArchiveConfig, ContextConfig
from mala_context.config.values import Kind


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its place, its valid values, what it does."""

    path: str
    """Dotted path in the file, e.g. `context.guard.buffer_tokens`."""
    kind: Kind
    """Its valid values, and how they are read."""
    doc: str
    """What it does, in one line."""
    default: Any
    """Value where the file does not name the key."""

    @property
    def section(self) -> str:
        """Path of the mapping that the key stands in."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]


def _section(item: Field[Any]) -> Any:
    """Return the record of a field that is a section of keys; `None` for a key."""
    return item.metadata.get("section") if item.default_factory is MISSING else item.default_factory


def _sections(path: str, record: type[Any]) -> Iterator[tuple[str, type[Any]]]:
    yield path, record
    for item in fields(record):
        if section := _section(item):
            yield from _sections(f"{path}.{item.name}", section)


def _keys(path: str, record: type[Any]) -> Iterator[Key]:
    for item in fields(record):
        child = f"{path}.{item.name}"
        if section := _section(item):
            yield from _keys(child, section)
        else:
            yield Key(child, default=item.default, **item.metadata)


SECTIONS: Final = dict(_sections("context", ContextConfig))
"""Mappings of the file and the record that each becomes."""
SCHEMA: Final = tuple(_keys("context", ContextConfig))
"""Each key in the order of the file."""
NULLABLE_SECTIONS: Final = frozenset({"context.archive.keep"})
"""Mappings that are absent by default: null stays `None`, and an empty one is a mistake."""

REMOVED: Final = {
    "context_restart_threshold": "context.restart_at",
    "context_limit": "context.window",
}
"""Removed top-level fields, and the key that replaces each."""

ACCEPTED: Final = frozenset(
    [
        "preset",
        "commands",
        "coverage",
        "code_patterns",
        "config_files",
        "setup_files",
        "validation_triggers",
        "claude_settings_sources",
        "timeout_minutes",
        "max_idle_retries",
        "idle_timeout_seconds",
        "max_diff_size_kb",
        "evidence_check",
        "epic_verification",
        "per_issue_review",
        "long_running",
        "lock_wait",
        "coder",
        "amp_mode",
        "model",
        "effort",
        "coder_options",
    ]
)
"""Top-level fields that belong to a mala project and are left alone."""

THRESHOLDS: Final = (
    ("context.warn_at", "context.compact_at", "context.restart_at", "context.final_at"),
    ("context.subagents.warn_at", "context.subagents.final_at"),
)
"""Each of these ratios must be at least as large as the one before it."""


def setting(config: ContextConfig, path: str) -> Any:
    """Return the value of a dotted key; `None` below a section that is absent."""
    value: Any = config
    for name in path.split(".")[1:]:
        value = getattr(value, name, None)
    return value


def encryption_problem(config: ArchiveConfig) -> tuple[str, str] | None:
    """Return the key of an encryption that the store cannot apply, and why; `None` if there is no such key."""
    on_s3 = config.directory is not None and config.directory.startswith("s3://")
    for name in ("encryption", "kms_key"):
        if getattr(config, name) is not None and not on_s3:
            return f"context.archive.{name}", "needs an s3:// address in directory; other stores encrypt by themselves"
    if config.kms_key is not None and config.encryption not in {"aws:kms", "aws:kms:dsse"}:
        return "context.archive.kms_key", "needs encryption: aws:kms or aws:kms:dsse"
    return None
