"""`mala.yaml`: what it may say, and what it said.

`parse` and `load_config` give a `ContextConfig`, frozen and complete (each key that the file leaves out has its
default), or raise one `ConfigError` with every problem of the file. `SCHEMA` is the table of all keys that both the
reader and the reference page follow.
"""

from __future__ import annotations

from mala_context.config.reading import Loaded, load_config, load_with_lines, parse
from mala_context.config.schema import SCHEMA, setting
from mala_context.config.settings import (
    ArchiveConfig,
    ContextConfig,
    GuardConfig,
    Retention,
    archive_of,
    target_of,
)

__all__ = [
    "SCHEMA",
    "ArchiveConfig",
    "ContextConfig",
    "GuardConfig",
    "Loaded",
    "Retention",
    "archive_of",
    "load_config",
    "load_with_lines",
    "parse",
    "setting",
    "target_of",
]
