"""`mala-context archives`: look into archives, check them, go back with them, keep them small."""

from __future__ import annotations

import click

from mala_context.cli.archives.changing import catch_up, export, import_, pack, prune, restore
from mala_context.cli.archives.common import Group
from mala_context.cli.archives.lost import lost
from mala_context.cli.archives.pushing import push
from mala_context.cli.archives.reading import cat, list_, show, verify
from mala_context.cli.archives.search import search


@click.group(cls=Group)
def archives() -> None:
    """Look into archives, check them, and go back behind a compaction.

    Without --repo and --dir it is the archive of the repository that you are in; a session that is not there is looked
    for in all archives. The first letters of its id are enough where no other one begins like that.

    Exit status: 0 fine, 1 a check failed, 2 wrong usage, 3 an input was not found or cannot be used.
    """


for command in (list_, show, cat, lost, search, verify, restore, prune, catch_up, push, pack, export, import_):
    archives.add_command(command)
