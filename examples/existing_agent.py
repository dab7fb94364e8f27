"""An existing agent with its own client and hooks; the two added lines are marked.

Needs a Claude Code login or `ANTHROPIC_API_KEY`. Run it, in any directory, with

    python examples/existing_agent.py
"""

import asyncio
import logging

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookContext, HookInput, HookJSONOutput, HookMatcher

from mala_context import instrument

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")


async def count_tools(_hook_input: HookInput, _tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
    """Stand for the agent's own hooks; they stay, and run first."""
    print("a tool is about to run")
    return {}


async def main() -> None:
    """Send two prompts through the agent's own client."""
    options = ClaudeAgentOptions(
        permission_mode="plan",
        hooks={"PreToolUse": [HookMatcher(hooks=[count_tools])]},
    )
    runtime = instrument(options)  # added: a copy of the options, with tracking and archive
    async with runtime, ClaudeSDKClient(runtime.options) as client:
        for prompt in ("Remember the number 41.", "Which number was it?"):
            await client.query(prompt)
            async for message in runtime.processor.stream(client.receive_response()):  # added: the stream, unchanged
                if result := getattr(message, "result", None):
                    print(result)


asyncio.run(main())
