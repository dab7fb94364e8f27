"""Report what happens to contexts: records, observers, the log and OpenTelemetry.

`Reporter` turns a processor's events into `records`; `Hub` gives each record to every observer. Two
observers are ours: `log_happening` writes each record to the log at DEBUG, `OpenTelemetryObserver` makes metrics and
spans of them. Any callable is one more::

    runtime = instrument(options, observers=[print])
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from mala_context.agent.telemetry.hub import Hub, Reporter, log_happening

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mala_context.agent.telemetry.otel import OpenTelemetryObserver
    from mala_context.agent.telemetry.records import Observer

__all__ = ["SWITCH", "Hub", "Reporter", "log_happening", "own_observers", "process_observer"]

SWITCH: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""OpenTelemetry's own variable: a list of instrumentations that are not wanted; ours is `mala_context`."""

_process_observer: OpenTelemetryObserver | None = None


def own_observers(others: Iterable[Observer] = (), environ: Mapping[str, str] | None = None) -> list[Observer]:
    """Return the observers that every runtime has: the log, and OpenTelemetry where its API is installed.

    Without an SDK that the application has configured the API drops everything. OpenTelemetry is left out where
    `SWITCH` says so, and where an `OpenTelemetryObserver` is among the `others`: nothing shall be counted twice.
    """
    observers: list[Observer] = [log_happening]
    names = (os.environ if environ is None else environ).get(SWITCH, "")
    if not {"mala_context", "*"} & {name.strip() for name in names.split(",")}:
        found = process_observer()
        if found is not None and not any(isinstance(each, type(found)) for each in others):
            observers.append(found)
    return observers


def process_observer() -> OpenTelemetryObserver | None:
    """Return the one observer that all runtimes of this process share; `None` where the API is not installed.

    It is shared because its gauges speak of the whole process. It uses the application's global providers, those that
    are set later too.
    """
    global _process_observer  # noqa: PLW0603 - OpenTelemetry's providers are global, and so is what reports to them
    if _process_observer is None:
        try:
            from mala_context.agent.telemetry.otel import OpenTelemetryObserver
        except ImportError:
            return None
        _process_observer = OpenTelemetryObserver()
    return _process_observer
