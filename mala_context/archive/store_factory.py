"""Which store of pieces an archive has: a directory, a place in an object store, or a repository's own directory."""

from __future__ import annotations

import os

from mala_context.archive import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mala_context.archive.interface import PieceStore


def absolute(directory: str, repo_path: str | os.PathLike[str] | None) -> str:
    """Return a configured directory as an absolute path; an address like `s3://…` stays as it is."""
    if "://" in directory:
        return directory
    expanded = os.path.expanduser(directory)
    if directory.startswith("~") and not os.path.isabs(expanded):  # a relative HOME would end below the repository
        from mala_context.errors import ArchiveUnavailableError

        raise ArchiveUnavailableError(f"no home directory for {directory}: set HOME to an absolute path")
    return os.path.abspath(expanded if repo_path is None else os.path.join(os.fspath(repo_path), expanded))


def open_store(directory: str | None, repo_path: str | os.PathLike[str] | None, *, create: bool) -> PieceStore:
    """Return the store at an absolute directory or an address, else the repository's, which `create` claims first.

    Raises `ArchiveUnavailableError` where there is no place for archives.
    """
    from mala_context.archive.local_store import LocalStore

    if directory is not None:
        if "://" in directory:
            from mala_context.archive.remote.reading import RemoteStore

            return RemoteStore(directory)
        return LocalStore(directory)
    repo = os.curdir if repo_path is None else repo_path
    if create:
        from mala_context.archive.directory import claim_repository

        return LocalStore(claim_repository(repo))
    return LocalStore(os.path.join(layout.repo_runs_dir(repo), layout.ARCHIVES))
