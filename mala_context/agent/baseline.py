"""Measure the baseline: what a fresh session holds before its first prompt (system prompt, tools, memory, MCP).

It says how much of the window a set of options takes by itself. Show it beside a figure and never add it to one: the
API's count of a request includes the baseline already.

The CLI is asked through the SDK's `get_context_usage()`. If that is missing, refused or without a count (an older SDK
or CLI), the text of the `/context` command is read instead. Its numbers are rounded to about three digits.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import anyio

from mala_context.agent.fresh_options import fresh
from mala_context.errors import BaselineError
from mala_context.tracking.readers.parts import parse_context_text, window_report

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

BASELINE_SECONDS = 60.0
"""Longest that a measurement takes by default; most of it is the CLI's start and its counting at the server."""
_DISCONNECT_SECONDS = 30.0
_UNSEEN: dict[str, Any] = {"session_store": None, "hooks": None}
"""Fields by which the measurement would reach an observer as a session."""


@dataclasses.dataclass(frozen=True, slots=True)
class Baseline:
    """What a fresh session holds; report it beside a figure, never add it."""

    tokens: int
    """Tokens before the first prompt."""
    window: int | None
    """The context window in tokens; `None` where the CLI did not say."""
    source: str
    """`get_context_usage`, or `/context` where the command's text was read, which is rounded."""


async def measure_baseline(options: ClaudeAgentOptions, *, timeout: float = BASELINE_SECONDS) -> Baseline:  # noqa: ASYNC109 - a deadline of several steps, and the disconnect after it
    """Return what a fresh session with these options holds, without sending a prompt.

    Starts a client of its own and ends it: about 1 s, and some twenty requests that count tokens, so call it once per
    set of options and not on a turn's way. The options are not changed; a session to resume, a session store and hooks
    are left out of the measurement, so that it does not pass for a session.

    Raises `TimeoutError` after `timeout` seconds (the disconnect may take up to 30 s more), `BaselineError` where the
    CLI answers neither way, and what the SDK raises on connecting.
    """
    from claude_agent_sdk import ClaudeSDKClient

    names = {field.name for field in dataclasses.fields(options)}
    changes = {**fresh(options), **_UNSEEN}
    client = ClaudeSDKClient(
        dataclasses.replace(options, **{name: value for name, value in changes.items() if name in names})
    )
    with anyio.fail_after(timeout):
        try:
            await client.connect()
            return await _ask(client)
        finally:  # a second disconnect does nothing
            with anyio.move_on_after(_DISCONNECT_SECONDS, shield=True):
                await client.disconnect()


async def _ask(client: ClaudeSDKClient) -> Baseline:
    reason = "the SDK has no get_context_usage"
    ask = getattr(client, "get_context_usage", None)
    if ask is not None:
        try:
            report = window_report(await ask())
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception for a request that the CLI refuses
            reason = f"get_context_usage failed: {error}"
        else:
            if report.tokens:
                return Baseline(report.tokens, report.window, "get_context_usage")
            reason = "get_context_usage gave no count"
    await client.query("/context")
    found = None
    with contextlib.suppress(anyio.ClosedResourceError):
        async for message in client.receive_messages():
            for said in _texts(message):
                found = found or parse_context_text(said)
            if type(message).__name__ == "ResultMessage":
                await client.disconnect()  # which ends the loop; on trio a generator left midway is a warning
    if found is None:
        raise BaselineError(reason)
    return Baseline(found[0], found[1] or None, "/context")


def _texts(message: Any) -> Iterator[str]:
    content = getattr(message, "content", None)
    for block in content if isinstance(content, list) else [content]:
        said = block if isinstance(block, str) else getattr(block, "text", None)
        if isinstance(said, str):
            yield said
    for name in ("result", "data"):
        said = getattr(message, name, None)
        said = said.get("content") if isinstance(said, dict) else said
        if isinstance(said, str):
            yield said
