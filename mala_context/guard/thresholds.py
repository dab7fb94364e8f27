"""The thresholds of a policy, when each may fire again, and the decisions that a policy may return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from mala_context.tracking.snapshot import ContextSnapshot

MARGIN: Final = 0.05
"""Share of the window by which a ratio has to drop before its threshold may fire again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When to act, as ratios of the window; `None` for never."""

    warn_at: float | None = 0.70
    """Log a WARNING."""
    compact_at: float | None = None
    """Ask for a compaction."""
    restart_at: float | None = None
    """Go on in a fresh session."""
    final_at: float | None = None
    """Allow only finishing tools."""
    tell_agent: bool = True
    """Whether the agent gets a note too when `warn_at` or `final_at` is reached."""
    compact_focus: str | None = None
    """Words for `/compact`."""
    max_restarts: int = 3
    """Most restarts of one run."""
    margin: float = MARGIN
    """How far a ratio must drop below a threshold to arm it again."""


class Warn(NamedTuple):
    """`warn_at` was reached: log it."""

    ratio: float
    """The ratio that reached it."""
    tokens: int | None
    """Size of the last request."""
    window: int
    """The window."""


class Tell(NamedTuple):
    """Hand these words to the agent with the next `additionalContext`."""

    text: str
    """The words; they hold no time and no exact count, so that they spoil no prompt cache."""


class Compact(NamedTuple):
    """Ask for `/compact` now; then call `compacted`, or `action_failed` if no boundary comes."""

    focus: str | None
    """Words for `/compact`."""
    ratio: float | None
    """The ratio that asks for it; `None` while it is unknown."""
    cause: Literal["threshold", "overdue", "idle"] = "threshold"
    """Whether `compact_at` was reached, the CLI should have compacted by itself, or the cache is about to lapse."""


class Restart(NamedTuple):
    """Take a checkpoint and go on in a fresh session now; then call `restarted`, or `action_failed`."""

    ratio: float | None
    """The ratio that asks for it; `None` after an overflow."""
    cause: Literal["threshold", "overflow"] = "threshold"
    """Whether `restart_at` was reached, or the context ran over."""


class Finish(NamedTuple):
    """Allow only finishing tools from now on."""

    ratio: float
    """The ratio that asks for it."""


class Caution(NamedTuple):
    """Log one WARNING; each kind comes once until its cause is gone."""

    kind: Literal["breaker", "born_full", "guess", "overdue", "restarts", "overflow"]
    """What it is about."""
    message: str
    """The whole line."""


Decision = Warn | Tell | Compact | Restart | Finish | Caution
Decisions = tuple[Decision, ...]


def thresholds_from(config: Any) -> Thresholds:
    """Return the thresholds of a `ContextConfig` (or of anything with its fields)."""
    names = ("warn_at", "compact_at", "restart_at", "final_at", "tell_agent", "compact_focus", "max_restarts")
    return Thresholds(**{name: getattr(config, name) for name in names})


def subagent_thresholds(config: Any) -> Thresholds:
    """Return the thresholds that a `ContextConfig` sets for each subagent's own window."""
    own = config.subagents
    return Thresholds(warn_at=own.warn_at, final_at=own.final_at, tell_agent=config.tell_agent)


def ratio_ahead(snapshot: ContextSnapshot) -> float | None:
    """Return the ratio that actions go by: what the next request will hold, or another estimator's own value.

    `None` while it is unknown. Asking for it counts the text of the conversation, which takes time.
    """
    if snapshot.estimator != "occupancy" or snapshot.projected is None or snapshot.window <= 0:
        return snapshot.ratio
    return snapshot.projected / snapshot.window


class OneShotThreshold:
    """One threshold: it fires once, and again only after a drop."""

    __slots__ = ("at", "fired", "margin")

    def __init__(self, at: float | None, margin: float) -> None:
        self.at = at
        self.margin = margin
        self.fired = False

    def reached(self, ratio: float | None) -> bool:
        """Take a ratio; tell whether it is the first one at the threshold since the last drop."""
        if self.at is None or ratio is None:
            return False
        if self.fired:
            self.fired = ratio >= self.at - self.margin
            return False
        self.fired = ratio >= self.at
        return self.fired


class Cooldown:
    """One action: it is not asked for again at about the same ratio."""

    __slots__ = ("at", "floor", "margin")

    def __init__(self, at: float | None, margin: float) -> None:
        self.at = at
        self.margin = margin
        self.floor: float | None = None

    def track(self, ratio: float | None) -> None:
        """Take a ratio. A drop by the margin arms the action again; a smaller one lowers the floor of the growth."""
        if self.floor is None or ratio is None or self.at is None:
            return
        armed = ratio < min(self.floor, self.at) - self.margin
        self.floor = None if armed else min(self.floor, ratio)

    def asked(self, ratio: float | None) -> None:
        """Note that the action was asked for at this ratio."""
        self.floor = self.at if ratio is None else ratio

    def due(self, ratio: float | None) -> bool:
        """Tell whether the threshold is reached."""
        return self.at is not None and ratio is not None and ratio >= self.at

    def allowed(self, ratio: float | None) -> bool:
        """Tell whether the action is armed, or the ratio has grown by the margin since it was asked for."""
        return self.floor is None or (ratio is not None and ratio >= self.floor + self.margin)
