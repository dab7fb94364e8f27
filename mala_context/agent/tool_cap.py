"""Cap tool results in a hook: the model gets the head and the tail of a large result, and the path of the whole.

The guard's arithmetic decides how much (`ToolBudget`). Results of tools that ran in parallel share one budget, which
opens with the first of them and closes with their batch. `guard.tool_output` knows where a result has its text. The
full text goes to a private file outside of the repository. If the agent reads such a file, the result is capped like
any other, but never kept again: the marker says how to read it in parts.

If the CLI has cut a result itself (a command's output of more than about 30,000 characters), the model would get 2,000
characters of its beginning. From us it gets as much and no more, but with the end.

A result for which no room is left is refused: the model gets only its path, in a few words that the guard's buffer has
room for. No hook can replace the result of a failed tool (at most 10,000 characters); the mod of
`compaction: reference` can.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from mala_context._util.background import Worker, wait_for
from mala_context._util.log import get_logger
from mala_context._util.safe_open import read_regular
from mala_context.agent.hook_io import replace_output, text_in, texts_in
from mala_context.errors import ArchiveError
from mala_context.guard import ContextGuard, TargetContextConfig, cap_tokens
from mala_context.guard.tool_budget import ToolBudget
from mala_context.guard.tool_output import Found, Shape, find

if TYPE_CHECKING:
    from mala_context.archive.full_outputs import Spills
    from mala_context.config import GuardConfig
    from mala_context.tracking.tracker import ContextTracker

PAGING: Final = "read it in parts: Read with offset and limit, or head -c and tail -c"
"""Words after the path of a full text."""
PREVIEW_TOKENS: Final = 550
"""Most tokens of a result that the CLI has cut: about as much as the CLI would show."""
MOST_BYTES: Final = 64_000_000
"""A larger output that the CLI has cut stays as it is: the model gets the CLI's preview and path."""
LOST: Final = "the full text could not be kept"
DISK_SECONDS: Final = 8.0
"""Longest that a result waits for the disk."""

_TIGHT: Final = 200
_MOST_WORDS: Final = 64
_PLAIN: Final = Shape(lambda text: [text], lambda _, text: text)
_MOST_AGENTS: Final = 64
_WORDS = re.compile(r"""[^\s'"`;|&<>()=]+""")

log = get_logger(__name__)


def count_tokens(text: str) -> int:
    """Return the estimated tokens of a text: a quarter for an ASCII character, three quarters for another."""
    if text.isascii():
        return -(-len(text) // 4)
    plain = len(text.encode("ascii", "ignore"))
    return -(-(plain + 3 * (len(text) - plain)) // 4)


class _Full(NamedTuple):
    """The full text of a result."""

    text: str
    data: bytes
    path: str
    """Where it is kept, or would be; empty if there is no place."""
    ours: bool
    """Whether the agent read it from there."""


class _Batch(NamedTuple):
    """Tool calls of one response."""

    base: int | None
    """Tokens of the context when it opened."""
    budget: ToolBudget
    noted: list[int]
    """Tokens of the notes for results without room. A list of one, because it changes."""


class ToolCap:
    """Caps tool results for one runtime.

    Args:
        config: `tool_output_tokens` must be set; the buffer and the tokens of the next answer are kept free.
        spills: keeps the full texts.
        tracker: knows how much room is left.
        acted: called with `capped` and the tool's name for each result that was capped.
    """

    def __init__(
        self,
        config: GuardConfig,
        spills: Spills,
        tracker: ContextTracker,
        acted: Callable[[Literal["capped"], str], object] = lambda _action, _tool: None,
    ) -> None:
        self._config = config
        self._spills = spills
        self._tracker = tracker
        self._acted = acted
        self._worker = Worker("mala-context tool cap")
        self._batches: dict[str | None, _Batch] = {}
        self._said_reserve = False

    async def after_tool(self, hook_input: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer a PostToolUse hook: a capped result in its own shape, or nothing if the result stays."""
        tool, session_id = texts_in(hook_input, "tool_name", "session_id")
        response = hook_input.get("tool_response")
        if tool is None or session_id is None:
            return None
        found = find(tool, response)
        if found is None:
            return None
        seen = await self._fit(found, tool, session_id, hook_input)
        if seen is None or (seen == found.text and found.persisted is None):
            return None
        return replace_output(found.shape.write(response, seen))

    async def failed(self, request: Mapping[str, Any]) -> list[str | None]:
        """Return what the model may see of each failed tool's result; `None` for a result that stays.

        No hook can replace these. `request` comes from the mod, before the CLI stores a row: it has `session`, `agent`
        and `texts`, the results.
        """
        session_id, agent = texts_in(request, "session", "agent")
        texts = request.get("texts")
        fitted: list[str | None] = []
        for text in texts if isinstance(texts, list) and session_id is not None else ():
            found = Found(_PLAIN, str(text), len(str(text)), None)
            seen = await self._fit(found, "A failed tool", str(session_id), {"agent_id": agent}) if text else None
            fitted.append(None if seen == text else seen)
        return fitted

    async def after_batch(self, hook_input: Mapping[str, Any]) -> None:
        """Close the batch: the next result gets the room that is left then."""
        self._batches.pop(text_in(hook_input, "agent_id"), None)

    async def _fit(self, found: Found, tool: str, session_id: str, hook_input: Mapping[str, Any]) -> str | None:
        """Return what the model may see; `None` to leave the CLI's own answer."""
        count = _counter(found)
        batch = self._batch(text_in(hook_input, "agent_id"))
        cap = cap_tokens(self._config.tool_output_tokens, batch.budget.guard.remaining)
        # Only a large result goes to the disk thread: the others must not wait for a slow disk.
        if found.persisted is not None or (cap is not None and count(found.text) > cap):
            full = await self._look(found, session_id, hook_input)
        else:
            full = self._full(found.text, session_id, None)
        if full is None:
            return None
        text, path = full.text, full.path
        where = path if not path or cap is None or cap < _TIGHT else f"{path}; {PAGING}"
        most = None if found.persisted is None else PREVIEW_TOKENS
        reservation, seen = await batch.budget.fit(text, where, most=most, count=count, named=True)
        first = batch.noted[0] == 0
        if not reservation.ok:
            seen = self._note(batch, text, path)
        if seen == text:
            return text
        # `ours`: the agent reads a full text that we kept. Kept again it would be a capped copy of a capped copy, for
        # ever (nanobot#4154; case guard-12). Where it cannot be kept (a full disk), the model is not sent to a path.
        if not full.ours and not await self._keep(session_id, full.data, hook_input):
            seen = seen.replace(f"full text: {where}", LOST).replace(f"full text: {path}", LOST)
        if not reservation.ok and first:
            log.warning("Tool output: no room for %s's %s tokens; full text: %s", tool, f"{count(text):,}", path)
        else:
            sizes = f"{count(text):,}", f"{count(seen):,}"
            log.info("Tool output: %s, %s tokens capped to %s; full text: %s", tool, *sizes, path)
        self._acted("capped", tool)
        return seen

    def _batch(self, agent: str | None) -> _Batch:
        """Return the open batch; a new one if another response has come since."""
        snapshot = self._tracker.snapshot(agent)
        batch = self._batches.get(agent)
        if batch is not None and batch.base == snapshot.tokens:
            return batch
        guard = ContextGuard(
            [self._target(snapshot.model or "unknown", snapshot.window)],
            current=max(0, snapshot.projected or snapshot.tokens or 0),
        )
        setting: int | Literal["auto"] | None = self._config.tool_output_tokens
        batch = _Batch(snapshot.tokens, ToolBudget(guard, tool_output_tokens=setting, count=count_tokens), [0])
        self._batches[agent] = batch
        while len(self._batches) > _MOST_AGENTS:
            del self._batches[next(iter(self._batches))]
        return batch

    def _target(self, model: str, window: int) -> TargetContextConfig:
        """Return the model's limits. If the reserve leaves nothing of the window, it is left out, with one WARNING."""
        config = self._config
        try:
            return TargetContextConfig(
                provider="claude",
                model=model,
                window=window,
                buffer_tokens=config.buffer_tokens,
                max_output_tokens=config.max_output_tokens,
            )
        except ValueError as error:
            if not self._said_reserve:
                self._said_reserve = True
                log.warning("Tool output: context.guard keeps nothing free, since it leaves no room: %s", error)
            return TargetContextConfig(provider="claude", model=model, window=max(2, window), buffer_tokens=1)

    def _note(self, batch: _Batch, text: str, path: str) -> str:
        """Return the replacement of a text without room: its path, or the text itself if that is shorter.

        Its tokens come from the buffer. When half of the buffer is spent, a note names only the file.
        """
        where = path if batch.noted[0] < self._config.buffer_tokens // 2 else os.path.basename(path) + ", there too"
        note = f"[… {len(text):,} characters left out, no room; full text: {where} …]"
        shorter = min(text, note, key=count_tokens)
        batch.noted[0] += count_tokens(shorter)
        return shorter

    async def _look(self, found: Found, session_id: str, hook_input: Mapping[str, Any]) -> _Full | None:
        """Return the full text of a large result, if necessary from the disk; `None` to leave it to the CLI."""

        def look() -> _Full | None:
            text = _full_text(found)
            return None if text is None else self._full(text, session_id, self._ours(hook_input))

        try:
            return await wait_for(self._worker.submit(look), seconds=DISK_SECONDS)
        except TimeoutError:
            return self._full(found.text, session_id, None)

    def _full(self, text: str, session_id: str, ours: str | None) -> _Full:
        data = text.encode("utf-8", "surrogatepass")
        if ours is not None:
            return _Full(text, data, ours, ours=True)
        try:
            return _Full(text, data, self._spills.path(session_id, data), ours=False)
        except ArchiveError:
            return _Full(text, data, "", ours=False)

    def _ours(self, hook_input: Mapping[str, Any]) -> str | None:
        """Return the full text of ours that the tool was asked to read, also through a link."""
        given = hook_input.get("tool_input")
        if not isinstance(given, Mapping):
            return None
        base = text_in(hook_input, "cwd") or os.sep
        path, command = given.get("file_path"), given.get("command")
        words = [path] if isinstance(path, str) else []
        if isinstance(command, str):
            words += _WORDS.findall(command)[:_MOST_WORDS]
        try:
            owners = (self._spills.owner(os.path.join(base, word)) for word in words)
            return next((owner for owner in owners if owner is not None), None)
        except ArchiveError:
            return None

    async def _keep(self, session_id: str, data: bytes, hook_input: Mapping[str, Any]) -> bool:
        """Keep a full text; false, with a WARNING, if that is impossible."""
        known = text_in(hook_input, "transcript_path")
        try:
            await wait_for(
                self._worker.submit(lambda: self._spills.write(session_id, data, known)), seconds=DISK_SECONDS
            )
        except TimeoutError:
            log.warning("Tool output: the full text could not be kept in %g s", DISK_SECONDS)
            return False
        except (ArchiveError, OSError) as error:
            log.warning("Tool output: the full text could not be kept: %s", error)
            return False
        return True


def _counter(found: Found) -> Callable[[str], int]:
    """Return a function that counts a text as the model sees it, with the numbers that the CLI puts before lines."""
    if not found.shape.numbered:
        return count_tokens
    lines = found.text.count("\n") + 1
    width = (found.shown - len(found.text)) // lines
    return lambda text: count_tokens(text) + -(-(width * (text.count("\n") + 1)) // 4)


def _full_text(found: Found) -> str | None:
    """Return the whole of a result that the CLI has cut, or the cut text if the CLI's file cannot be read.

    `None` if the file is larger than `MOST_BYTES`: no second copy is made of the CLI's file.
    """
    if found.persisted is None:
        return found.text
    try:
        if os.stat(found.persisted).st_size > MOST_BYTES:
            return None
        return read_regular(found.persisted, MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return found.text
