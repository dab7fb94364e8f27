"""`mala-context archives`: read archives, check them, undo compactions with them, keep them small."""

from __future__ import annotations

import click

from mala_context.cli.archives.changing import catch_up, export, import_, pack, prune, push, restore
from mala_context.cli.archives.reading import cat, list_, lost, search, show, verify
from mala_context.cli.exit_status import SUBCOMMAND, help_if_alone


@click.group(invoke_without_command=True, subcommand_metavar=SUBCOMMAND)
@click.pass_context
def archives(context: click.Context) -> None:
    """Read, check, search and prune archives, and undo a compaction.

    Without --repo and --dir the archive of the repository around the working directory is used. A SESSION that is not
    there is looked for in all archives; the first letters of its id are enough if they fit one session only.

    Exit status: 0 fine, 1 a check failed, 2 wrong usage, 3 an input was not found or cannot be used.
    """
    help_if_alone(context)


for command in (list_, show, cat, lost, search, verify, restore, prune, catch_up, push, pack, export, import_):
    archives.add_command(command)
