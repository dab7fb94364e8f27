"""Paths that must be there: one that is not is a missing input, no wrong usage."""

from __future__ import annotations

import errno
import os
from typing import Any

import click


class ThereDirectory(click.Path):
    """The type of a directory that must be there and readable.

    Converting raises `OSError` with the path where it is not, which ends a command with the status of a missing input.
    """

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path as it was given."""
        path = os.fspath(value)
        if not os.path.isdir(path):
            number = errno.ENOTDIR if os.path.lexists(path) else errno.ENOENT
            raise OSError(number, os.strerror(number), path)
        if not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().convert(value, param, ctx)
