"""The baseline on the real CLI: what a fresh session holds, by both ways of asking."""

import anyio
import pytest
from claude_agent_sdk import ClaudeSDKClient

from mala_context.agent.baseline import measure_baseline


async def test_a_fresh_session_is_measured_without_a_prompt(mala_api, mala_options):
    api = mala_api(["never said"])
    options = mala_options(api)
    baseline = await measure_baseline(options)
    assert baseline.source == "get_context_usage"
    assert 0 < baseline.tokens < baseline.window
    assert not api.main_requests
    more = mala_options(api, system_prompt="Answer in verse. " * 2_000)
    grown = await measure_baseline(more)
    assert grown.tokens > baseline.tokens


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_command_says_nearly_the_same(mala_api, mala_options, monkeypatch, backend):
    api = mala_api(["never said"])
    asked = anyio.run(measure_baseline, mala_options(api), backend=backend)

    async def refuse(client):
        raise Exception("Unsupported control request subtype: get_context_usage")  # noqa: TRY002 - as the SDK does

    monkeypatch.setattr(ClaudeSDKClient, "get_context_usage", refuse)
    printed = anyio.run(measure_baseline, mala_options(api), backend=backend)
    assert printed.source == "/context"
    assert printed.window == asked.window
    assert printed.tokens == pytest.approx(asked.tokens, rel=0.05)
    assert not api.main_requests
