"""Every record as a line at DEBUG, its fields as key-values; for those who follow one session through its log.

The lines that people watch, at INFO and above, are written where the thing happens: they must come where nobody makes a
runtime too, and some of them say more than a record does. The size after each response has its own line at DEBUG there.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Final

from mala_context._util.log import get_logger
from mala_context.agent.telemetry.records import ContextUpdated

log = get_logger(__name__)
_level = logging.getLogger(__name__)  # asked once a record, where structlog's own filter would be dear
_RENAMED = {"session_id": "session", "bytes": "size"}
"""Names that the other lines use for the same value, or that read badly alone."""


class LogObserver:
    """Logs records; `ContextUpdated` is left to the processor's own line."""

    def wants(self, kind: type) -> bool:
        """Tell whether records of this class are logged."""
        return kind is not ContextUpdated

    def __call__(self, record: object) -> None:
        """Log a record."""
        if record.__class__ is not ContextUpdated and _level.isEnabledFor(logging.DEBUG):
            log.debug("Happening: %s", type(record).__name__, **fields_of(record))


log_happening: Final = LogObserver()
"""The observer that every runtime has."""


def fields_of(record: Any) -> dict[str, Any]:
    """Return a record's fields by the names that log lines use."""
    if dataclasses.is_dataclass(record):
        values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    else:
        values = dict(record._asdict())
    return {_RENAMED.get(name, name): value for name, value in values.items()}
