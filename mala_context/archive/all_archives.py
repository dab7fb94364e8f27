"""The archives that the runs directory holds, whosever repository they are."""

from __future__ import annotations

import os

from mala_context.archive import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def known_archives(env: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield, for each archive, the path of its repository (its key where that is unknown) and its directory.

    In the order of their keys; links are passed over. Raises `ArchiveUnavailableError` where there is no place for a
    runs directory, and `OSError` where it cannot be read; one that is not there has no archives.
    """
    runs = layout.runs_dir(env)
    try:
        keys = sorted(os.listdir(runs))
    except FileNotFoundError:
        return
    for key in keys:
        directory = os.path.join(runs, key, layout.ARCHIVES)
        if os.path.isdir(directory) and not os.path.islink(directory):
            yield layout.read_marker(os.path.join(runs, key)) or key, directory
