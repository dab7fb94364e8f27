"""The mod that has the CLI ask us at a compaction, and our side of it in an agent's own process."""

from __future__ import annotations
