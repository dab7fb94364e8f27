"""When a threshold may fire, and when it may fire again."""

from __future__ import annotations


class Line:
    """One threshold: fires once, then waits for a drop."""

    __slots__ = ("at", "fired", "margin")

    def __init__(self, at: float | None, margin: float) -> None:
        self.at = at
        self.margin = margin
        self.fired = False

    def reached(self, ratio: float | None) -> bool:
        """Take a ratio; tell whether the line was reached just now."""
        if self.at is None or ratio is None:
            return False
        if self.fired:
            self.fired = ratio >= self.at - self.margin
            return False
        self.fired = ratio >= self.at
        return self.fired


class Ask:
    """One action: not asked for twice at the same height."""

    __slots__ = ("at", "floor", "margin")

    def __init__(self, at: float | None, margin: float) -> None:
        self.at = at
        self.margin = margin
        self.floor: float | None = None

    def track(self, ratio: float | None) -> None:
        """Take a ratio: a drop below the threshold arms the action again, any other lowers where growth counts from."""
        if self.floor is None or ratio is None or self.at is None:
            return
        armed = ratio < min(self.floor, self.at) - self.margin
        self.floor = None if armed else min(self.floor, ratio)

    def asked(self, ratio: float | None) -> None:
        """Remember the height at which it was asked for."""
        self.floor = self.at if ratio is None else ratio

    def due(self, ratio: float | None) -> bool:
        """Tell whether the threshold is reached."""
        return self.at is not None and ratio is not None and ratio >= self.at

    def allowed(self, ratio: float | None) -> bool:
        """Tell whether it was not asked for yet at about this height."""
        return self.floor is None or (ratio is not None and ratio >= self.floor + self.margin)
