"""An agent saves its work and finishes before its window is full, instead of dying without a result.

From `final_at` on only finishing tools are allowed. Any other tool is denied, and the denial says what to do instead.
An agent that goes on asking is stopped after three denials in a row.

It runs offline: the real Claude Code CLI with a scripted model. Run it with

    python examples/final_turn.py
"""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage

from mala_context import ArchiveConfig, ContextConfig, instrument
from mala_context.testing import Request, ScriptedMessagesAPI, tool

WINDOW = 60_000


def play_model(request: Request) -> Any:
    """Look at the log until a tool is denied; then write the report, and say that it is written."""
    if request.contains("report.md"):
        return "The report is written."
    if request.contains("this is the final turn"):
        return tool("Write", file_path="report.md", content="No failure in what I saw.\n")
    return tool("Bash", command="head -c 15000 /dev/zero | tr '\\0' 'x'", description="Look at the log")


async def work(options: ClaudeAgentOptions, config: ContextConfig) -> None:
    """Send one job and print how it ended."""
    runtime = instrument(options, config=config)
    async with runtime.session() as session:
        async for message in session.send("Look at the whole log, and report."):
            if isinstance(message, ResultMessage):
                print(message.result)
    print(runtime.actions.final_turn.line if runtime.actions.final_turn else "There was no final turn.")


def main() -> None:
    """Play the model in an empty project, in a small window."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedMessagesAPI(play_model, window=WINDOW, chars_per_token=3.0) as api,
    ):
        archive = ArchiveConfig(directory=f"{folder}/archives")
        config = ContextConfig(window=WINDOW, final_at=0.8, finishing_tools=("Write",), archive=archive)
        asyncio.run(work(api.options(cwd=folder, env={"DISABLE_AUTO_COMPACT": "1"}), config))
        print("report.md:", pathlib.Path(folder, "report.md").read_text(encoding="utf-8").strip())


if __name__ == "__main__":
    main()
