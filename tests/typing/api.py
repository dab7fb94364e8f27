"""The public API as users call it; checked by the type checker, never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher

from mala_context import (
    TRACKING_DISABLED,
    AgentRuntime,
    AgentRuntimeBuilder,
    ConfigError,
    ContextConfig,
    ContextOverflow,
    ContextPressureError,
    ContextPressureHandler,
    ContextSnapshot,
    ContextTracker,
    ContextUsage,
    MessageStreamProcessor,
    OpenTelemetryObserver,
    TranscriptArchive,
    Usage,
    get_repo_runs_dir,
    instrument,
    load_config,
    make_precompact_hook,
)


async def short_way(options: ClaudeAgentOptions) -> None:
    runtime = instrument(options, observers=[print, OpenTelemetryObserver(models=["mine"], spans=False)])
    assert_type(runtime, AgentRuntime)
    runtime.observers.append(print)
    async with runtime.session() as session:
        async for message in session.send("Fix the failing test"):
            print(message)
        assert_type(session.context, ContextSnapshot)
        assert_type(session.context.tokens, int | None)
        assert_type(session.context.ratio, float | None)
        await session.client.interrupt()


async def own_driver(options: ClaudeAgentOptions, prompt: str) -> None:
    runtime = instrument(options)
    handler = runtime.pressure_handler(timeout_seconds=3600)
    assert_type(handler, ContextPressureHandler)
    try:
        async with ClaudeSDKClient(handler.options) as client:
            await client.query(prompt)
    except ContextPressureError as error:
        assert_type(await handler.handle_pressure_error(error, last_prompt=prompt), str)
    assert_type(await handler.fetch_checkpoint("session"), str | None)
    assert_type(handler.build_continuation_prompt("text"), str)


async def own_client(options: ClaudeAgentOptions) -> None:
    async with instrument(options, "/repo") as runtime, ClaudeSDKClient(runtime.options) as client:
        await client.query("hello")
        async for message in runtime.processor.stream(client.receive_response()):
            print(message)
    assert_type(runtime.archive, TranscriptArchive | None)
    assert_type(runtime.tracker.agents(), Mapping[str, ContextSnapshot])


def long_form(config: ContextConfig) -> AgentRuntime:
    builder = AgentRuntimeBuilder(Path("/repo"), agent_id="worker-1").with_model("claude-sonnet-4-5[1m]")
    builder = builder.with_env({"A": "1"}).with_hooks({"Stop": [HookMatcher(hooks=[])]}).with_mcp({})
    builder = builder.with_observers(print, lambda record: isinstance(record, ContextOverflow))
    builder = builder.with_disallowed_tools(["WebFetch"]).with_resume("id", fork=True).with_config(config)
    return builder.with_options(max_turns=3).build()


def parts(raw: Any) -> None:
    processor = MessageStreamProcessor(ContextTracker(window=200_000), restart_at=0.9, on_snapshot=[print])
    processor.process(raw)
    ledger = ContextUsage()
    ledger.add_turn(input_tokens=1, output_tokens=2)
    assert_type(ledger.pressure_ratio(10), float)
    assert_type(ledger.input_tokens == TRACKING_DISABLED, bool)
    assert_type(Usage.parse(raw), Usage | None)
    assert_type(get_repo_runs_dir("/repo"), Path)
    make_precompact_hook("/repo")
    try:
        load_config("mala.yaml")
    except ConfigError as error:
        assert_type(error.problems[0].line, int | None)
    except ContextPressureError as error:
        assert_type(error.pressure_ratio, float)
