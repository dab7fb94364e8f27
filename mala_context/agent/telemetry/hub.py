"""Gives each record to every observer; what an observer raises harms nobody, and is reported once.

Hooks run in a task of the SDK's that was started when the client connected, and archives are written in a thread. So
that an observer finds the caller's trace there too, a session says when its caller asks for something, and records are
told in that caller's context (as `contextvars` means it) from then on.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable

from mala_context._util.log import PASSING, get_logger
from mala_context.agent.telemetry.records import Observer

log = get_logger(__name__)


class Hub:
    """Those who are told.

    Attributes:
        observers: callables that take a record, told in this order. Add to it at any time.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers: list[Observer] = list(observers)
        self._reported: list[Observer] = []
        self._context: contextvars.Context | None = None

    def wants(self, kind: type) -> bool:
        """Tell whether any observer takes records of this class: one that has no `wants` takes all."""
        for observer in self.observers:
            wants = getattr(observer, "wants", None)
            try:
                if wants is None or wants(kind):
                    return True
            except PASSING:
                raise
            except BaseException:  # noqa: BLE001  # its fault is said when it is told of something
                return True
        return False

    def tell(self, record: object) -> None:
        """Give a record to every observer. Never raises; an observer that fails goes on being told."""
        if self._context is None:
            self._tell(record)
        else:
            self._context.copy().run(self._tell, record)  # a copy, since one context cannot be entered twice

    def beside(self) -> Hub:
        """Return a hub with the same observers, those that are added later too, for another session's records."""
        other = Hub()
        other.observers, other._reported = self.observers, self._reported
        return other

    def asked(self) -> None:
        """Tell what comes in the context of whoever calls this."""
        self._context = contextvars.copy_context()

    def left(self) -> None:
        """Tell what comes in the context in which it happens."""
        self._context = None

    def _tell(self, record: object) -> None:
        for observer in self.observers:
            try:
                observer(record)
            except PASSING:
                raise
            except BaseException:  # an observer's fault is not the agent's
                if not any(observer is each for each in self._reported):
                    self._reported.append(observer)
                    log.warning("Context: an observer failed", exc_info=True)
