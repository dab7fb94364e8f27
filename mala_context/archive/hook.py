"""What a PreCompact hook does with its input, for the SDK's callback and for a command hook's process alike.

It never raises and it says in one line of log what became of the transcript: INFO where it was archived or nothing
was new, WARNING where there is nothing to read or no place to write to, ERROR where writing failed. The agent goes on
in any case, so the caller's answer is always `{}`.
"""

from __future__ import annotations

from mala_context.archive import log
from mala_context.transcripts.session_ids import check_session_id, session_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mala_context.archive.records import ArchiveResult
    from mala_context.archive.store import TranscriptArchive

_FOUND_BY_NAME = frozenset({"empty path", "missing", "not a regular file"})
"""Reasons for which a transcript is looked for by its session's name."""


def archive_from_hook(archive: TranscriptArchive, hook_input: Mapping[str, Any], **known: Any) -> ArchiveResult | None:
    """Archive the transcript that a PreCompact hook's input names; returns `None` where nothing could be done.

    A path that leads to no file is answered by looking for `{session_id}.jsonl` where the archive finds transcripts.
    `known` are further keywords of `TranscriptArchive.archive` (tokens, model). Never raises.
    """
    try:
        return _archive(archive, hook_input, known)
    except OSError as error:
        if _is_ours(error):
            log.warning("PreCompact: transcript not archived: %s", error)
        else:
            log.error("PreCompact: could not write the archive: %s", error)
    except Exception as error:  # noqa: BLE001  # a hook never raises, whatever its input holds
        log.warning("PreCompact: transcript not archived: %s", error if _is_ours(error) else repr(error))
    return None


def _archive(archive: TranscriptArchive, hook_input: Mapping[str, Any], known: dict[str, Any]) -> ArchiveResult:
    path = hook_input.get("transcript_path")
    session_id = check_session_id(session_in(hook_input.get("session_id"), path))
    cwd = hook_input.get("cwd")
    trigger = hook_input.get("trigger")
    agent = hook_input.get("agent_id")
    fields: dict[str, Any] = {
        "trigger": trigger if trigger in ("auto", "manual") else "unknown",
        "agent": agent if isinstance(agent, str) and agent else None,
        "cwd": cwd if isinstance(cwd, str) else None,
        **known,
    }
    try:
        return archive.archive(path, session_id, **fields)
    except Exception as error:
        from mala_context.errors import TranscriptError  # an import that only a failure pays for

        if not isinstance(error, TranscriptError) or error.reason not in _FOUND_BY_NAME:
            raise
        found = archive.find_transcript(session_id, cwd=fields["cwd"])
        if found is None or found == path:
            raise
        log.info("PreCompact: transcript %r is not there, archiving %s", path, found)
        return archive.archive(found, session_id, **fields)


def _is_ours(error: BaseException) -> bool:
    from mala_context.errors import ArchiveError

    return isinstance(error, ArchiveError)
