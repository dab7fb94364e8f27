"""How a command ends: one line about an error on standard error, and the exit status."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

import click

from mala_context._util.text import printable
from mala_context.cli import streams
from mala_context.errors import ConfigError, CorruptArchiveError, MalaContextError

CHECK_FAILED: Final = 1
"""Exit status where a command looked for faults and found one."""
WRONG_USAGE: Final = 2
"""Exit status of a command line that cannot be understood."""
UNUSABLE_INPUT: Final = 3
"""Exit status where an input was not found, cannot be read or cannot be used."""
INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as a shell has it."""
ERRORS: Final = (KeyboardInterrupt, click.exceptions.Abort, click.ClickException, MalaContextError, OSError)
"""The errors that `status_of` knows."""
SUBCOMMAND: Final = "COMMAND [ARGS]..."
"""Usage of a group: a command is required, although `help_if_alone` asks for it and not click."""


def help_if_alone(context: click.Context) -> None:
    """Show a group's help and end with wrong usage where no command was given; versions of click differ in that."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(WRONG_USAGE)


def status_of(error: BaseException) -> int:
    """Print an error in one line and return its exit status. If the reader of our output has gone, that is no error.

    Wrong usage gets a second line, which names the command's help.
    """
    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        return _said("interrupted", INTERRUPTED)
    if isinstance(error, click.ClickException):
        status = _said(error.format_message(), error.exit_code)
        context = getattr(error, "ctx", None)
        if context is not None:
            _write(f"Try '{context.command_path} --help'.\n")
        return status
    if isinstance(error, CorruptArchiveError):
        return _said(f"{error}; `mala-context archives verify` tells more", CHECK_FAILED)
    if isinstance(error, MalaContextError):
        return _said(str(error), UNUSABLE_INPUT, lines=isinstance(error, ConfigError))
    # Standard output itself may have failed: what it still holds can never be written, and must not fail again at exit.
    streams.end_output()
    if isinstance(error, BrokenPipeError):
        return 0
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else _place()
    return _said(f"{where}{getattr(error, 'strerror', None) or error}", UNUSABLE_INPUT)


def _place() -> str:
    """Return what an error without a file's name is about: the working directory, if that was deleted."""
    try:
        os.getcwd()
    except OSError:
        return "the working directory: "
    return ""


def _said(message: str, status: int, *, lines: bool = False) -> int:
    _write(f"mala-context: {printable(message, lines=lines)}\n")
    return status


def _write(words: str) -> None:
    with contextlib.suppress(OSError):  # there is nowhere to say it; the status still does
        sys.stderr.write(words)
        sys.stderr.flush()
