"""The events of a context window, as frozen records.

Readers turn messages and rows into these records. All later code sees only the records, so live tracking and replay are
the same code. The records are named tuples, because each message of a running agent makes one, and a named tuple costs
about a third of a frozen dataclass. Records hold the content blocks themselves, by reference; `projection` counts their
text if a count is needed.

`agent` is `None` for the main agent. For a subagent it is the id of the Task call that started it (live messages) or
its `agentId` (transcripts). `SubagentStart` joins the two ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.context_map import ContextPart
from mala_context.tracking.usage import Usage

SIDECHAIN: Final = "sidechain"
"""Agent of sidechain rows without an agent's name (old CLIs); the tracker separates their chains by the parents."""


class SessionStart(NamedTuple):
    """A session begins or goes on: its id, and the facts about it."""

    session_id: str
    """The id from now on; an id that differs from the last one means a new, unknown context."""
    source: str
    """`init`, `startup`, `resume`, `clear` or `compact`."""
    model: str | None = None
    """The model that the session asked for, with its `[1m]` suffix if it had one."""
    betas: tuple[str, ...] = ()
    """Beta features of the requests, e.g. `context-1m-2025-08-07`."""
    cwd: str | None = None
    """Working directory of the agent."""
    cli: str | None = None
    """Version of the CLI."""


class Response(NamedTuple):
    """A part of one API response: a content block's message, a row, or the start of a stream."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` if the source does not name it."""
    message_id: str | None
    """All parts with one id are one response."""
    model: str | None
    """The model that answered."""
    usage: Usage | None
    """Counts of the last model call of the response; `None` if they are missing or all zero."""
    content: Any = ()
    """Content blocks of this part, unchanged."""
    stop_reason: str | None = None
    """Why the response ended; `None` if unknown. See `ContextState.stopped`."""
    uuid: str | None = None
    """The part's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` where the source does not say (live messages)."""
    source: str = "message"
    """Source of the usage: `message` (SDK), `stream` (message_start), `row` (transcript)."""
    request_id: str | None = None
    """Id of the request (transcripts and stream-json)."""
    time: str | None = None
    """The row's timestamp, ISO 8601; `None` if the source has none (live messages)."""
    hour: int = 0
    """Tokens that were written to the cache for an hour; the other written tokens are kept for five minutes."""
    thought: int = 0
    """Tokens of thinking in the answer, as its usage states them; 0 if it states none."""

    @property
    def identity(self) -> object:
        """Value that all parts of one response share. A server that sends no ids is told by equal counts."""
        return self.message_id or self.usage or self.uuid


class UsageDelta(NamedTuple):
    """The closing `message_delta` of a streamed response: its final counts."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session of the stream."""
    usage: Usage | None
    """Final counts; a prompt of zero means that the delta has only the output."""
    stop_reason: str | None = None
    """Why the response ended."""
    last_call: bool = False
    """Whether the counts are those of the response's last model call, which replace those of its first call."""
    thought: int = 0
    """Tokens of thinking in the answer, as its usage states them; 0 if it states none."""


class Appended(NamedTuple):
    """Content that the next request will hold besides the response: a prompt, tool results, an attachment."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` if the source does not name it."""
    kind: str
    """`user` for prompts and tool results; `attachment` for the CLI's own additions."""
    content: Any
    """Text, content blocks, or the attachment, unchanged."""
    uuid: str | None = None
    """The row's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` if the source does not name it (live messages)."""
    time: str | None = None
    """The row's timestamp, ISO 8601; `None` if the source has none (live messages)."""


class Link(NamedTuple):
    """A row that no request holds, but that other rows name as their parent."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` if the source does not name it."""
    uuid: str | None
    """The row's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` if the source does not name it."""
    time: str | None = None
    """The row's timestamp, ISO 8601; `None` if the source has none (live messages)."""


class Compaction(NamedTuple):
    """The conversation was replaced by a summary."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session in which it happened."""
    trigger: str | None = None
    """`auto` or `manual`; `None` if the source has only a summary and no boundary."""
    pre_tokens: int | None = None
    """The CLI's own estimate of the context before (chars/4 of what was appended)."""
    post_tokens: int | None = None
    """The CLI's chars/4 of the messages that remain; neither system prompt nor tools are in it."""
    duration_ms: int | None = None
    """Duration of the compaction."""
    uuid: str | None = None
    """The boundary's own id."""
    parent: str | None = None
    """Id of the row before it, through the boundary (transcripts only)."""
    preserved: frozenset[str] = frozenset()
    """Ids of rows that were kept verbatim and may be written again."""
    version: str | None = None
    """Version of the CLI that wrote the boundary; `None` if the source does not name it (live messages)."""


class Summary(NamedTuple):
    """The summary that a compaction left; without a boundary before it, it is the only sign of the compaction."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session in which it happened."""
    content: Any
    """The summary's text or blocks."""
    uuid: str | None = None
    """The row's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` if the source does not name it."""


class CompactionStatus(NamedTuple):
    """The CLI reports that a compaction began, or how it ended."""

    session_id: str | None
    """Session in which it happened."""
    status: str | None
    """`compacting`, or `None` after its end."""
    result: str | None = None
    """`success` or `failed`; `None` if the CLI does not report it."""
    error: str | None = None
    """Why it failed."""


class Reset(NamedTuple):
    """The conversation was thrown away (`/clear`): its size is unknown until the next response."""

    session_id: str | None
    """The session that ended."""
    kind: str = "clear"
    """The command that caused it."""
    uuid: str | None = None
    """The row's own id, the root of the new conversation (transcripts only)."""


class TurnEnd(NamedTuple):
    """A turn has ended. Its usage is a sum over the turn's responses, never a size."""

    session_id: str | None
    """Session of the turn."""
    usage: Usage | None
    """Sums over the turn; `None` if the result has no usage at all."""
    last_call: Usage | None = None
    """Counts of the turn's last model call; `None` if the result does not list its iterations."""
    num_turns: int | None = None
    """The CLI's number of turns, which is the number of requests to the model."""
    windows: Mapping[str, int] = {}
    """Context window by model, as the CLI reports it."""
    is_error: bool = False
    """Whether the turn failed."""
    subtype: str | None = None
    """`success`, `error_during_execution`, …; an overflow says `success`."""
    terminal_reason: str | None = None
    """`completed`, `prompt_too_long`, `aborted_streaming`, …"""
    origin: str | None = None
    """What started the turn; `task-notification` for a turn that a background agent's end started."""
    user_uuids: tuple[str, ...] = ()
    """Ids of the prompts that this turn answers."""
    result: str | None = None
    """The turn's last answer, or the text of its error."""


class Refusal(NamedTuple):
    """The API refused a request because it was too long."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session of the request."""
    tokens: int | None
    """Size of the refused request; `None` if the error does not state it."""
    maximum: int | None
    """The limit that the API enforces; `None` if the error does not state it."""


class SubagentStart(NamedTuple):
    """A subagent began; the event joins the id of its Task call and its id in the transcript."""

    session_id: str | None
    """Session of the Task call."""
    agent_id: str
    """The subagent's own id (`task_id` of live messages)."""
    tool_use_id: str | None
    """Id of the Task call."""


class WindowReport(NamedTuple):
    """`get_context_usage` or `/context` answered, or the CLI fell back to another model because one is overloaded."""

    session_id: str | None
    """Session that was asked."""
    window: int | None
    """The model's window; `None` if the answer does not state it."""
    tokens: int | None = None
    """The CLI's count of the context (rounded in the command's text)."""
    model: str | None = None
    """The model; `None` if the answer does not name it."""
    auto_compact_threshold: int | None = None
    """The size at which the CLI says that it compacts."""
    parts: tuple[ContextPart, ...] = ()
    """The parts of the context, as far as the CLI reports them."""


class ContextEdited(NamedTuple):
    """The context changed without a compaction, so the next request may hold less or more than projected."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` if the source does not name it."""
    cause: str
    """`microcompaction` (the CLI cleared old tool results), `context_editing` (the API cleared them), or `resume`.

    `resume` means that another process goes on with the session. No row shows its system prompt and tools.
    """


class PluginSaid(NamedTuple):
    """A plugin's own code wrote a line to the log."""

    session_id: str | None
    """Session in which it wrote the line."""
    plugin: str
    """The plugin's name."""
    text: str | None
    """The line."""


class TotalTokens(NamedTuple):
    """An OpenAI-compatible server answered."""

    total_tokens: int | None
    """Its `usage.total_tokens`; `None` if there is no usage, and the last value stays."""
    model: str | None = None
    """The model that answered."""
    prompt_tokens: int | None = None
    """Tokens of the request."""
    completion_tokens: int | None = None
    """Tokens of the answer."""
    content: Any = ()
    """Text of the answer, for servers that never send usage."""
    answer_id: str | None = None
    """Id of the answer, which all chunks of a stream share; `None` if the server gives none."""


Event = (
    SessionStart
    | Response
    | UsageDelta
    | Appended
    | Link
    | Compaction
    | Summary
    | CompactionStatus
    | Reset
    | TurnEnd
    | Refusal
    | SubagentStart
    | WindowReport
    | PluginSaid
    | ContextEdited
    | TotalTokens
)
"""Any of the records of this module."""

Events = tuple[Event, ...]
"""The answer of a reader; empty for input that does not concern the context."""
