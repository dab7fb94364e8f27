"""`mala.yaml`: its keys, and how it is read.

`parse` and `load_config` return a `ContextConfig`, frozen and complete (a key that the file does not name has its
default), or raise one `ConfigError` with every problem of the file. `checked` does so for a `ContextConfig` that a
program made. `SCHEMA` is the table of all keys; the reader and the reference page follow it.
"""

from __future__ import annotations

from mala_context.config.reading import Loaded, checked, load_config, load_with_lines, parse
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
    "checked",
    "load_config",
    "load_with_lines",
    "parse",
    "setting",
    "target_of",
]
