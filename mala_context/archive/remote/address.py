"""Addresses of object stores: `s3://bucket/prefix` and the like, and the place of one repository below them.

An address is written into `mala.yaml`, manifests and log lines. So it must not hold a secret: an address with a user, a
password or a query (signed addresses have one) is refused, and no error message repeats it.
"""

from __future__ import annotations

import os

from mala_context.archive.layout import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

SCHEMES: Final = {
    "s3": "Amazon S3 and servers that speak its protocol",
    "gs": "Google Cloud Storage",
    "az": "Azure Blob Storage",
    "file": "a folder, for example on a network",
    "memory": "this process's memory, for tests",
}
PREFIX: Final = "{host}/{repo}"
"""Where a repository's archives lie below the address, by default."""
ENCRYPTIONS: Final = ("AES256", "aws:kms", "aws:kms:dsse")
"""Server-side encryptions that S3 can be asked for."""
_PLACES: Final = ("{host}", "{repo}")
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Target(Frozen):
    """Where an archive's pieces are sent."""

    address: str
    """The configured address."""
    prefix: str = PREFIX
    """What follows it; `{host}` and `{repo}` are replaced."""
    encryption: str | None = None
    """Server-side encryption to ask S3 for; `None` leaves it to the bucket."""
    kms_key: str | None = None
    """The key for `aws:kms` and `aws:kms:dsse`; `None` for the bucket's own."""

    def check(self) -> None:
        """Raise `ValueError` for an invalid address or prefix; the message repeats nothing of them."""
        check_address(self.address)
        check_prefix(self.prefix)

    def base(self, repo_runs_dir: str) -> str:
        """Return the address of the repository that has this directory among the runs; raises `ValueError`."""
        self.check()
        names = {"{host}": segment(os.uname().nodename), "{repo}": segment(os.path.basename(repo_runs_dir))}
        prefix = self.prefix
        for place, name in names.items():
            prefix = prefix.replace(place, name)
        return "/".join(part for part in (self.address.rstrip("/"), prefix.strip("/")) if part)


def is_address(directory: object) -> bool:
    """Tell whether a configured directory is an address and not a path."""
    return isinstance(directory, str) and "://" in directory


def check_address(address: str) -> str:
    """Return an address without a slash at its end; raises `ValueError`, and the message repeats nothing of it."""
    scheme, mark, rest = address.partition("://")
    if not mark or scheme not in SCHEMES:
        raise ValueError(f"an address begins with one of {', '.join(f'{each}://' for each in SCHEMES)}")
    place, _, path = rest.partition("/")
    if "@" in place or ":" in place:
        raise ValueError("an address holds no user, password or port: credentials come from the environment")
    if any(mark in rest for mark in "?#"):
        raise ValueError("an address holds no query: credentials come from the environment")
    if any(not c.isprintable() or c in "\\ %*" for c in rest) or ".." in path.split("/"):
        raise ValueError("an address is scheme://bucket/prefix in plain characters")
    if scheme in {"s3", "gs", "az"} and not place:
        raise ValueError(f"the bucket is missing: {scheme}://bucket/prefix")
    if scheme == "file" and (place or not path.strip("/")):
        raise ValueError("a folder is written file:///path, with three slashes")
    return address.rstrip("/") if path.strip("/") or place else f"{scheme}://"


def check_prefix(prefix: str) -> str:
    """Return the prefix; raises `ValueError` if it is not a path of plain names."""
    bare = prefix
    for place in _PLACES:
        bare = bare.replace(place, "x")
    parts = [part for part in bare.split("/") if part]
    if any(not set(part) <= _PLAIN or part in {".", ".."} for part in parts):
        raise ValueError("letters, digits, . _ - and /, with {host} and {repo} for the machine and the repository")
    return prefix


def segment(name: str) -> str:
    """Return a name as one part of an address: other characters become `_`, and a hash keeps changed names apart."""
    plain = "".join(c if c in _PLAIN else "_" for c in name)
    if plain == name and name not in {"", ".", ".."}:
        return name
    from hashlib import sha256

    return f"{plain}-{sha256(os.fsencode(name)).hexdigest()[:8]}"
