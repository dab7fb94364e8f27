"""What the guard did, as frozen records: one for every observer, and one that a session's caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SessionRestarted:
    """The run goes on in a fresh session; a session yields it between the old session's messages and the new one's."""

    old_session_id: str
    """The session that was left; it is archived."""
    new_session_id: str
    """The session from now on."""
    reason: Literal["threshold", "overflow"]
    """Whether `restart_at` was reached, or the context ran over."""
    restarts: int
    """How many there were in this run, this one included."""
    checkpoint: bool
    """Whether the old session wrote a checkpoint; without one the new session has the archive's path."""
    result: Any = None
    """The `ResultMessage` with which the old session's unfinished turn was cut, if one was: it is no answer."""


@dataclass(frozen=True, slots=True)
class FinalTurn:
    """A turn in which only finishing tools were allowed has ended."""

    session_id: str | None
    """Its session."""
    reason: Literal["context"]
    """Why it was final."""
    ratio: float
    """The ratio that reached `final_at`; may exceed 1.0."""
    stopped: bool
    """Whether it was ended by force, since the agent went on asking for other tools."""
    denials: int
    """Tool calls that were denied."""
    missing: tuple[str, ...]
    """What it should have brought and did not: `saved work` (no finishing tool was used), `final answer`."""

    @property
    def line(self) -> str:
        """The log line."""
        how = "was stopped" if self.stopped else "ended"
        missing = f"missing: {', '.join(self.missing)}" if self.missing else "nothing is missing"
        return f"Context: the final turn {how} ({self.ratio:.1%} of the window, {self.denials} tools denied); {missing}"
