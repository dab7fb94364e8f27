"""Readers turn the input of a source into events: one reader for each source, and none of them raises.

A reader takes one object (an SDK message, a stream-json dict, a transcript row, an answer of an OpenAI-compatible
server) and returns the events in it, in order; input that it does not know gives no event. Nothing of the SDK is
imported. A message is known by the name of its class, so the messages of an older or newer SDK, and doubles in tests,
read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mala_context.tracking.events import Events
from mala_context.tracking.readers.openai import read_openai
from mala_context.tracking.readers.rows import read_row
from mala_context.tracking.readers.sdk import read_message
from mala_context.tracking.readers.stream_json import read_stream_json

READERS: Mapping[str, Callable[[Any], Events]] = {
    "sdk": read_message,
    "stream-json": read_stream_json,
    "transcript": read_row,
    "openai": read_openai,
}
"""Reader by source. Feed each event that it returns to `ContextTracker.apply`, in order."""

__all__ = ["READERS", "read_message", "read_openai", "read_row", "read_stream_json"]
