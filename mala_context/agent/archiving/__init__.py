"""The archive's work while a session runs.

The session archiver learns about a session in two ways. Hooks name its transcript and announce a compaction; events
report how the compaction ended. `sessions` archives the transcripts, `compactions` writes the outcomes. Both submit all
disk work to one queue, so an outcome is never written before its piece. A hook waits for its piece, at most
`ANSWER_SECONDS`; no caller waits for the rest. `maintenance` does the long work (catching up, packing, `keep`) in
threads of its own.
"""

from __future__ import annotations

from mala_context.agent.archiving.sessions import ANSWER_SECONDS, SessionArchiver

__all__ = ["ANSWER_SECONDS", "SessionArchiver"]
