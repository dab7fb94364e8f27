"""The shortest program: a session that says how full its context is.

Needs a Claude Code login or `ANTHROPIC_API_KEY`. Run it, in any directory, with

    python examples/minimal.py
"""

import asyncio

from claude_agent_sdk import ClaudeAgentOptions

from mala_context import instrument


async def main() -> None:
    """Ask one question and print the answer and the gauge."""
    runtime = instrument(ClaudeAgentOptions(permission_mode="plan"))
    async with runtime.session() as session:
        async for message in session.send("What is in this directory? Two sentences, please."):
            if result := getattr(message, "result", None):
                print(result)
        context = session.context
    print("context unknown" if context.tokens is None else f"{context.tokens:,} of {context.window:,} tokens")


asyncio.run(main())
