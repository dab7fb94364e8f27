"""What a command says of an error, and its exit status."""

import errno
import io
import sys

import click
import pytest

from mala_context.cli.exit_status import (
    CHECK_FAILED,
    ERRORS,
    INTERRUPTED,
    UNUSABLE_INPUT,
    WRONG_USAGE,
    help_if_alone,
    status_of,
)
from mala_context.errors import ConfigError, CorruptArchiveError, MalaContextError, RecordingNotFoundError


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (KeyboardInterrupt(), INTERRUPTED, "mala-context: interrupted\n"),
        (MalaContextError("odd \x1b[31m"), UNUSABLE_INPUT, "mala-context: odd \\x1b[31m\n"),
        (MalaContextError("two\nlines"), UNUSABLE_INPUT, "mala-context: two\\x0alines\n"),
        (RecordingNotFoundError("/no"), UNUSABLE_INPUT, f"mala-context: {RecordingNotFoundError('/no')}\n"),
        (
            CorruptArchiveError("a piece is cut", path="p"),
            CHECK_FAILED,
            "mala-context: a piece is cut: p; `mala-context archives verify` tells more\n",
        ),
        (ConfigError("two\nlines"), UNUSABLE_INPUT, "mala-context: two\nlines\n"),
        (OSError(errno.ENOSPC, "No space left", "/x"), UNUSABLE_INPUT, "mala-context: /x: No space left\n"),
        (OSError("of our own"), UNUSABLE_INPUT, "mala-context: of our own\n"),
        (BrokenPipeError(), 0, ""),
        (click.exceptions.Abort(), INTERRUPTED, "mala-context: interrupted\n"),
        (click.ClickException("no \x1b[31m"), CHECK_FAILED, "mala-context: no \\x1b[31m\n"),
        (click.UsageError("not so"), WRONG_USAGE, "mala-context: not so\n"),
        (
            click.UsageError("not so", click.Context(click.Command("fake"), info_name="fake")),
            WRONG_USAGE,
            "mala-context: not so\nTry 'fake --help'.\n",
        ),
    ],
)
def test_an_error_is_a_line_and_a_status(error, status, words, capsys):
    assert isinstance(error, ERRORS)
    assert status_of(error) == status
    assert capsys.readouterr().err == words


def test_what_was_printed_before_an_error_of_the_disk_is_written(monkeypatch, capsys):
    out = io.StringIO()
    flushed = []
    out.flush = lambda: flushed.append(out.getvalue())
    monkeypatch.setattr(sys, "stdout", out)
    out.write("a row\n")
    status_of(OSError(errno.EIO, "Input/output error"))
    assert flushed == ["a row\n"]
    assert "Input/output error" in capsys.readouterr().err


def test_a_working_directory_that_is_gone_is_named(monkeypatch, tmp_path, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    status_of(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    assert capsys.readouterr().err == "mala-context: the working directory: No such file or directory\n"


def test_a_group_without_a_command_is_its_help(capsys):
    group = click.Group("fake", {"one": click.Command("one")}, invoke_without_command=True)
    group.callback = click.pass_context(help_if_alone)
    assert group.main([], "fake", standalone_mode=False) == WRONG_USAGE
    assert capsys.readouterr().err.startswith("Usage: fake ")
    assert group.main(["one"], "fake", standalone_mode=False) is None
