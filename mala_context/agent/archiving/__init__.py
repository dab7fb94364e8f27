"""What happens to an archive while a session runs.

The archivist hears of a session from two sides: hooks say where its transcript is and that a compaction is about to
begin, events say how it ended. `sessions` looks after the transcripts, `compactions` after what a compaction came to,
and both leave the disk to `work`, which does one thing after the other, so that an outcome never overtakes its piece.
A hook waits for its piece, for `ANSWER_SECONDS` at most; nobody waits for the rest. What can take long and is nobody's
piece (catching up, packing, `keep`) is `upkeep`'s, in threads of its own.
"""

from __future__ import annotations

from mala_context.agent.archiving.sessions import ANSWER_SECONDS, SessionArchiver

__all__ = ["ANSWER_SECONDS", "SessionArchiver"]
