"""Compaction by reference: what of a conversation stays word for word, and what becomes a pointer. No model is asked.

`read_conversation` takes the messages that the CLI hands to a mod, `build` gives the rows that take their place:

* the rows that earlier compactions left, as they are (`kept_rows`);
* one new part: every sentence of the user, the assistant's text, and a line for each tool call, or for a run of them,
  with a pointer `[first-last]` into the part's full text (`full_text`), a file that Read can open;
* the state at the end: plan, open to-do items, files, and what comes next.

Everything here is pure. Whoever calls `build` keeps its full text before anybody reads the rows.
"""

from __future__ import annotations

from mala_context.transcripts.reference.build import ReferenceLimits, Replacement, build
from mala_context.transcripts.reference.conversation import Conversation, UnknownShapeError, read_conversation

__all__ = ["Conversation", "ReferenceLimits", "Replacement", "UnknownShapeError", "build", "read_conversation"]
