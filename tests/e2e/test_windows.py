"""The table of windows against the bundled CLI: an SDK whose CLI says something else fails here."""

import anyio
from claude_agent_sdk import ClaudeSDKClient

from mala_context.tracking.events import WindowReport
from mala_context.tracking.windows import GUESSES, TABLE, from_name

from .driving import turn

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


async def test_a_session_goes_by_the_clis_window(agent):
    """At connect, and after `set_model` with the turn that comes next: no request but the turns' own."""
    runtime, watch = agent(["One.", "Two."], options={"model": "claude-sonnet-4-5"}, window=None)
    said, told = [], anyio.Event()

    def report(event, snapshot):
        del snapshot
        said.append((event.model, event.window))
        told.set()

    runtime.processor.observe(report, WindowReport)
    async with runtime.session() as session:
        with anyio.fail_after(20):
            await told.wait()
        assert (session.context.window, session.context.window_source) == (200_000, "context_usage")
        await turn(session, "Go on.")
        await session.client.set_model("claude-opus-4-8")
        told = anyio.Event()
        await turn(session, "And on.")
        with anyio.fail_after(20):
            await told.wait()
        assert session.context.window == 1_000_000
    assert said == [("claude-sonnet-4-5", 200_000), ("claude-opus-4-8", 1_000_000)]
    assert len(watch.api.main_requests) == 2


async def test_an_own_client_may_ask_too(agent):
    runtime, _ = agent(["never said"], options={"model": "claude-opus-4-8"}, window=None)
    async with ClaudeSDKClient(runtime.options) as client:
        assert await runtime.learn_window(client) == 1_000_000
    assert runtime.tracker.snapshot().window_source == "context_usage"


async def test_compact_is_a_command_beside_verbatim_prompts(agent):
    """Case guard-15: the session is compacted, and the user's own slash command stays text."""
    script, more = ["One. " * 4_000, "Two.", "Three."], {"model": "claude-sonnet-4-5", "verbatim_prompts": True}
    runtime, watch = agent(
        script,
        options=more,
        config="context: {warn_at: null, compact_at: 0.7, window: 20000}",
        compactions=["In short."],
        window=None,
    )
    async with runtime.session() as session:
        await turn(session, "Go on.")
        await turn(session, "/cost")
    assert len(watch.compactions) == 1
    assert "/cost" in str(watch.api.main_requests[-1].body["messages"])
