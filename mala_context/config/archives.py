"""What the `archive:` section comes to: the archive of a repository, and the object store behind it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mala_context.archive.remote.address import Target, is_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.archive.store import TranscriptArchive
    from mala_context.config.settings import ArchiveConfig


def archive_of(
    repo_path: str | os.PathLike[str], config: ArchiveConfig, *, projects_dirs: Sequence[str] | None = None
) -> TranscriptArchive:
    """Return the archive of a repository; whether anything is to be archived, `config.enabled`, is the caller's.

    A relative directory is one below the repository. `projects_dirs` are those of `TranscriptArchive`.
    """
    from mala_context.archive.store import TranscriptArchive  # who reads a configuration may want no archive

    target = target_of(config)
    place = None if config.directory is None or target is not None else os.path.expanduser(config.directory)
    return TranscriptArchive(
        None if place is None else os.path.join(repo_path, place),
        target=target,
        repo_path=os.fspath(repo_path),
        mode=config.mode,
        compress=config.compress,
        keep=None if config.keep is None else {"days": config.keep.days, "bytes": config.keep.bytes},
        warn_bytes=config.warn_bytes,
        projects_dirs=projects_dirs,
    )


def names_object_store(directory: str | None) -> bool:
    """Tell whether an archive's directory is an address such as `s3://bucket/prefix`, behind a folder on the disk."""
    return is_address(directory)


def target_of(config: ArchiveConfig) -> Target | None:
    """Return the object store that archives are sent to, `None` where they go to a folder."""
    if config.directory is None or not is_address(config.directory):
        return None
    return Target(address=config.directory, prefix=config.prefix, encryption=config.encryption, kms_key=config.kms_key)
