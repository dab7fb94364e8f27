"""The table of windows against the bundled CLI: an SDK whose CLI says something else fails here."""

import anyio
from claude_agent_sdk import ClaudeSDKClient

from mala_context.tracking.windows import GUESSES, TABLE, from_name

ALIASES = frozenset({"opus", "sonnet", "haiku", "fable", "opusplan", "best", "default"})


async def test_the_cli_says_of_each_name_what_the_table_says(mala_api, mala_options):
    """Case core-21. The CLI answers from its own table: no request is made."""
    api = mala_api(["never said"])
    said = {}
    names = [name if name in ALIASES else f"claude-{name}" for name in (*TABLE, *GUESSES)]
    names += ["claude-opus-4-6[1m]", "us.anthropic.claude-fable-5-v1:0", "claude-newest-9"]
    async with ClaudeSDKClient(mala_options(api)) as client:
        for name in names:
            await client.set_model(name)
            with anyio.fail_after(20):
                answer = await client._query._send_control_request(
                    {"subtype": "get_context_usage", "detail": "summary"}
                )
            said[name] = answer["rawMaxTokens"]
    assert said == {name: from_name(name).tokens for name in names}
    assert not api.main_requests
