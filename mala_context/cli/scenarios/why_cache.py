"""Steps of the scenario `why` about the prompt cache: a lapse that is named, an idle compaction before the next one.

The scripted API and the runtime share one clock, which stands still until the scenario moves it. The keys of the
result: `lapse` (`tokens`, `cause`, `idle_minutes`, `server_tokens`, `server_cause`), `idle` (`compactions`,
`minutes`, `summary_read`, `next_read`, `next_tokens`, `tokens_before`).
"""

from __future__ import annotations

from typing import Any, Final

from mala_context import CacheRewritten
from mala_context.cli.scenarios.report import Check, Lines, Stage, Step
from mala_context.testing import ScriptedClock, ScriptedMessagesAPI

WORDS: Final = "the quick brown fox jumps over the lazy dog "
IDLE: Final = 71 * 60
"""Seconds of the pause after which the cache has lapsed."""
EARLY: Final = 241
"""Seconds of the pause in which an idle session compacts: the cache lives for 300."""
LARGE: Final = 360_000
"""Characters of a prompt that makes a cold start dearer than a compaction."""


async def _say(session: Any, prompt: str) -> None:
    async for _ in session.send(prompt):
        pass


async def name_a_lapse(stage: Stage) -> Step:
    """Let the cache lapse between two prompts, and compare its cause and size with the server's."""
    heard: list[CacheRewritten] = []
    clock = ScriptedClock()
    with ScriptedMessagesAPI(["Done.", "Done.", "Welcome back."], clock=clock) as api:
        runtime = stage.runtime(api, "-lapse", warn_at=None)
        runtime.processor.use_clock(clock)
        runtime.observers.append(lambda record: heard.append(record) if isinstance(record, CacheRewritten) else None)
        async with runtime.session() as session:
            await _say(session, "Begin.")
            await _say(session, WORDS * 400)
            clock.advance(IDLE)
            await _say(session, "I am back.")
            use = session.cache
        server = api.last
        read = sum(request.usage["cache_read_input_tokens"] for request in api.main_requests if request.usage)
    again = [each for each in heard if each.cause != "first"]
    found = again[-1] if again else None
    named = found is not None and (found.tokens, found.cause) == (server.again, server.again_cause)
    words = "nothing" if found is None else f"{found.tokens:,} tokens written again, {found.cause}"
    checks = [
        Check("lapse_named", named, f"{words}; the server: {server.again:,}, {server.again_cause}"),
        Check("cache_sums", use.read == read, f"read from the cache: {use.read:,} tokens; the server: {read:,}"),
    ]
    data: dict[str, Any] = {"server_tokens": server.again, "server_cause": server.again_cause}
    if found is not None:
        data |= {"tokens": found.tokens, "cause": found.cause, "idle_minutes": (found.idle_seconds or 0) / 60}
    lines = [f"After {IDLE // 60} minutes without a prompt: {words}."]
    return Step({"lapse": data}, [Lines("A lapse of the prompt cache", lines)], checks)


async def compact_while_idle(stage: Stage) -> Step:
    """Let an idle session compact before its cache lapses, and check in the server's log what the summary read."""
    import anyio.to_thread

    clock = ScriptedClock()
    with ScriptedMessagesAPI(["Done.", "Done.", "Going on."], clock=clock) as api:
        runtime = stage.runtime(api, "-idle", warn_at=None, compact_idle=True)
        runtime.processor.use_clock(clock)
        async with runtime.session() as session:
            await _say(session, "Begin.")
            await _say(session, WORDS * (LARGE // len(WORDS)))
            before = session.context.tokens or 0
            clock.advance(EARLY)
            summary = await anyio.to_thread.run_sync(lambda: api.wait(kind="compaction", state="answered", timeout=60))
            await _say(session, "Go on.")
            compactions = session.context.compactions
        after, asked = api.last, len(api.of_kind("compaction"))
    summary_read, next_read = (
        0 if request.usage is None else int(request.usage["cache_read_input_tokens"]) for request in (summary, after)
    )
    checks = [
        Check("compacted_once", compactions == asked == 1, f"idle compactions: {compactions}, summaries: {asked}"),
        Check(
            "compacted_in_time",
            summary_read > 0.9 * before,
            f"the summary's request read {summary_read:,} of {before:,} tokens from the cache",
        ),
        Check("next_reads", next_read > 0, f"the next request: {after.tokens:,} tokens, {next_read:,} from the cache"),
    ]
    data = {"compactions": compactions, "minutes": EARLY / 60, "summary_read": summary_read, "next_read": next_read}
    data |= {"next_tokens": after.tokens, "tokens_before": before}
    lines = [f"{before:,} tokens stood idle; after {EARLY / 60:.0f} minutes of 5 the session compacted."]
    return Step({"idle": data}, [Lines("An idle compaction in time", lines)], checks)
