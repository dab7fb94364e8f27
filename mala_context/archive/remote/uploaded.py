"""The rows of a manifest that say what is uploaded. There is no other state, so a kill at any moment loses nothing.

A row `uploaded` is written after the store holds a file and has given back its bytes. It has the file's name, its
place, and the size and hash of the stored bytes. If a session is uploaded completely, its last row is that of the
manifest itself; any row after it (a new piece, an outcome) makes the manifest pending again. All functions are pure.
"""

from __future__ import annotations

from mala_context.archive import layout, manifests
from mala_context.archive.layout import StoredFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from mala_context.archive.manifests import Manifest

KIND = "uploaded"
_NEEDLE = b'"uploaded"'  # only the word: other programs write JSON with blanks around the colon


def uploads(manifest: Manifest, base: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the last `uploaded` row of each file by its name; with `base`, only rows of that place."""
    return {
        row["name"]: row
        for row in manifest.of_kind(KIND)
        if isinstance(row.get("name"), str)
        and isinstance(row.get("to"), str)
        and manifests.count(row.get("length")) is not None
        and base in {None, row["to"]}
    }


def new_row(name: str, base: str, length: int, sha256: str, now: int, mtime_ns: int | None = None) -> dict[str, Any]:
    """Return the row of a file that was uploaded and read back."""
    return manifests.new_row(KIND, now, name=name, to=base, length=length, sha256=sha256, mtime_ns=mtime_ns)


def elsewhere(session_id: str, data: bytes, here: Iterable[StoredFile]) -> list[StoredFile]:
    """Return the files that only an object store holds: they have a row, and no local file, plain or packed."""
    if _NEEDLE not in data:
        return []
    known = {layout.plain_name(file.name) for file in here}
    found: dict[str, StoredFile] = {}
    for name, row in uploads(manifests.parse(data)).items():
        of_session = layout.session_of(name) == session_id and name != layout.manifest_name(session_id)
        if of_session and layout.plain_name(name) not in known:
            mtime_ns = manifests.count(row.get("mtime_ns")) or 0
            found[layout.plain_name(name)] = StoredFile(
                name=name, size=row["length"], mtime_ns=mtime_ns, remote=row["to"]
            )
    return list(found.values())


def pending(names: Iterable[str], manifest: Manifest, base: str) -> list[str]:
    """Return the local files without the manifest that have not arrived at a place, in their order."""
    done = set(map(layout.plain_name, uploads(manifest, base)))
    return [name for name in names if layout.plain_name(name) not in done and not name.endswith(".manifest.jsonl")]


def manifest_is_uploaded(session_id: str, manifest: Manifest, base: str) -> bool:
    """Tell whether the store has this manifest without its last row, which says so."""
    last = manifest.rows[-1] if manifest.rows else {}
    return last.get("row") == KIND and last.get("name") == layout.manifest_name(session_id) and last.get("to") == base


def is_complete(session_id: str, names: Iterable[str], manifest: Manifest, base: str) -> bool:
    """Tell whether a store holds all of a session's local files (`names`) and its manifest."""
    return manifest_is_uploaded(session_id, manifest, base) and not pending(names, manifest, base)


def places(manifest: Manifest) -> set[str]:
    """Return the addresses that this session was ever uploaded to."""
    return {row["to"] for row in uploads(manifest).values()}


def continues(local: Manifest, remote: Manifest) -> bool:
    """Tell whether a store's manifest is about the same pieces as the local one, which may have been made again.

    It is not if this machine lost the session's archive and began a new one under the same name.
    """
    ours, theirs = list(local.pieces()), remote.pieces()
    return not ours or min(ours, key=_stamp) in theirs


def missing_rows(local: Manifest, remote: Manifest) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a store's manifest that are not in the local one and may be added to it.

    Everybody who can write to the store can write rows there. So no row may name a transcript on this machine, because
    a later start would archive that file and send it to the store. Nor may a row change what the local manifest says of
    a piece.
    """
    ours = {manifests.dump([row]) for row in local.rows}
    known = local.pieces().keys()
    found = (_taken(row, known) for row in remote.rows if row.get("row") != "session")
    return [row for row in found if row is not None and manifests.dump([row]) not in ours]


def _taken(row: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any] | None:
    names = row.get("names")
    if row.get("row") == "removing" and isinstance(names, list):
        return {**row, "names": [name for name in names if name not in known]}
    if row.get("row") == "piece" and row.get("name") in known:
        return None
    return {key: value for key, value in row.items() if key != "transcript"}


def _stamp(name: str) -> str:
    parsed = layout.parse_piece_name(name)
    return name if parsed is None else parsed.stamp
