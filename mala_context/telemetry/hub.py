"""Gives each record to every observer; what an observer raises harms nobody, and is reported once."""

from __future__ import annotations

from collections.abc import Iterable

from mala_context.happenings import Observer
from mala_context.log import get_logger

log = get_logger(__name__)


class Hub:
    """Those who are told.

    Attributes:
        observers: callables that take a record, told in this order. Add to it at any time.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers: list[Observer] = list(observers)
        self._reported: list[Observer] = []

    def wants(self, kind: type) -> bool:
        """Tell whether any observer takes records of this class: one that has no `wants` takes all."""
        for observer in self.observers:
            wants = getattr(observer, "wants", None)
            if wants is None or wants(kind):
                return True
        return False

    def tell(self, record: object) -> None:
        """Give a record to every observer. Never raises; an observer that fails goes on being told."""
        for observer in self.observers:
            try:
                observer(record)
            except Exception:  # an observer's fault is not the agent's
                if not any(observer is each for each in self._reported):
                    self._reported.append(observer)
                    log.warning("Context: an observer failed", exc_info=True)
