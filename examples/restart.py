"""Go on in a fresh session when the context is full: one stream of messages, with a marker between the two sessions.

It runs offline: the real Claude Code CLI with a scripted model. Run it with

    python examples/restart.py

Your own agent needs only `restart_at: 0.9` in `mala.yaml` and the loop in `work`.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock

from mala_context import ArchiveConfig, ContextConfig, SessionRestarted, instrument
from mala_context.testing import Request, ScriptedMessagesAPI, tool

WINDOW, PARTS = 60_000, 12
done: list[Any] = []


def play_model(request: Request) -> Any:
    """Look at twelve parts, over all sessions, and write a checkpoint when asked for one."""
    if "<checkpoint>" in request.prompt:
        return f"<checkpoint>Look at the log. {len(done)} of {PARTS} parts are done.</checkpoint>"
    if len(done) == PARTS:
        return "All twelve parts are looked at."
    done.append(tool("Bash", command="head -c 15000 /dev/zero | tr '\\0' 'x'", description="Look at a part"))
    return done[-1]


async def work(options: ClaudeAgentOptions, config: ContextConfig) -> None:
    """Send one long job and read one stream over all sessions."""
    async with instrument(options, config=config).session() as session:
        async for message in session.send("Look at all twelve parts of the log, then say so."):
            match message:
                case AssistantMessage():
                    words = "".join(block.text for block in message.content if isinstance(block, TextBlock))
                    print(f"{session.context.tokens or 0:7,} tokens  {words or 'looks'}")
                case SessionRestarted():
                    written = "from its checkpoint" if message.checkpoint else "from the archive"
                    print(f"--- {message.reason}: restart {message.restarts}, going on {written} ---")
                case ResultMessage():
                    print(f"{'error' if message.is_error else 'done'}: {message.result}")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedMessagesAPI(play_model, window=WINDOW, chars_per_token=3.0) as api,
    ):
        config = ContextConfig(window=WINDOW, restart_at=0.8, archive=ArchiveConfig(directory=f"{folder}/archives"))
        asyncio.run(work(api.options(env={"DISABLE_AUTO_COMPACT": "1"}), config))
