"""The folders of recordings that a benchmark is given."""

from __future__ import annotations

import argparse
import os


def folders(about: str, least: int = 1, most: int | None = None, *, flag: str = "") -> tuple[list[str], bool]:
    """Return the paths on the command line, and whether the flag was there; ends with what is wrong about them."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="FOLDER")
    if flag:
        parser.add_argument(flag, action="store_true", dest="flag")
    given = parser.parse_args()
    if not least <= len(given.paths) <= (most or len(given.paths)):
        parser.error(
            f"{len(given.paths)} folders were given, {least}{f' to {most}' if most else ' or more'} are needed"
        )
    for path in given.paths:
        if not os.path.exists(path):
            parser.error(f"{path} is not there")
    return given.paths, getattr(given, "flag", False)
