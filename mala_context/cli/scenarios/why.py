"""The scenario `why`: what fills a context, and a request that changes in silence, against the server's log.

Each step plays a session of its own and returns its part of the report. The keys of the result: `map` (`tokens`,
`server_tokens`, `parts`, `requests`), `silent_change` (`projected`, `tokens`, `cause`, `server_tokens`), and those of
`why_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

from mala_context import SilentChange
from mala_context.agent.session import says_window
from mala_context.cli.scenarios.report import Check, Lines, Report, Stage, Step, Table, environment
from mala_context.cli.scenarios.why_cache import WORDS, compact_while_idle, name_a_lapse
from mala_context.testing import Request, ScriptedMessagesAPI, text, tool
from mala_context.tracking.context_map import GROUPS
from mala_context.tracking.events import WindowReport

MODEL: Final = "claude-sonnet-4-5"
MEMORY: Final = 40_000
"""Characters of the project's memory file."""
FILE: Final = 6_000
"""Characters of the file that the agent reads."""
SHARE: Final = 0.6
"""Share of its real size that the server reports for the third request."""
ALARM_AT: Final = 0.05


async def play(stage: Stage) -> Report:
    """Play each step. Raises what the SDK raises where the CLI cannot be run."""
    found = []
    with environment("MALA_RUNS_DIR", stage.place("runs")):
        for number, step in enumerate(STEPS, 1):
            stage.on_turn(number)
            found.append(await step(stage))
    data: dict[str, Any] = {}
    for each in found:
        data |= each.data
    return Report(
        data, [part for each in found for part in each.parts], [check for each in found for check in each.checks]
    )


def _text(characters: int) -> str:
    return (WORDS * (characters // len(WORDS) + 1))[:characters]


async def show_map(stage: Stage) -> Step:
    """Play a session that reads a file, and compare its map with the server's count."""
    import anyio

    stage.write("project-map", "CLAUDE.md", _text(MEMORY))
    read = tool("Read", file_path=stage.write("project-map", "notes.txt", _text(FILE)))
    with ScriptedMessagesAPI([read, "It says little."]) as api:
        preset = {"type": "preset", "preset": "claude_code"}
        options = {"model": MODEL, "setting_sources": ["project"], "system_prompt": preset}
        runtime = stage.runtime(api, "-map", options)
        told = anyio.Event()
        runtime.processor.observe(lambda event, snapshot: told.set(), WindowReport)
        async with runtime.session() as session:
            async for _ in session.send("What do the notes say?"):
                pass
            if says := await says_window(session.client, session.tracker):
                with anyio.move_on_after(20):
                    await told.wait()
            now = session.context
    parts, server = now.parts, api.main_requests[-1].tokens
    total = sum(part.tokens for part in parts)
    memory = sum(part.tokens for part in parts if part.group == "memory")
    shown = [[GROUPS[part.group], os.path.basename(part.path or "") or part.name, part.tokens] for part in parts]
    checks = [
        Check(
            "map_sum", total == server == now.tokens, f"the parts sum up to {total:,} tokens, the server got {server:,}"
        ),
        Check(
            "map_memory",
            not says or abs(memory - MEMORY / 4) <= 0.1 * MEMORY / 4,
            f"memory files: {memory:,} tokens; the server counts {MEMORY // 4:,} for the file"
            if says
            else "memory files: this CLI cannot say their size without a request",
        ),
        Check("map_no_request", len(api.requests) == 2, f"requests: {len(api.requests)}, those of the turn alone"),
    ]
    data: dict[str, Any] = {"tokens": now.tokens, "server_tokens": server, "requests": len(api.requests)}
    data["parts"] = [part._asdict() for part in parts]
    return Step({"map": data}, [Table("What fills the context", ("<part", "<name", "tokens"), shown)], checks)


class _Tampering:
    """Answers three prompts; the third one's count is a share of what the server really got."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.counted = 0

    def __call__(self, request: Request) -> Any:
        self.sizes.append(request.tokens)
        if len(self.sizes) < 3:
            return text("Done.")
        self.counted = round(SHARE * self.sizes[1])
        counts = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": self.counted}
        return text("Done.").but(usage={"input_tokens": 0, **counts})


async def change_in_silence(stage: Stage) -> Step:
    """Make the server report a smaller size for one request, and compare the alarm with the server's log."""
    heard: list[SilentChange] = []
    script = _Tampering()
    with ScriptedMessagesAPI(script) as api:
        runtime = stage.runtime(api, "-change", {"model": MODEL}, alarm_at=ALARM_AT)
        runtime.observers.append(lambda record: heard.append(record) if isinstance(record, SilentChange) else None)
        async with runtime.session() as session:
            for prompt in ("Begin.", "Go on.", "And on."):
                async for _ in session.send(prompt):
                    pass
        server = api.main_requests[-1].tokens
    alarm = heard[0] if heard else None
    near = alarm is not None and abs(alarm.projected - server) <= 0.02 * server
    said = "none" if alarm is None else f"{alarm.tokens:,} tokens, not {alarm.projected:,}: {alarm.cause}"
    checks = [
        Check(
            "alarm_once", len(heard) == 1, f"alarms: {len(heard)}, for one request of which {1 - SHARE:.0%} is missing"
        ),
        Check("alarm_size", near, f"the alarm says {said}; the server got {server:,}"),
    ]
    data = {"server_tokens": server, **({} if alarm is None else asdict(alarm))}
    lines = [f"The server counts {script.counted:,} tokens of a request of {server:,}.", f"The alarm: {said}."]
    return Step({"silent_change": data}, [Lines("A request that changes in silence", lines)], checks)


STEPS: Final[tuple[Callable[[Stage], Awaitable[Step]], ...]] = (
    show_map,
    change_in_silence,
    name_a_lapse,
    compact_while_idle,
)
"""The steps, in their order."""
