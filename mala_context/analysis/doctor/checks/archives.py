"""Checks of the archives: where they lie, who can read them, whether there is room, and whether they are complete."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from mala_context._util.text import plural, size_text
from mala_context.analysis.doctor.facts import (
    DiskSpace,
    PathMode,
    ReadableFiles,
    RunsDirectory,
    StoreProbe,
    TranscriptFacts,
    UnarchivedProject,
    VerifiedArchives,
)
from mala_context.analysis.doctor.findings import Finding, Severity

ENOUGH_DAYS: Final = 30
"""Days for which there should be room at the present pace."""
LEAST_FREE: Final = 100_000_000
"""Bytes that should be free in any case: one large transcript and some more."""
_OURS: Final = "mala-context"


def runs(place: RunsDirectory) -> Iterator[Finding | str]:
    """Find that archives have no place, one that cannot be written to, or one of another user."""
    fix = "set MALA_RUNS_DIR to an absolute path of a directory that is yours"
    if place.error is not None:
        yield Finding("error", f"nothing can be archived: {place.error}", place.path or "MALA_RUNS_DIR", fix)
    for each in place.directories:
        if each.owner != place.us:
            found = f"it belongs to user {each.owner}, not to us ({place.us}): nothing is archived there"
            fix_it = f"`chown -R {place.us} {shlex.quote(each.path)}`, or {fix}"
            yield Finding("error", found, each.path, fix_it)
    yield f"{place.path} ({plural(place.archives, 'archive') if place.directories else 'not there yet'})"


def object_store(stores: tuple[StoreProbe, ...]) -> Iterator[Finding | str]:
    """Find that the object store cannot be written to; then archives stay on this disk."""
    for each in stores:
        if each.error is not None:
            found = f"nothing is uploaded, archives stay on this disk: {each.error}"
            fix = "correct that" if each.installed else "pip install 'mala-context[objects]'"
            fix = f"{fix}; then `mala-context archives push` sends everything that waited"
            yield Finding("error", found, each.address, fix)
    named = [f"{each.address} ({each.seconds:.1f} s to write and read)" for each in stores]
    yield ", ".join(named) or "none is named, archives stay on this disk"


def permissions(place: RunsDirectory) -> Iterator[Finding | str]:
    """Find directories of archives that others can enter."""
    loose = [each for each in place.directories if each.mode & 0o077]
    if loose:
        can = " and ".join(word for bits, word in _VERBS if any(each.mode & bits for each in loose))
        found = f"{plural(len(loose), 'directory', 'directories')} of archives: others can {can}"
        severity: Severity = "error" if any(each.mode & 0o022 for each in loose) else "warning"
        command = ("chmod", "700", *(each.path for each in loose))
        yield Finding(severity, found, loose[0].path, items=tuple(map(_with_mode, loose)), commands=(command,))
    count = len(place.directories)
    yield f"{plural(count, 'directory', 'directories')}, all 0700" if count else "nothing to look at yet"


_VERBS: Final = ((0o022, "write"), (0o044, "list"), (0o011, "enter"))


def _with_mode(each: PathMode) -> str:
    return f"{each.path} ({each.mode:04o})"


def readable(places: tuple[ReadableFiles, ...]) -> Iterator[Finding | str]:
    """Find files with the conversations of agents that others can read."""
    for each in places:
        if each.files:
            found = f"others can read {plural(len(each.files), 'file')} with conversations of agents"
            command = ("chmod", "-R", "go=", each.root)
            items = tuple(map(_with_mode, each.files))
            yield Finding("error", found, each.root, items=items, commands=(command,))
    looked = sum(each.looked for each in places)
    part = "" if all(each.complete for each in places) else f", by {looked:,} files; there are more"
    yield f"only we can read transcripts and archives{part}"


def space(disk: DiskSpace) -> Iterator[Finding | str]:
    """Find that the disk will be full soon."""
    days = disk.free / disk.per_day if disk.per_day > 0 else None
    fix = (
        "free space; `mala-context archives prune`, `archives pack`, or archive.keep in mala.yaml make archives smaller"
    )
    free = size_text(disk.free)
    if disk.free < LEAST_FREE:
        yield Finding("error", f"only {free} are free for archives", disk.path, fix)
    elif days is not None and days < ENOUGH_DAYS:
        found = f"{free} are free, archives grow by {size_text(round(disk.per_day))} a day: {days:.0f} days"
        yield Finding("warning", found, disk.path, fix)
    stored = f"{'about ' if disk.estimated else ''}{size_text(disk.stored)}"
    yield f"{free}; archives take {stored}, {size_text(round(disk.per_day))} more a day"


def unarchived(seen: TranscriptFacts) -> Iterator[Finding | str]:
    """Find transcripts whose compactions no archive covers; the CLI deletes them after its clean-up time."""
    projects = seen.unarchived
    if projects:
        compactions = plural(sum(each.compactions for each in projects), "compaction")
        transcripts = plural(sum(len(each.transcripts) for each in projects), "transcript")
        found = f"no archive has the text before {compactions} of {transcripts} in {plural(len(projects), 'project')}"
        yield Finding(
            "warning",
            f"{found}; it is lost when Claude Code deletes the transcripts",
            projects[0].folder if len(projects) == 1 else projects[0].folder.rpartition("/")[0],
            items=tuple(path for each in projects for path in each.transcripts),
            commands=tuple(map(_archive_it, projects)),
        )
    some = "" if seen.searched == seen.files else f", the newest {seen.searched:,} searched"
    yield f"each compaction of {plural(seen.files, 'transcript')}{some}"


def _archive_it(each: UnarchivedProject) -> tuple[str, ...]:
    repo = () if each.cwd is None else ("--repo", each.cwd)
    if each.known:
        return (_OURS, "archives", "catch-up", *repo)
    return (_OURS, "archives", "import", *repo, each.folder)


def verify(seen: VerifiedArchives) -> Iterator[Finding | str]:
    """Find archives that do not verify."""
    for each in seen.damaged:
        found = f"{plural(len(each.problems), 'problem')} in this archive"
        command = (_OURS, "archives", "verify", "--repair", "--dir", each.location)
        yield Finding("error", found, each.location, items=each.problems, commands=(command,))
    all_of = plural(seen.sessions, "session")
    if seen.verified == seen.sessions:
        yield f"{all_of} verified"
    else:
        yield f"the newest {seen.verified:,} of {all_of} verified; `archives verify --all` does all"
