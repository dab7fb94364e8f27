"""The CLI's project folders: which folder a working directory has, where a session's transcript lies or belongs.

The CLI names a folder after the directory's real path: every UTF-16 unit but ASCII letters and digits becomes `-`, so
an emoji is two dashes. Of a name over 200 characters the first 200 stay, followed by `-` and a 32-bit hash of the
path in base 36. Measured on CLI 2.1.332; other builds hash differently, so an existing folder with the same first 200
characters counts.
"""

from __future__ import annotations

import os
import stat

from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
        # Another build of the CLI hashes differently: a folder with the same first 200 characters is taken for this
        # directory's.
        others = sorted(each for each in os.listdir(projects) if each.startswith(name[: LONGEST + 1]))
    except OSError:
        return path
    return os.path.join(projects, others[0]) if others else path


def find_transcript(
    session_id: str,
    *,
    cwd: str | None = None,
    projects_dirs: Sequence[str] | None = None,
) -> str | None:
    """Return the path of `{session_id}.jsonl`, exactly that name, in a folder of the projects directories, or `None`.

    A file in the folder of `cwd` wins, else the last written one. `projects_dirs` are by default those of the CLI:
    `$CLAUDE_CONFIG_DIR/projects`, else `~/.claude/projects`. Raises `InvalidSessionIdError`.
    """
    name = f"{check_session_id(session_id)}.jsonl"
    found: list[tuple[bool, int, str]] = []
    own = None if cwd is None else folder_name(cwd)
    for projects in default_projects_dirs() if projects_dirs is None else projects_dirs:
        try:
            folders = os.listdir(projects)
        except OSError:
            continue
        for folder in folders:
            path = os.path.join(projects, folder, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((folder == own, status.st_mtime_ns, path))
    return max(found)[2] if found else None


def home_dir(env: Mapping[str, str]) -> str | None:
    """Return the home directory, or `None` where it is unset, relative, `/` or not a directory."""
    home = env.get("HOME")
    if home is None:
        try:
            import pwd

            home = pwd.getpwuid(os.getuid()).pw_dir
        except (ImportError, AttributeError, KeyError):
            return None
    usable = os.path.isabs(home) and os.path.normpath(home) not in {"/", "//"} and os.path.isdir(home)
    return home if usable else None


def config_dir(env: Mapping[str, str]) -> str | None:
    """Return where the CLI keeps the user's settings and transcripts, `None` where there is no home."""
    configured = env.get("CLAUDE_CONFIG_DIR", "")
    if os.path.isabs(configured):
        return configured
    home = home_dir(env)
    return None if home is None else os.path.join(home, ".claude")


def default_projects_dirs(env: Mapping[str, str] | None = None) -> list[str]:
    """Return the directories in which the CLI keeps its project folders; `env` is by default this process's."""
    directory = config_dir(os.environ if env is None else env)
    return [] if directory is None else [os.path.join(directory, "projects")]


def entries(directory: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, sorted by name; none if it cannot be read."""
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda each: each.name)
    except OSError:
        return []


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
