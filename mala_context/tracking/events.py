"""What happens to a context window, as frozen records.

Readers turn messages and rows into these records, and everything downstream sees nothing else: live tracking and replay
are the same code. The records are named tuples, since they are made once per message of a running agent and cost about
a third of a frozen dataclass. Text is carried by reference, as the content blocks that came; whoever needs a count
counts (see `projection`).

`agent` is `None` for the main agent; for a subagent it is the id of the Task call that started it where the source
knows it (live messages), else its `agentId` (transcripts). `SubagentStart` joins the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.context_map import ContextPart
from mala_context.tracking.usage import Usage

SIDECHAIN: Final = "sidechain"
"""Agent of sidechain rows that name none (old CLIs); the tracker tells their chains apart by their parents."""


class SessionStart(NamedTuple):
    """A session begins or goes on: its id, and what is known about it."""

    session_id: str
    """The id from now on; another one than before means a new, unknown context."""
    source: str
    """`init`, `startup`, `resume`, `clear` or `compact`."""
    model: str | None = None
    """The session's model as it was asked for, with its `[1m]` suffix if it had one."""
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
    """`None` where the source does not say."""
    message_id: str | None
    """All parts with one id are one response."""
    model: str | None
    """The model that answered."""
    usage: Usage | None
    """Counts of the last model call of the response; `None` where they are missing or all zero."""
    content: Any = ()
    """Content blocks of this part, as they came."""
    stop_reason: str | None = None
    """Why the response ended, where known; `max_tokens` drops its output from the context."""
    uuid: str | None = None
    """The part's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` where the source does not say (live messages)."""
    source: str = "message"
    """Where the usage stands: `message` (SDK), `stream` (message_start), `row` (transcript)."""
    request_id: str | None = None
    """Id of the request (transcripts and stream-json)."""
    time: str | None = None
    """When the row was written for, ISO 8601; `None` where the source does not say (live messages)."""
    hour: int = 0
    """Tokens that were written to the cache for an hour; the others are kept for five minutes."""


class UsageDelta(NamedTuple):
    """The closing `message_delta` of a streamed response: its final counts."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session of the stream."""
    usage: Usage | None
    """Final counts; a prompt of zero means that the delta carries only the output."""
    stop_reason: str | None = None
    """Why the response ended."""
    last_call: bool = False
    """Whether the counts are of the response's last model call, so that they replace those of its first."""


class Appended(NamedTuple):
    """Something that the next request will hold besides the response: a prompt, tool results, an attachment."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` where the source does not say."""
    kind: str
    """`user` for prompts and tool results; `attachment` for what the CLI adds."""
    content: Any
    """Text, content blocks, or the attachment, as they came."""
    uuid: str | None = None
    """The row's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` where the source does not say (live messages)."""
    time: str | None = None
    """When the row was written for, ISO 8601; `None` where the source does not say (live messages)."""


class Link(NamedTuple):
    """A row that no request holds, but that others name as their parent."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` where the source does not say."""
    uuid: str | None
    """The row's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` where the source does not say."""
    time: str | None = None
    """When the row was written for, ISO 8601; `None` where the source does not say (live messages)."""


class Compaction(NamedTuple):
    """The conversation was replaced by a summary."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session in which it happened."""
    trigger: str | None = None
    """`auto` or `manual`; `None` where the source has no boundary, only a summary."""
    pre_tokens: int | None = None
    """The CLI's own estimate of the context before (chars/4 of what was appended)."""
    post_tokens: int | None = None
    """The CLI's chars/4 of the messages that remain; neither system prompt nor tools are in it."""
    duration_ms: int | None = None
    """How long it took."""
    uuid: str | None = None
    """The boundary's own id."""
    parent: str | None = None
    """Id of the row before it, through the boundary (transcripts only)."""
    preserved: frozenset[str] = frozenset()
    """Ids of rows that were kept verbatim and may be written again."""
    version: str | None = None
    """The CLI that wrote the boundary; `None` where the source does not say (live messages)."""


class Summary(NamedTuple):
    """The summary that a compaction left; without a boundary before it, it is the only sign of one."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session in which it happened."""
    content: Any
    """The summary's text or blocks."""
    uuid: str | None = None
    """The row's own id."""
    parent: str | None = None
    """Id of the row before it; empty for a root, `None` where the source does not say."""


class CompactionStatus(NamedTuple):
    """The CLI says that it is compacting, or how that ended."""

    session_id: str | None
    """Session in which it happened."""
    status: str | None
    """`compacting`, or `None` when it is over."""
    result: str | None = None
    """`success` or `failed`, where the CLI says so."""
    error: str | None = None
    """Why it failed."""


class Reset(NamedTuple):
    """The conversation was thrown away (`/clear`): nothing is known until the next response."""

    session_id: str | None
    """The session that was left."""
    kind: str = "clear"
    """What caused it."""
    uuid: str | None = None
    """The row's own id, the root of the new conversation (transcripts only)."""


class TurnEnd(NamedTuple):
    """A turn is over. Its usage is a sum over the turn's responses, never a size."""

    session_id: str | None
    """Session of the turn."""
    usage: Usage | None
    """Sums over the turn; `None` where the result has no usage at all."""
    last_call: Usage | None = None
    """Counts of the turn's last model call, where the result lists its iterations."""
    num_turns: int | None = None
    """What the CLI counts as turns: requests to the model."""
    windows: Mapping[str, int] = {}
    """Context window by model, as the CLI reports it."""
    is_error: bool = False
    """Whether the turn failed."""
    subtype: str | None = None
    """`success`, `error_during_execution`, …; an overflow says `success`."""
    terminal_reason: str | None = None
    """`completed`, `prompt_too_long`, `aborted_streaming`, …"""
    origin: str | None = None
    """What started the turn; `task-notification` for a background agent's own."""
    user_uuids: tuple[str, ...] = ()
    """Ids of the prompts that this turn answers."""
    result: str | None = None
    """The turn's last answer, or the words of its error."""


class Refusal(NamedTuple):
    """The API refused a request because it was too long, and said how long it may be."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """Session of the request."""
    tokens: int | None
    """Size of the refused request."""
    maximum: int | None
    """The window that the API holds to."""


class SubagentStart(NamedTuple):
    """A subagent began: joins the id of its Task call to the id in its transcript."""

    session_id: str | None
    """Session of the Task call."""
    agent_id: str
    """The subagent's own id (`task_id` of live messages)."""
    tool_use_id: str | None
    """Id of the Task call."""


class WindowReport(NamedTuple):
    """`get_context_usage` or the `/context` command answered, or the CLI asks another model since one is overloaded."""

    session_id: str | None
    """Session that was asked."""
    window: int | None
    """The model's window, where it says it."""
    tokens: int | None = None
    """What it counts in the context (rounded in the command's text)."""
    model: str | None = None
    """The model, where it is named."""
    auto_compact_threshold: int | None = None
    """Where the CLI says that it compacts."""
    parts: tuple[ContextPart, ...] = ()
    """What fills the context, as far as the CLI says it."""


class ContextEdited(NamedTuple):
    """The stream says why the next request may not hold what the last one held, and that no compaction did it."""

    agent: str | None
    """`None` for the main agent."""
    session_id: str | None
    """`None` where the source does not say."""
    cause: str
    """`microcompaction` (the CLI cleared old tool results), `context_editing` (the API did), or `resume`.

    `resume` says that another process goes on with the session: what it sends before the conversation is in no row.
    """


class PluginSaid(NamedTuple):
    """A plugin's own code wrote a line to the log."""

    session_id: str | None
    """Session in which it did."""
    plugin: str
    """The plugin's name."""
    text: str | None
    """The line."""


class TotalTokens(NamedTuple):
    """An OpenAI-compatible server answered."""

    total_tokens: int | None
    """Its `usage.total_tokens`; `None` where there is no usage, and the last value stays."""
    model: str | None = None
    """The model that answered."""
    prompt_tokens: int | None = None
    """Tokens of the request."""
    completion_tokens: int | None = None
    """Tokens of the answer."""
    content: Any = ()
    """Text of the answer, for servers that never send usage."""
    answer_id: str | None = None
    """Id of the answer, which all chunks of a stream share; `None` where the server gives none."""


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
"""What a reader returns; empty for what does not concern the context."""
