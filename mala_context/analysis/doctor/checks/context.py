"""Checks of what fills a context before the conversation begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mala_context._util.text import percent, plural
from mala_context.analysis.doctor.facts import ContextMaps
from mala_context.analysis.doctor.findings import Finding

LARGE_MEMORY: Final = 0.2
"""Share of the window from which a memory file is too large."""
LARGE_SERVER: Final = 1_000
"""Tokens of an MCP server's tools from which it matters that no agent calls it."""


def context(found: ContextMaps) -> Iterator[Finding]:
    """Find memory files that take a large share of the window, and MCP servers that no agent calls."""
    for path, share in found.memory.items():
        if share >= LARGE_MEMORY:
            words = f"a memory file takes {percent(share)} of the window in each request"
            yield Finding(
                "context", "warning", words, path, "Shorten it, or move parts into files that are read on demand"
            )
    for server, tokens in found.idle_servers.items():
        if tokens >= LARGE_SERVER:
            words = (
                f"the MCP server {server} takes {tokens:,} tokens of each request, "
                f"and no tool of it was called in {plural(found.sessions, 'session')}"
            )
            yield Finding("context", "warning", words, server, "Remove it where it is not needed: claude mcp remove")


def context_ok(found: ContextMaps) -> str:
    """Say what was looked at."""
    return f"memory files and MCP servers of {plural(found.sessions, 'session')}"
