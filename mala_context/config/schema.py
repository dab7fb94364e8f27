"""Every key of `mala.yaml` that is ours, in one table, and what else may stand beside them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from mala_context.archive.remote.address import ENCRYPTIONS
from mala_context.config.settings import (
    ArchiveConfig,
    ContextConfig,
    GuardConfig,
    ReferenceConfig,
    Retention,
    SubagentsConfig,
)
from mala_context.config.values import Kind, choice, either, flag, place, prefix, ratio, size, text, tools, whole

_TOKENS: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its place, its valid values, what it does."""

    path: str
    """Dotted path in the file, e.g. `context.guard.buffer_tokens`."""
    kind: Kind
    """Its valid values, and how they are read."""
    doc: str
    """What it does, in one line."""

    @property
    def section(self) -> str:
        """Path of the mapping that the key stands in."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def default(self) -> Any:
        """Value where the file does not name the key."""
        for item in fields(SECTIONS[self.section]):
            if item.name == self.name:
                return None if item.default is MISSING else item.default
        raise LookupError(self.path)


SECTIONS: Final[dict[str, type[Any]]] = {
    "context": ContextConfig,
    "context.subagents": SubagentsConfig,
    "context.reference": ReferenceConfig,
    "context.guard": GuardConfig,
    "context.archive": ArchiveConfig,
    "context.archive.keep": Retention,
}
"""Mappings of the file and the record that each becomes."""

SCHEMA: Final = (
    Key("context.enabled", flag(), "Track the context at all."),
    Key(
        "context.estimator",
        choice("occupancy", "cumulative", "max_cache_read", "total_tokens"),
        "Formula that says how full the context is.",
    ),
    Key("context.window", either("auto", whole(1, _TOKENS, "tokens")), "Context window."),
    Key("context.warn_at", either(None, ratio()), "Log a WARNING at this ratio of the window."),
    Key("context.tell_agent", flag(), "Give that warning to the agent too."),
    Key("context.compact_at", either(None, ratio()), "Ask for `/compact` between turns at this ratio."),
    Key("context.compact_focus", either(None, text("words")), "Words for `/compact`."),
    Key(
        "context.compact_idle",
        flag(),
        "Compact between turns shortly before the prompt cache lapses, where that is cheaper than a cold start.",
    ),
    Key(
        "context.restart_at",
        either(None, ratio()),
        "End the session at this ratio, take a checkpoint, and go on in a fresh session.",
    ),
    Key("context.max_restarts", whole(0, 1000), "Maximum of restarts in one run."),
    Key(
        "context.continuation_template",
        either(None, text("the path of a file")),
        "File with `{checkpoint}` that opens the fresh session.",
    ),
    Key("context.final_at", either(None, ratio()), "Allow only finishing tools from this ratio on, then stop."),
    Key("context.finishing_tools", tools(), "Tools of a final turn."),
    Key("context.subagents.warn_at", either(None, ratio()), "Warn a subagent at this ratio of its own window."),
    Key(
        "context.subagents.final_at",
        either(None, ratio()),
        "Allow a subagent only finishing tools from this ratio of its own window on.",
    ),
    Key(
        "context.alarm_at",
        either(None, ratio()),
        "Log a WARNING if a request differs from its projection by this share, and by 2,000 tokens.",
    ),
    Key(
        "context.pin",
        either(None, text("auto, the path of a file")),
        "Give back after every compaction: the things that the summary lost (`auto`), or a file's text.",
    ),
    Key(
        "context.search_tool",
        flag(),
        "Give the agent a tool that searches its own dropped history; `compaction: reference` always gives it.",
    ),
    Key(
        "context.compaction",
        choice("cli", "reference"),
        "How to compact: with the CLI's summary (`cli`), or with your words and archive pointers (`reference`).",
    ),
    Key(
        "context.reference.budget",
        either(None, whole(1_000, _TOKENS, "tokens")),
        "Tokens that a compaction by reference keeps; null is 20,000, or a tenth of the window if that is less.",
    ),
    Key("context.guard.buffer_tokens", whole(1, _TOKENS, "tokens"), "Tokens of the window that stay free."),
    Key(
        "context.guard.max_output_tokens",
        whole(0, _TOKENS, "tokens"),
        "Tokens kept for the response; the CLI reserves its own.",
    ),
    Key(
        "context.guard.tool_output_tokens",
        either(None, either("auto", whole(100, _TOKENS, "tokens"))),
        "Cap on one tool result; its full text is kept on disk, and the agent gets the path.",
    ),
    Key("context.archive.enabled", flag(), "Archive the transcript before each compaction."),
    Key(
        "context.archive.mode",
        choice("incremental", "full"),
        "Content of one archive: the bytes since the last archive, or the whole transcript.",
    ),
    Key("context.archive.compress", choice("none", "zstd"), "How archives are packed after they are written."),
    Key(
        "context.archive.directory",
        either(None, place()),
        "Where archives go: a folder, or an object store to upload to as well; null is the runs directory alone.",
    ),
    Key(
        "context.archive.prefix",
        prefix(),
        "Path below the address of an object store; `{host}` and `{repo}` stand for this machine and repository.",
    ),
    Key(
        "context.archive.encryption",
        either(None, choice(*ENCRYPTIONS)),
        "Server-side encryption to ask S3 for; null leaves it to the bucket.",
    ),
    Key(
        "context.archive.kms_key",
        either(None, text("the name of a key")),
        "Key for `aws:kms` and `aws:kms:dsse`; null is the bucket's own. A name, not a secret.",
    ),
    Key("context.archive.at_session_end", flag(), "Archive the rest when a session ends."),
    Key(
        "context.archive.keep.days", either(None, whole(1, 36_500, "days")), "Remove archives that are older than this."
    ),
    Key("context.archive.keep.bytes", either(None, size()), "Remove the oldest archives above this size in all."),
    Key("context.archive.warn_bytes", either(None, size()), "Log a WARNING above this size per repository."),
)
"""Each key in the order of the file."""

NULLABLE_SECTIONS: Final = frozenset({"context.archive.keep"})
"""Mappings that are absent by default: null stays `None`, and an empty one is a mistake."""

REMOVED: Final = {
    "context_restart_threshold": "context.restart_at",
    "context_limit": "context.window",
}
"""Top-level fields of old and the key that replaces each."""

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
"""Ratios that must not fall from one to the next."""


def setting(config: ContextConfig, path: str) -> Any:
    """Return the value of a dotted key; `None` below a section that is absent."""
    value: Any = config
    for name in path.split(".")[1:]:
        value = getattr(value, name, None)
    return value


def encryption_problem(config: ArchiveConfig) -> tuple[str, str] | None:
    """Return the key that no store can honour, and why; `None` where all is well."""
    on_s3 = config.directory is not None and config.directory.startswith("s3://")
    for name in ("encryption", "kms_key"):
        if getattr(config, name) is not None and not on_s3:
            return f"context.archive.{name}", "needs an s3:// address in directory; other stores encrypt by themselves"
    if config.kms_key is not None and config.encryption not in {"aws:kms", "aws:kms:dsse"}:
        return "context.archive.kms_key", "needs encryption: aws:kms or aws:kms:dsse"
    return None
