"""Go on in a fresh session when the context is full: one stream of messages, with a marker between the two sessions.

Without a key it runs offline, against a scripted API with a small window; with `ANTHROPIC_API_KEY` or
`ANTHROPIC_BASE_URL` set and `--real` it asks the model itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import nullcontext
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock

from mala_context import ContextConfig, instrument
from mala_context.config import ArchiveConfig
from mala_context.happenings import SessionRestarted
from mala_context.testing import ScriptedMessagesAPI, tool
from mala_context.testing.requests import Request

WINDOW = 60_000
LOOKS = 12


async def work(options: ClaudeAgentOptions, config: ContextConfig) -> None:
    """Give one long job and read one stream, whatever the number of sessions behind it."""
    runtime = instrument(options, config=config)
    async with runtime.session() as session:
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


def script() -> Any:
    """Return a model that needs twelve looks, in whatever sessions, and writes a checkpoint when asked for one."""
    looks = 0

    def answer(request: Request) -> Any:
        nonlocal looks
        if "<checkpoint>" in request.prompt:
            return f"<checkpoint>Look at the log. {looks} of {LOOKS} parts are done.</checkpoint>"
        if looks == LOOKS:
            return "All twelve parts are looked at."
        looks += 1
        return tool("Bash", command="head -c 15000 /dev/zero | tr '\\0' 'x'", description="Look at a part")

    return answer


def main() -> None:
    """Run offline unless told otherwise."""
    has_account = bool({"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} & os.environ.keys())
    real = "--real" in sys.argv[1:] and has_account
    with (
        tempfile.TemporaryDirectory() as directory,
        nullcontext() if real else ScriptedMessagesAPI(script(), window=WINDOW, chars_per_token=3.0) as api,
    ):
        archive = ArchiveConfig(directory=os.path.join(directory, "archives"))
        if api is None:
            asyncio.run(work(ClaudeAgentOptions(), ContextConfig(restart_at=0.9, archive=archive)))
        else:
            config = ContextConfig(window=WINDOW, restart_at=0.8, archive=archive)
            asyncio.run(work(api.options(env={"DISABLE_AUTO_COMPACT": "1"}), config))


if __name__ == "__main__":
    main()
