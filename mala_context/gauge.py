"""The gauge where nobody feeds the processor: it follows the transcript instead.

Each hook names the transcript, so two lines are enough to adopt us. Once a message has gone through the processor the
stream is the better source, and the transcript is read only to seed a resumed session, whose context is there before
its first response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mala_context.events import Appended, SessionStart, TotalTokens
from mala_context.log import get_logger
from mala_context.offload import Worker, wait_for
from mala_context.readers import read_row
from mala_context.transcript import TranscriptTail

if TYPE_CHECKING:
    from mala_context.stream import MessageStreamProcessor

READ_SECONDS = 5.0
"""Longest that a hook waits for a transcript; the agent goes on without a gauge sooner than it waits for one."""

log = get_logger(__name__)


class TranscriptGauge:
    """Keeps the processor's tracker right from hook inputs.

    Args:
        processor: whose tracker it is; what it has seen itself is never read again.
        resumes: whether the session goes on from an older one.
    """

    def __init__(self, processor: MessageStreamProcessor, *, resumes: bool = False) -> None:
        self._processor = processor
        self._tail = TranscriptTail()
        self._worker = Worker("mala-context gauge")
        self._to_seed = resumes

    async def observe(self, hook_input: Mapping[str, Any]) -> None:
        """Take in what a hook tells: the session, its transcript so far, and the prompt about to be sent.

        Raises `OSError` where the transcript cannot be read and `TimeoutError` where that takes too long.
        """
        session_id, path = hook_input.get("session_id"), hook_input.get("transcript_path")
        if hook_input.get("agent_id") or not isinstance(session_id, str) or not session_id:
            return
        tracker = self._processor.tracker
        if self._fed and not self._to_seed:
            prompt = hook_input.get("prompt")
            if isinstance(prompt, str):
                self._processor.take(Appended(None, session_id, "user", prompt))
            return
        if not isinstance(path, str) or not path:
            return
        seeding, self._to_seed = self._to_seed, False
        try:
            rows, afresh = await wait_for(self._worker.submit(lambda: self._tail.read(path)), seconds=READ_SECONDS)
        except FileNotFoundError:  # a new session's transcript is written with its first row
            return
        if self._fed and not (seeding and tracker.snapshot().tokens is None):
            return
        if afresh:
            self._processor.take(SessionStart(session_id, "resume" if seeding else "init"))
        self._feed(rows, session_id)

    @property
    def _fed(self) -> bool:
        return self._processor.messages_seen > 0

    def _feed(self, rows: list[dict[str, Any]], session_id: str) -> None:
        """Apply rows as this session's own: a fork's or a resumed file's rows may name an older one."""
        for row in rows:
            for event in read_row(row):
                self._processor.take(event if isinstance(event, TotalTokens) else event._replace(session_id=session_id))
