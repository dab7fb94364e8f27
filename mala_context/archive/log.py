"""Log lines of the archive, through the standard library's logging under `mala_context.archive`.

`logging` costs a hook process 20 ms. Where no code has imported it, no code has configured it, so INFO and DEBUG
lines would go nowhere: they are dropped without importing it. Warnings and errors are always logged.
"""

from __future__ import annotations

import sys

LOGGER = "mala_context.archive"


def debug(message: str, *args: object) -> None:
    """Log what only a developer wants to know."""
    if "logging" in sys.modules:
        _log(10, message, args)


def info(message: str, *args: object) -> None:
    """Log what was done."""
    if "logging" in sys.modules:
        _log(20, message, args)


def warning(message: str, *args: object) -> None:
    """Log what somebody should look at."""
    _log(30, message, args)


def error(message: str, *args: object) -> None:
    """Log what could not be done."""
    _log(40, message, args)


def _log(level: int, message: str, args: tuple[object, ...]) -> None:
    import logging

    shown = [each if isinstance(each, int | float) else _printable(str(each)) for each in args]
    try:
        logging.getLogger(LOGGER).log(level, message, *shown, stacklevel=3)
    except BaseException as error:
        from mala_context._util.foreign_code import passes

        if passes(error):
            raise
        # a handler's fault is not the archive's, and there is no place to say it


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    from mala_context._util.text import printable  # most lines hold nothing that it would change

    return printable(text)
