"""Build the replacement of a conversation for the CLI: archive it, keep its full text, make the rows.

One function serves an agent's own process and the plugin's command hook, with the standard library alone. The order
matters: a pointer is given out only after the archive has the transcript and the full text was read back unchanged. Any
doubt raises `Doubt`, and then the CLI compacts itself.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from mala_context._util.safe_open import read_regular
from mala_context.agent.hook_io import text_in
from mala_context.archive import log
from mala_context.archive.full_outputs import Spills
from mala_context.archive.increment import archive_from_hook
from mala_context.archive.side_files import side_directory
from mala_context.errors import ArchiveError
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.loss.report import safe_tokens
from mala_context.transcripts.reference import ReferenceLimits, Replacement, UnknownShapeError, build, read_conversation
from mala_context.transcripts.reference.build import BUDGET
from mala_context.transcripts.rows import file_chunks, rows
from mala_context.transcripts.session_ids import check_agent_id, check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mala_context.archive.layout import ArchiveResult
    from mala_context.archive.store import TranscriptArchive

SERVER = "mala_context_reference"
"""The MCP server through which the mod asks an agent's own process."""
TRIGGERS = frozenset({"auto", "manual", "plugin"})
SHARE = 0.5
"""Largest share of the context before, and of the window, that may stay: more would hardly be a compaction."""
_TEXT_ONLY = frozenset({"text", "tool_result"})
_UUID = re.compile(rb'"uuid":\s?"([^"]{1,100})"')
_MAY_BE_MORE = (b'"image"', b'"document"')


class Doubt(Exception):  # noqa: N818  # no error: the CLI compacts
    """The reason why the CLI shall compact itself."""


class Settings(NamedTuple):
    """What an answer depends on besides the conversation."""

    repo: str
    """The repository in whose runs directory full texts are kept."""
    budget: int | None = None
    """Tokens that stay; `None` for 20,000, or a tenth of the window where that is less."""
    window: int = 200_000
    context: int | None = None
    """Tokens of the context before, where they are known."""
    searchable: bool = False
    """Whether the agent has `search_history`."""


class Answer(NamedTuple):
    """The conversation's replacement, and the result of archiving it."""

    kept: Replacement
    archived: ArchiveResult


def answer(request: Mapping[str, Any], archive: TranscriptArchive, settings: Settings) -> Answer:
    """Return the replacement of the conversation in a mod's `session.compact`.

    `request` has `session`, `transcript` (a path; older CLIs do not tell it), `cwd`, `trigger`, `instructions`, `agent`
    (a subagent's id or empty) and `messages`. Raises `Doubt`.
    """
    trigger, agent = text_in(request, "trigger"), text_in(request, "agent")
    if trigger not in TRIGGERS:
        raise Doubt(f"the trigger {trigger!s:.40} is not known")
    try:
        session = check_session_id(request.get("session"))
        request = {**request, "transcript": transcript_of(request, archive)}
        transcript, archived = _archive(request, archive, session, agent)
        messages = request.get("messages")
        pictures = _more_than_text(transcript, messages if isinstance(messages, list) else [])
        conversation = read_conversation(messages, pictures)
        spills = Spills(settings.repo)
        kept = build(
            conversation,
            ReferenceLimits(settings.budget or min(BUDGET, settings.window // 10)),
            path_of=lambda data: spills.path(session, data) if data else "",
            trigger=trigger,
            focus=text_in(request, "instructions") or "",
            searchable=settings.searchable,
        )
        _check_size(kept, messages, settings)
        if kept.data:
            _keep(spills, session, kept, text_in(request, "transcript"))
    except UnknownShapeError as error:
        raise Doubt(str(error)) from error
    except (ArchiveError, OSError) as error:
        raise Doubt(f"the full text cannot be kept: {error}") from error
    return Answer(kept, archived)


def transcript_of(request: Mapping[str, Any], archive: TranscriptArchive) -> str | None:
    """Return the path of the main transcript; `None` if it is neither given nor found by the session's id."""
    session = text_in(request, "session")
    return text_in(request, "transcript") or (archive.find_transcript(session) if session else None)


def _archive(
    request: Mapping[str, Any], archive: TranscriptArchive, session: str, agent: str | None
) -> tuple[str, ArchiveResult]:
    """Archive the transcript that is compacted; return its path and the result. Raises `Doubt` where that failed."""
    path = text_in(request, "transcript") or ""
    trigger = "manual" if request.get("trigger") == "manual" else "auto"
    fields: dict[str, Any] = {"trigger": trigger, "cwd": text_in(request, "cwd")}
    if agent is None:
        given = {"session_id": session, "transcript_path": path, **fields}
        result = archive_from_hook(archive, given, agent="main")
    else:
        path = os.path.join(side_directory(path), "subagents", f"agent-{check_agent_id(agent)}.jsonl")
        result = archive.archive(path, session, agent=agent, subagent=agent, **fields)
    if result is None or result.transcript is None or result.reason == "empty":
        raise Doubt("the transcript is not archived")
    return result.transcript, result


def _more_than_text(transcript: str, messages: Sequence[Any]) -> set[int]:
    """Return the places of the user's messages that hold more than text, for example an image.

    The newest prompt may not be in the transcript yet. Then it counts as one of them, so that an image is not lost.
    """
    wanted = {
        row["handle"]: place
        for place, row in enumerate(messages)
        if isinstance(row, dict) and row.get("role") == "user" and isinstance(row.get("handle"), str)
        if not row.get("results")
    }
    last = max(wanted.values(), default=-1)
    seen: set[int] = set()
    found: set[int] = set()
    for row in rows(file_chunks(transcript)):
        uuid = _UUID.search(row.data)
        place = wanted.get(uuid[1].decode("ascii", "replace")) if uuid else None
        if place is None:
            continue
        seen.add(place)
        if any(mark in row.data for mark in _MAY_BE_MORE) and any(map(_holds_more, objects(row.data))):
            found.add(place)
    return found | ({last} - seen - {-1})


def _holds_more(row: Mapping[str, Any]) -> bool:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, dict) and block.get("type") not in _TEXT_ONLY for block in blocks)


def _check_size(kept: Replacement, messages: object, settings: Settings) -> None:
    """Raise `Doubt` if the replacement is more than `SHARE` of the context before, or of the window."""
    came = 0
    for row in messages if isinstance(messages, list) else ():
        came += safe_tokens(row["text"])
        for use in row.get("toolUses", []):
            came += safe_tokens(str(use["input"])) + safe_tokens(use.get("text") or "")
    before = max(came, settings.context or 0)
    if kept.tokens > SHARE * before:
        raise Doubt(f"what stays, {kept.tokens:,} tokens, is more than half of the context of {before:,}")
    if kept.tokens > SHARE * settings.window:
        raise Doubt(f"what stays, {kept.tokens:,} tokens, is more than half of the window of {settings.window:,}")


def _keep(spills: Spills, session: str, kept: Replacement, transcript: str | None) -> None:
    """Keep the full text and read it back; raises `Doubt` if it is not what was written."""
    path = spills.write(session, kept.data, transcript)
    if path != kept.path or read_regular(path, len(kept.data) + 1) != kept.data:
        raise Doubt(f"the full text in {path} is not what was written")


def say(kept: Replacement) -> None:
    """Log what a compaction kept; a WARNING where words of the user are there by pointer only."""
    log.info(
        "Compaction by reference: %d tool calls by pointer, about %d tokens stay, no model was asked; full text: %s",
        kept.calls,
        kept.tokens,
        kept.path or "none is needed",
    )
    if kept.pointed_at:
        log.warning(
            "Compaction by reference: %d messages of the user are over the budget and there by pointer; raise "
            "context.reference.budget to keep them word for word",
            kept.pointed_at,
        )
