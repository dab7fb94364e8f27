"""What recorded sessions tell: how full each was, when it compacted, and which formula was right.

The tracker that follows a live session reads the rows of a recorded one, so a figure here is the figure that was shown
there. `replay` gives records of sessions, `audit` holds the formulas against what the recordings know to be true.
"""

from __future__ import annotations

from mala_context.analysis.replay.engine import replay
from mala_context.analysis.replay.record import AgentRecord, CompactionRecord, Problem, SessionRecord, Totals

__all__ = ["AgentRecord", "CompactionRecord", "Problem", "SessionRecord", "Totals", "replay"]
