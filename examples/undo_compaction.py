"""Go back to before a compaction: a new session from the archive holds the rows that the summary replaced.

For your own session, `mala-context archives restore SESSION` does the same. This example runs offline: the real Claude
Code CLI with a scripted model. Run it with

    python examples/undo_compaction.py
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace

from claude_agent_sdk import ClaudeAgentOptions

from mala_context import AgentRuntime, ArchiveConfig, ContextConfig, instrument
from mala_context.testing import Request, ScriptedMessagesAPI, summary

FACT = "The test rig has port 41001."
QUESTION = "Which port has the test rig?"


def play_model(request: Request) -> str:
    """Answer from what the request holds, as a model would."""
    if QUESTION in request.prompt:
        return "Port 41001." if request.contains(FACT) else "I do not know."
    return "Noted."


async def talk(runtime: AgentRuntime, *prompts: str) -> str:
    """Send prompts, print the answers, and return the session's id."""
    async with runtime.session() as session:
        for prompt in prompts:
            async for message in session.send(prompt):
                if hasattr(message, "result"):
                    print(f"> {prompt}\n{message.result}")
                    session_id = message.session_id
    return str(session_id)


async def main(options: ClaudeAgentOptions, config: ContextConfig) -> None:
    """Compact, ask, undo the compaction, and ask again."""
    runtime = instrument(options, config=config)  # each compaction is archived first
    assert runtime.archive, "mala.yaml may switch it off"
    session_id = await talk(runtime, FACT, "/compact", QUESTION)
    fields = runtime.archive.restore_options(session_id, at=1)  # a new session: as it was before compaction 1
    print(f"--- restored as {fields['resume']} ---")
    await talk(instrument(replace(options, **fields), config=config), QUESTION)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedMessagesAPI(play_model, compactions=[summary("There is a test rig.")]) as api,
    ):
        archives = ArchiveConfig(directory=f"{folder}/archives")
        asyncio.run(main(api.options(), ContextConfig(archive=archives)))
