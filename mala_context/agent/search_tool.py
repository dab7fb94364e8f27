"""`search_history`: a tool with which the agent searches the rows of its own session that compactions dropped.

It runs inside this process as an MCP server of the SDK. It searches only the archive of the agent's own session. Rows
that are still in the context are not archived yet, so the agent does not find its own question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.background import Worker, wait_for
from mala_context.archive.losses import history_path
from mala_context.archive.search import search_session
from mala_context.errors import ArchiveError
from mala_context.guard import cap_text

if TYPE_CHECKING:
    from mala_context.archive.search import Hit
    from mala_context.archive.store import TranscriptArchive

SERVER: Final = "mala_context"
TOOL: Final = "search_history"
FULL_NAME: Final = f"mcp__{SERVER}__{TOOL}"
MOST_HITS: Final = 50
ANSWER_TOKENS: Final = 2_000
SECONDS: Final = 30.0
"""Longest that a search may take; the first one of a long session makes its index."""

DESCRIPTION: Final = (
    "Search the earlier part of this session that was dropped when the conversation was compacted: prompts, answers, "
    'tool inputs and tool results, word for word. Every word of the query must stand in a hit; put "several words" in '
    "quotes to find them in a row, and end a word with * for any ending. Nothing is found before the first compaction."
)
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words to find"},
        "limit": {"type": "integer", "description": f"Hits at most, 10 by default, {MOST_HITS} at most"},
    },
    "required": ["query"],
}


class HistorySearch:
    """Answers the tool's calls.

    Args:
        archive: where the session is archived.
        session: gives the id of the session that is running, `None` while it is not known.
    """

    def __init__(self, archive: TranscriptArchive, session: Callable[[], str | None]) -> None:
        self._archive = archive
        self._session = session
        self._worker = Worker("mala-context search")

    async def answer(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the tool says: hits, the best first, at most 2,000 tokens. Never raises."""
        query, limit = arguments.get("query"), arguments.get("limit")
        session_id = self._session()
        if session_id is None:
            return _said("The session is not known yet.", error=True)
        most = min(limit, MOST_HITS) if isinstance(limit, int) and limit > 0 else 10
        words = query if isinstance(query, str) else ""
        try:
            hits = await wait_for(
                self._worker.submit(lambda: search_session(self._archive, session_id, words, limit=most)),
                seconds=SECONDS,
            )
        except TimeoutError:
            return _said("The search takes too long; it goes on, so try again in a while.", error=True)
        except (ArchiveError, OSError) as error:
            return _said(f"The history cannot be searched: {error}", error=True)
        return _said(as_text(hits, history_path(self._archive, session_id)))

    def server(self) -> dict[str, Any]:
        """Return the MCP server's configuration, for `ClaudeAgentOptions.mcp_servers[SERVER]`."""
        from claude_agent_sdk import create_sdk_mcp_server, tool

        made = create_sdk_mcp_server(SERVER, tools=[tool(TOOL, DESCRIPTION, dict(SCHEMA))(self.answer)])
        return {**made, "alwaysLoad": True}  # otherwise the model must first ask the CLI for the tool's schema


def as_text(hits: Sequence[Hit], where: str) -> str:
    """Return hits as the agent reads them, and where the whole history is."""
    if not hits:
        return "Nothing was found in what was dropped of this session."
    lines = [
        f"- {hit.time or ''} {hit.role}{'' if hit.agent == 'main' else f' ({hit.agent})'}"
        f"{' (taken back by the user)' * hit.rewound}: {hit.text}"
        for hit in hits
    ]
    return cap_text("\n".join([*lines, f"The full rows, as JSON lines, are in {where}"]), ANSWER_TOKENS)


def _said(text: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "is_error": error}
