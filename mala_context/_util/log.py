"""Loggers of the shells: structlog's key-values on top of the standard library's logging.

The package configures no logging. Each record goes to the standard logger of its module, with the line as its message
and the key-values as attributes, so that caplog, journald and JSON formatters all see both. An application's own
structlog configuration is neither needed nor touched. The message may hold text that others wrote, for example a
model's name; it is made printable. The attributes stay as they are.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import structlog

from mala_context._util.foreign_code import passes
from mala_context._util.text import printable


class _Logger(structlog.stdlib.BoundLogger):
    """A logger that never raises: a handler's or a filter's fault is not the agent's."""

    def _proxy_to_logger(self, *arguments: Any, **values: Any) -> Any:
        try:
            return super()._proxy_to_logger(*arguments, **values)
        except BaseException as error:
            if passes(error):
                raise
            return None  # the log itself failed, so it cannot be logged


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module, e.g. `get_logger(__name__)`."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=_Logger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            _make_printable,
            structlog.stdlib.render_to_log_kwargs,
        ],
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def _make_printable(_logger: Any, _method: str, event: Any) -> Any:
    if not event["event"].isprintable():
        event["event"] = printable(event["event"], lines=True)
    return event
