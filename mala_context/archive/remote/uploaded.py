"""What a manifest says of uploads: all the state there is, so a kill at any moment loses none of it.

A row `uploaded` is written once the store holds a file and has given back its bytes: its name, the place it went to,
the size and the hash of the stored bytes. The row for the manifest itself is the last one of a session of which all
is uploaded; any other row after it (a new piece, an outcome) makes the manifest pending again. All functions here
are pure.
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
_NEEDLE = b'"uploaded"'  # whatever stands between: other programs write JSON with blanks


def uploads(manifest: Manifest, base: str | None = None) -> dict[str, Mapping[str, Any]]:
    """Return the rows of files that are uploaded, by name, those at one place where `base` names it; the last wins."""
    return {
        row["name"]: row
        for row in manifest.of_kind(KIND)
        if isinstance(row.get("name"), str)
        and isinstance(row.get("to"), str)
        and manifests.count(row.get("length")) is not None
        and base in {None, row["to"]}
    }


def new_row(name: str, base: str, length: int, sha256: str, now: int, mtime_ns: int | None = None) -> dict[str, Any]:
    """Return the row of a file that is uploaded and was read back."""
    return manifests.new_row(KIND, now, name=name, to=base, length=length, sha256=sha256, mtime_ns=mtime_ns)


def elsewhere(session_id: str, data: bytes, here: Iterable[StoredFile]) -> list[StoredFile]:
    """Return the files that only an object store holds: those with a row and no file here, packed or plain."""
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
    """Return those of the local files that have not arrived at a place, in their order; not the manifest."""
    done = set(map(layout.plain_name, uploads(manifest, base)))
    return [name for name in names if layout.plain_name(name) not in done and not name.endswith(".manifest.jsonl")]


def manifest_is_uploaded(session_id: str, manifest: Manifest, base: str) -> bool:
    """Say whether the store's manifest is all that this one is, but for the row that says so."""
    last = manifest.rows[-1] if manifest.rows else {}
    return last.get("row") == KIND and last.get("name") == layout.manifest_name(session_id) and last.get("to") == base


def is_complete(session_id: str, names: Iterable[str], manifest: Manifest, base: str) -> bool:
    """Say whether a store holds all of a session, of which these are the local files, and its manifest too."""
    return manifest_is_uploaded(session_id, manifest, base) and not pending(names, manifest, base)


def places(manifest: Manifest) -> set[str]:
    """Return the addresses that this session was ever uploaded to."""
    return {row["to"] for row in uploads(manifest).values()}


def continues(local: Manifest, remote: Manifest) -> bool:
    """Say whether a store's manifest tells of the same pieces as the one here, which may have been made again.

    It does not where this machine forgot the session and began it again under the same name.
    """
    ours, theirs = list(local.pieces()), remote.pieces()
    return not ours or min(ours, key=_stamp) in theirs


def missing_rows(local: Manifest, remote: Manifest) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a store's manifest that are not here and may be taken from there.

    Whoever can write to the store can write rows. So none of them says where this machine's transcripts are, which a
    later start would archive and send there, or anything of a piece that this manifest has a row for.
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
