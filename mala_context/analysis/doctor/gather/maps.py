"""What fills the contexts of the newest sessions: memory files, and MCP servers that no agent calls."""

from __future__ import annotations

import itertools
from typing import Final

from mala_context.analysis.context_maps import MapReader
from mala_context.analysis.doctor.facts import ContextMaps
from mala_context.analysis.doctor.gather.transcripts import NewestTranscripts
from mala_context.analysis.replay.files import Recording
from mala_context.tracking.context_map import GROUPS

SESSIONS: Final = 5
"""Sessions that are read, the newest."""
MOST_BYTES: Final = 20 << 20
"""Bytes of a transcript that is read; a larger one is left out."""


def maps(found: NewestTranscripts) -> ContextMaps:
    """Read the newest transcripts; one that cannot be read tells nothing."""
    read = 0
    memory, servers, called = dict[str, float](), dict[str, int](), set[str]()
    small = ((path, size) for path, size in found.sizes.items() if size <= MOST_BYTES)
    for path, size in itertools.islice(small, SESSIONS):
        each = MapReader(Recording(path, (path,), size)).read()
        read += each.snapshot.tokens is not None
        called |= each.servers_called
        for part in each.snapshot.parts:
            if part.group == "memory" and part.path is not None:
                memory[part.path] = max(memory.get(part.path, 0.0), part.tokens / max(1, each.snapshot.window))
            elif part.group == "mcp" and part.name != GROUPS["mcp"]:  # announcements name no server
                servers.setdefault(part.name, part.tokens)
    return ContextMaps(read, memory, {name: size for name, size in servers.items() if name not in called})
