"""Checks of the archives: where they lie, who can read them, whether there is room, and whether all of it is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from mala_context._util.formatting import plural, size_text
from mala_context.analysis.doctor.facts import (
    Entry,
    ObjectStore,
    Readable,
    Runs,
    Space,
    Transcripts,
    Unarchived,
    Verified,
)
from mala_context.analysis.doctor.findings import Finding, Severity

ENOUGH_DAYS: Final = 30
"""Days for which there should be room at the pace of late."""
LEAST_FREE: Final = 100_000_000
"""Bytes that should be free in any case: one large transcript and then some."""


def runs(place: Runs) -> Iterator[Finding]:
    """Find that there is no place for archives, or none that can be written to, or one of somebody else."""
    mend = "set MALA_RUNS_DIR to an absolute path of a directory that is yours"
    if place.error is not None:
        found = f"nothing can be archived: {place.error}"
        yield Finding("runs", "error", found, place.path or "MALA_RUNS_DIR", mend)
    for each in place.directories:
        if each.owner != place.us:
            found = f"it belongs to user {each.owner}, not to us ({place.us}): nothing is archived there"
            yield Finding(
                "runs", "error", found, each.path, f"`chown -R {place.us} {shlex.quote(each.path)}`, or {mend}"
            )


def runs_well(place: Runs) -> str:
    """Name it."""
    state = plural(place.archives, "archive") if place.directories else "not there yet"
    return f"{place.path} ({state})"


def object_store(stores: tuple[ObjectStore, ...]) -> Iterator[Finding]:
    """Find that the object store that archives go to takes nothing; what is archived stays on this disk then."""
    for each in stores:
        if each.error is not None:
            found = f"nothing is uploaded, archives stay on this disk: {each.error}"
            mend = "mend that" if each.installed else "pip install 'mala-context[objects]'"
            mend = f"{mend}; then `mala-context archives push` sends what has waited"
            yield Finding("object-store", "error", found, each.address, mend)


def object_store_well(stores: tuple[ObjectStore, ...]) -> str:
    """Say how long writing to it took."""
    named = [f"{each.address} ({each.seconds:.1f} s to write and read)" for each in stores]
    return ", ".join(named) or "none is named, archives stay on this disk"


def permissions(place: Runs) -> Iterator[Finding]:
    """Find directories of archives that others can enter."""
    for each in place.directories:
        if each.mode & 0o077:
            found = f"its mode is {each.mode:04o}: others can {_may(each)}"
            severity: Severity = "error" if each.mode & 0o022 else "warning"
            yield Finding("permissions", severity, found, each.path, f"chmod 700 {shlex.quote(each.path)}")


def _may(entry: Entry) -> str:
    verbs = [
        word for bits, word in ((0o022, "write to it"), (0o044, "list it"), (0o011, "enter it")) if entry.mode & bits
    ]
    return " and ".join(verbs)


def permissions_well(place: Runs) -> str:
    """Say how many directories."""
    count = len(place.directories)
    return f"{count} {'directory' if count == 1 else 'directories'}, all 0700" if count else "nothing to look at yet"


def readable(places: tuple[Readable, ...]) -> Iterator[Finding]:
    """Find files with what agents read and wrote that others can read."""
    for each in places:
        if each.files:
            found = f"{plural(len(each.files), 'file')} with what agents read and wrote: others can read {_them(each)}"
            paths = tuple(f"{file.path} ({file.mode:04o})" for file in each.files)
            yield Finding("readable", "error", found, each.root, f"chmod -R go= {shlex.quote(each.root)}", paths)


def _them(each: Readable) -> str:
    return "it" if len(each.files) == 1 else "them"


def readable_well(places: tuple[Readable, ...]) -> str:
    """Say that nobody can, and how many files were looked at where it is not all."""
    left = sum(each.left for each in places)
    looked = sum(each.looked for each in places)
    some = f", by {looked:,} files; {left:,} more not looked at" if left else ""
    return f"transcripts and archives are ours alone to read{some}"


def space(disk: Space) -> Iterator[Finding]:
    """Find that the disk will be full before long."""
    days = disk.free / disk.per_day if disk.per_day > 0 else None
    mend = (
        "free space; `mala-context archives prune`, `archives pack`, or archive.keep in mala.yaml make archives smaller"
    )
    if disk.free < LEAST_FREE:
        yield Finding("space", "error", f"only {size_text(disk.free)} are free for archives", disk.path, mend)
    elif days is not None and days < ENOUGH_DAYS:
        found = (
            f"{size_text(disk.free)} are free, archives grow by {size_text(round(disk.per_day))} a day: {days:.0f} days"
        )
        yield Finding("space", "warning", found, disk.path, mend)


def space_well(disk: Space) -> str:
    """Say how much is free and how fast it goes."""
    stored = f"{'about ' if disk.estimated else ''}{size_text(disk.stored)}"
    return f"{size_text(disk.free)}; archives take {stored}, {size_text(round(disk.per_day))} more a day"


def unarchived(seen: Transcripts) -> Iterator[Finding]:
    """Find transcripts whose compactions no archive covers; the CLI deletes them one day."""
    for each in seen.unarchived:
        found = (
            f"no archive holds what {plural(each.compactions, 'compaction')} of "
            f"{plural(len(each.transcripts), 'transcript')} dropped: it goes when Claude Code deletes the transcript"
        )
        yield Finding("unarchived", "warning", found, each.folder, _archive_it(each), each.transcripts)


def _archive_it(each: Unarchived) -> str:
    repo = f" --repo {shlex.quote(each.cwd)}" if each.cwd is not None else ""
    if each.known:
        return f"mala-context archives catch-up{repo}"
    return f"mala-context archives import{repo} {shlex.quote(each.folder)}"


def unarchived_well(seen: Transcripts) -> str:
    """Say how many transcripts were searched."""
    known = "them" if not seen.left else f"{seen.files - seen.left:,} of them"
    some = "" if seen.searched == seen.files else f", the newest {seen.searched:,} of {known} searched"
    return f"{plural(seen.files, 'transcript')}{some}"


def verify(seen: Verified) -> Iterator[Finding]:
    """Find archives that are not what they say."""
    for each in seen.damaged:
        found = f"{plural(len(each.problems), 'problem')} in this archive"
        mend = f"mala-context archives verify --repair --dir {shlex.quote(each.location)}"
        yield Finding("verify", "error", found, each.location, mend, each.problems)


def verify_well(seen: Verified) -> str:
    """Say how many sessions were verified."""
    if seen.verified == seen.sessions:
        return f"{plural(seen.sessions, 'session')} verified"
    return (
        f"the newest {seen.verified:,} of {plural(seen.sessions, 'session')} verified; `archives verify --all` does all"
    )
