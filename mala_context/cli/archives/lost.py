"""`lost`: what each compaction of a session dropped that its summary does not mention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mala_context._util.printable import printable
from mala_context.archive.losses import read_loss
from mala_context.archive.manifest import TOOK_PLACE
from mala_context.cli.archives.common import find_session, json_option, place_options, say_json, session_argument
from mala_context.cli.progress import waiting
from mala_context.transcripts.loss import KINDS, lost_words

if TYPE_CHECKING:
    from mala_context.archive.store import TranscriptArchive


@click.command()
@session_argument
@place_options
@json_option
def lost(session: str | None, repo: str | None, directory: str | None, as_json: bool) -> None:
    """Show what compactions dropped and their summaries do not mention.

    A file counts as mentioned if the summary has its name, an instruction if the summary has half of its words. What
    was not measured when the session was compacted is measured now. Without SESSION: the session archived last.
    """
    archive, session_id = find_session(repo, directory, session)
    with waiting("measuring", counts=False) as progress:
        lengths = {piece.plain: piece.length or 0 for piece in archive.pieces(session_id)}
        compactions = _compactions(archive, session_id)
        progress.expect(sum(lengths.get(str(row.get("piece")), 0) for row in compactions))
        found = []
        for row in compactions:
            found.append(_measured(archive, session_id, row))
            progress(lengths.get(str(row.get("piece")), 0))
    if as_json:
        say_json({"session": session_id, "location": archive.location, "compactions": found})
        return
    if not found:
        click.echo(f"{printable(session_id)}: no compaction is archived")
    for number, each in enumerate(found, 1):
        _show(number, each)


def _compactions(archive: TranscriptArchive, session_id: str) -> list[Mapping[str, Any]]:
    outcomes = archive.manifest(session_id).of_kind("outcome")
    return [row for row in outcomes if row.get("outcome") in TOOK_PLACE]


def _is_main(row: Mapping[str, Any]) -> bool:
    return row.get("agent") in {None, "main"}


def _measured(archive: TranscriptArchive, session_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    known = row.get("lost")
    if not isinstance(known, Mapping) and isinstance(row.get("piece"), str) and _is_main(row):
        summary = row.get("summary")
        loss = read_loss(archive, session_id, summary if isinstance(summary, str) else None, piece=row["piece"])
        known = None if loss is None else loss.as_dict()
    names = ("time", "agent", "trigger", "tokens_before", "tokens_after")
    return {**{name: row.get(name) for name in names}, "lost": dict(known) if isinstance(known, Mapping) else None}


def _show(number: int, each: Mapping[str, Any]) -> None:
    sizes = " → ".join(f"{size:,}" if isinstance(size, int) else "unknown" for size in _sizes(each))
    entries = each["lost"]
    words = "what it lost is not known" if entries is None else lost_words(entries)
    about = f"trigger={printable(each['trigger'] or 'unknown')}"
    about += "" if _is_main(each) else f", subagent {printable(each['agent'])}"
    click.echo(f"{number}. {printable(each['time'] or '')}: {sizes} tokens ({about}); {words}")
    for kind, heading in KINDS.items():
        entry = (entries or {}).get(kind)
        missing = entry.get("missing") if isinstance(entry, Mapping) else None
        if isinstance(missing, list) and missing:
            click.echo(f"   {heading}:")
            for item in missing:
                click.echo(f"   - {printable(item)}")


def _sizes(each: Mapping[str, Any]) -> tuple[Any, Any]:
    return each["tokens_before"], each["tokens_after"]
