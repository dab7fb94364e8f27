"""Compaction by reference: the mod with which the CLI asks us at a compaction, and our answer to it."""

from __future__ import annotations
