"""Give the agent something back after a compaction: what the summary lost, or the text of a file.

Only the `SessionStart` hook with source `compact` adds words to the first request after an automatic compaction. It
fires before `PostCompact`, which has the summary. But an agent of the CLI's own writes the summary, and its
`SubagentStop` hook (with an empty type, and its last message) comes earlier. So the loss is measured from that message,
and `SessionStart` has the answer. If a CLI sends no such hook, or two compactions run at once, the summary comes with
`PostCompact`, and the answer with the next prompt or after the next tools.

Only the main agent gets an answer: a subagent's rows are not in the archive before it ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.background import Worker, wait_for
from mala_context._util.log import get_logger
from mala_context._util.safe_open import read_regular
from mala_context.agent.hook_io import add_context, text_in
from mala_context.guard import cap_text
from mala_context.transcripts.loss.report import PIN_TOKENS, safe_tokens

if TYPE_CHECKING:
    from concurrent.futures import Future

AUTO: Final = "auto"
SECONDS: Final = 5.0
"""Longest that the agent waits for the list of what was lost."""
_MOST_BYTES: Final = 64_000

Words = Callable[[str, str], "Future[str | None]"]

log = get_logger(__name__)


class Pin:
    """Answers the hooks around a compaction.

    Args:
        setting: `auto`, or the path of a file.
        repo_path: what a relative path is relative to.
        lost: gives, for a session and a summary, a future of the words about what that summary lost, if any.
    """

    def __init__(self, setting: str, repo_path: str, lost: Words | None = None) -> None:
        self._file = None if setting == AUTO else os.path.join(repo_path, os.path.expanduser(setting))
        self._lost = lost
        self._worker = Worker("mala-context pin")
        self._compacting: set[str | None] = set()
        self._summary: str | None = None
        self._owed: str | None = None

    async def before_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Note that a compaction begins, and which agent's it is."""
        self._compacting.add(text_in(hook_input, "agent_id"))
        self._summary = None

    async def agent_stopped(self, hook_input: Mapping[str, Any]) -> None:
        """Take the summary from the agent that wrote it."""
        words = text_in(hook_input, "last_assistant_message")
        # With two compactions at once nothing tells whose summary this is.
        if self._compacting == {None} and hook_input.get("agent_type") == "" and words is not None:
            self._summary = words

    async def session_started(self, hook_input: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer the start of the compacted conversation."""
        if hook_input.get("source") != "compact" or hook_input.get("agent_id"):
            return None
        if self._file is not None:
            return _answer("SessionStart", await self._text(self._file))
        if self._summary is None:
            self._owed = ""
            return None
        summary, self._summary, self._owed = self._summary, None, None
        return _answer("SessionStart", await self._words(hook_input, summary))

    async def after_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Measure the loss that `SessionStart` could not answer, now that the summary is known."""
        agent, summary = text_in(hook_input, "agent_id"), hook_input.get("compact_summary")
        self._compacting.discard(agent)
        if agent is None and self._owed is not None and isinstance(summary, str) and summary:
            self._owed = await self._words(hook_input, summary)

    async def next_chance(self, hook_input: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer a prompt, or the end of a batch of tools, with the words that `SessionStart` could not give."""
        if not self._owed or hook_input.get("agent_id"):
            return None
        words, self._owed = self._owed, None
        return _answer(str(hook_input.get("hook_event_name")), words)

    async def _words(self, hook_input: Mapping[str, Any], summary: str) -> str:
        session_id = text_in(hook_input, "session_id")
        if self._lost is None or session_id is None:
            return ""
        try:
            return await wait_for(self._lost(session_id, summary), seconds=SECONDS) or ""
        except TimeoutError:
            log.warning("Pin: what the summary lost was not known within %g s", SECONDS)
            return ""

    async def _text(self, path: str) -> str:
        def read() -> str:
            return read_regular(path, _MOST_BYTES).decode("utf-8", "replace").strip()

        try:
            found = await wait_for(self._worker.submit(read), seconds=SECONDS)
        except (OSError, TimeoutError) as error:
            log.warning("Pin: %s cannot be read: %s", path, error)
            return ""
        return cap_text(found, PIN_TOKENS, where=path, count=safe_tokens)


def _answer(event: str, words: str) -> Mapping[str, Any] | None:
    return add_context(event, words) if words else None
