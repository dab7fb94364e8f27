"""Report what happens to contexts: records, observers, the log and OpenTelemetry.

`Reporter` turns a processor's events into `records`; `Hub` gives each record to every observer. Two observers are ours:
`log_happening` writes each record to the log at DEBUG, and `OpenTelemetryObserver` makes metrics and spans of records.
Any other callable can be an observer too::

    runtime = instrument(options, observers=[print])
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from mala_context._util.foreign_code import passes
from mala_context._util.log import get_logger
from mala_context.agent.telemetry.hub import Hub, Reporter, log_happening
from mala_context.agent.telemetry.names import SCOPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mala_context.agent.telemetry.otel import OpenTelemetryObserver
    from mala_context.agent.telemetry.records import Observer

__all__ = ["SWITCH", "Hub", "Reporter", "log_happening", "own_observers", "process_observer"]

SWITCH: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""OpenTelemetry's own variable: a list of instrumentations that are not wanted; ours is `mala_context`."""

_process_observer: OpenTelemetryObserver | None = None
_failure_logged = False
_log = get_logger(__name__)


def own_observers(others: Iterable[Observer] = (), environ: Mapping[str, str] | None = None) -> list[Observer]:
    """Return the observers that every runtime has: the log, and OpenTelemetry where its API is installed.

    Unless the application has configured an SDK, the API drops everything. OpenTelemetry is left out if `SWITCH` says
    so, and if an `OpenTelemetryObserver` is among the `others`: nothing may be counted twice.
    """
    observers: list[Observer] = [log_happening]
    names = (os.environ if environ is None else environ).get(SWITCH, "")
    if not {SCOPE, "*"} & {name.strip() for name in names.split(",")}:
        found = process_observer()
        if found is not None and not any(isinstance(each, type(found)) for each in others):
            observers.append(found)
    return observers


def process_observer() -> OpenTelemetryObserver | None:
    """Return the observer that all runtimes of this process share; `None` if the API is not installed or fails.

    It is shared because its gauges describe the whole process. It uses the application's global providers, also those
    that are set later.
    """
    global _failure_logged, _process_observer  # noqa: PLW0603 - OpenTelemetry's providers are global too
    if _process_observer is None:
        try:
            from mala_context.agent.telemetry.otel import OpenTelemetryObserver
        except ImportError:
            return None
        try:
            _process_observer = OpenTelemetryObserver()
        except BaseException as error:  # a provider of the application, e.g. one that the environment names wrongly
            if passes(error):
                raise
            if not _failure_logged:
                _failure_logged = True
                _log.warning("Context: OpenTelemetry cannot be set up: no metrics and no spans", exc_info=True)
    return _process_observer
