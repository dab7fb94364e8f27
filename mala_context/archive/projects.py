"""The CLI's project folders: which folder a working directory has, and where a restored session belongs.

The CLI names a folder after the directory's real path: every UTF-16 unit but ASCII letters and digits becomes `-`, so
an emoji is two dashes. Of a name over 200 characters the first 200 stay, followed by `-` and a 32-bit hash of the
path in base 36. Measured on CLI 2.1.332; other builds hash differently, so an existing folder with the same first 200
characters counts.
"""

from __future__ import annotations

import os

from mala_context.archive.source import default_projects_dirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def folder_name(cwd: str) -> str:
    """Return the name of the project folder of a working directory (its real path)."""
    units = _utf16_units(cwd)
    name = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}-{_hash(units)}"


def _utf16_units(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[index] | data[index + 1] << 8 for index in range(0, len(data), 2)]


def _hash(units: Iterable[int]) -> str:
    """Return the CLI's 32-bit hash in base 36."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def folder_of(projects: str, cwd: str) -> str:
    """Return the project folder of a working directory, an existing one where a long name allows several."""
    name = folder_name(os.path.realpath(cwd))
    path = os.path.join(projects, name)
    if len(name) <= LONGEST or os.path.isdir(path):
        return path
    try:
        others = sorted(each for each in os.listdir(projects) if each.startswith(name[: LONGEST + 1]))
    except OSError:
        return path
    return os.path.join(projects, others[0]) if others else path


def projects_dir(transcript: str | None, given: str | os.PathLike[str] | None = None) -> str:
    """Return the projects directory for a restored session.

    The one given, else the one that the transcript lay in if that is still there, else the CLI's own. Raises
    `ArchiveUnavailableError` where there is none.
    """
    if given is not None:
        return os.path.abspath(os.fspath(given))
    if transcript is not None:
        around = os.path.dirname(os.path.dirname(transcript))
        if os.path.basename(around) == "projects" and os.path.isdir(around):
            return around
    own = default_projects_dirs()
    if own:
        return own[0]
    from mala_context.errors import ArchiveUnavailableError

    raise ArchiveUnavailableError("no home directory to restore a session into: set CLAUDE_CONFIG_DIR")
