"""The table of commands, and how all of them end.

A command's module is imported when the command is run or asked for its own help, so that `mala-context --help` and
shell completion start quickly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from mala_context.cli import streams
from mala_context.cli.exit_status import ERRORS, help_if_alone, status_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": (
        "mala_context.cli.demo",
        "Fill a context, watch it, compact it and check every figure; needs no key and no network.",
    ),
    "run": ("mala_context.cli.run", "Run a prompt with your own Claude Code login or key, and watch its context."),
    "watch": ("mala_context.cli.watch", "Show how full each session on this machine is, live."),
    "replay": ("mala_context.cli.replay", "Show how full recorded sessions were and when they compacted."),
    "audit": ("mala_context.cli.audit", "Compare every estimate with the known token counts in recorded sessions."),
    "simulate": ("mala_context.cli.simulate", "Show what another policy would have done in recorded sessions."),
    "map": ("mala_context.cli.map", "Show what fills a context: system prompt, tools, memory, files, results."),
    "archives": ("mala_context.cli.archives", "Read, check, search and prune archives; undo a compaction."),
    "report": ("mala_context.cli.report", "Draw recorded sessions as one HTML page, an SVG or a PNG."),
    "init": ("mala_context.cli.init", "Add the status line, hooks and thresholds to Claude Code's settings."),
    "statusline": ("mala_context.cli.statusline", "Print one line for Claude Code's status line."),
    "hook": ("mala_context.cli.hook", "Answer a hook of Claude Code; `init` puts it into the settings."),
    "doctor": ("mala_context.cli.doctor", "Check this machine and show how to fix what is wrong."),
    "config": ("mala_context.cli.config", "Show, check or create a mala.yaml."),
    "completion": ("mala_context.cli.completion", "Print the completion script for bash, zsh or fish."),
}
"""Command → its module, which has a click command of the same name, and its line in the help."""


class _ReaderGone(Exception):  # noqa: N818 - no error: the reader (`head`, a pager) has read enough
    """Standard output is closed; click would exit with 1."""


@contextmanager
def _reader_may_go() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


class _Commands(click.Group):
    """A group whose commands are imported on demand."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _reader_may_go():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _reader_may_go():
            return super().invoke(ctx)

    def main(self, args: Sequence[str] | None = None, *more: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line; print errors in our own format, and exit unless `standalone_mode` is false."""
        try:
            code = super().main(args, *more, standalone_mode=False, **extra)  # type: ignore[call-overload,unused-ignore]  # as given
            sys.stdout.flush()  # here, where an error of it can still be printed
        except _ReaderGone:
            code = status_of(BrokenPipeError())
        except ERRORS as error:
            code = status_of(error)
        if standalone_mode:
            streams.end_output()
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(import_module(entry[0]), cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of this name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            if near:
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name by the table, an option as click does; both without importing any command."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by the table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="mala-context")
@click.pass_context
def app(context: click.Context) -> None:
    """Know how full your agent's context window is, and keep what compaction throws away.

    Exit status: 0 fine, 1 a check failed, 2 wrong usage, 3 an input was not found or cannot be used, 130 Ctrl-C.
    """
    help_if_alone(context)


def run() -> None:
    """Run the command line and exit."""
    streams.prepare()
    app(prog_name="mala-context")
