"""The scenario `lost`: a compaction's summary leaves things out; they are named, and put back before the agent.

The same session twice, once with `pin: auto`. The keys of the result: `cli_version`, `line` (the INFO line), `lost`
(what the manifest has), `pinned_without` and `pinned_with` (whether the agent was shown the missing items in its first
request after the compaction), `next_request_tokens` of both.
"""

from __future__ import annotations

import io
import logging
import os
from dataclasses import dataclass, field
from typing import Any, Final

from mala_context.cli.live_gauge import logging_to
from mala_context.cli.scenarios.recording import Heard
from mala_context.cli.scenarios.report import Check, Lines, Report, Stage, ended_well
from mala_context.testing import Request, ScriptedMessagesAPI, summary, tool

INSTRUCTION: Final = "Never change vendor.lock, whatever the tests say. Read the parser, the lexer and the tables."
FILES: Final = ("parser.py", "lexer.py", "tables.py")
COMMAND: Final = "make release"
SUMMARY: Final = "parser.py and lexer.py were read. Work goes on with the parser."
LINES: Final = 20
"""Lines of each file. The CLI itself puts back files that were read, so large ones would leave nothing to drop."""
LOOKS: Final = 3
"""Long outputs, so that there is something to drop."""
EXPECTED: Final = "summary names 2 of 3 files, 0 of 1 instructions"


@dataclass
class _LostRun(Heard):
    """One session, and what came of it."""

    rows: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    after: Request | None = None


async def play(stage: Stage) -> Report:
    """Play both sessions and check them. Raises what the SDK raises where the CLI cannot be run."""
    plain, pinned = await _run(stage, "without", None), await _run(stage, "with", "auto")
    lost = pinned.rows[0].get("lost") if len(pinned.rows) == 1 else None
    missing = [item for entry in (lost or {}).values() for item in entry["missing"]]
    wanted = {INSTRUCTION, COMMAND, os.path.join(stage.place("project-with"), "tables.py")}
    line = pinned.lines[0].removeprefix("INFO ") if pinned.lines else None
    shown_with = bool(missing) and all(_shown(pinned.after, item) for item in missing)
    shown_without = any(_shown(plain.after, item) for item in (INSTRUCTION, COMMAND))
    data = {
        "cli_version": pinned.cli_version,
        "line": line,
        "lost": lost,
        "pinned_without": shown_without,
        "pinned_with": shown_with,
        "next_request_tokens": {
            name: run.after and run.after.tokens for name, run in (("without", plain), ("with", pinned))
        },
    }
    parts = [Lines("The line", [line or "-"]), Lines("Missing in the summary", missing or ["nothing"])]
    errors = [*plain.errors, *pinned.errors]
    one_line = len(plain.lines) == len(pinned.lines) == 1
    checks = [
        ended_well(errors),
        Check("one_line", one_line, f"{len(pinned.lines)} line for one compaction"),
        Check("counted", line is not None and line.endswith(EXPECTED), f"the line ends with: {EXPECTED}"),
        Check(
            "found", set(missing) == wanted, f"{len(set(missing) & wanted)} of {len(wanted)} missing things were found"
        ),
        Check("gone_without", not shown_without, "without pin the agent is not shown them"),
        Check("put_back", shown_with, "with pin: auto they stand in the first request after the compaction"),
    ]
    return Report(data, parts, checks)


def _shown(request: Request | None, words: str) -> bool:
    return request is not None and request.contains(words)


async def _run(stage: Stage, name: str, pin: str | None) -> _LostRun:
    reads = [tool("Read", file_path=stage.write(f"project-{name}", file, _functions(file))) for file in FILES]
    looks = [tool("Bash", command="seq 1 6000", description="Look")] * LOOKS
    release = tool("Bash", command=COMMAND, description="Release")
    script = [*reads, *looks, release, "All of it is read.", "Going on."]
    run, told = _LostRun(), io.StringIO()
    with (
        ScriptedMessagesAPI(script, compactions=[summary(SUMMARY)], strict=False) as api,
        logging_to(logging.StreamHandler(told)),
    ):
        runtime = stage.runtime(api, f"-{name}", pin=pin)
        await run.play(stage, runtime, (INSTRUCTION, "/compact", "Go on."))
        if runtime.archive is not None and run.session_id is not None:
            run.rows = runtime.archive.manifest(run.session_id).of_kind("outcome")
        run.after = api.main_requests[-1]
        run.errors += api.problems
    run.lines = [line for line in told.getvalue().splitlines() if line.startswith("INFO Compaction: ")]
    return run


def _functions(file: str) -> str:
    return "".join(f"def {file[:-3]}_{number}(text): return text[{number}:]\n" for number in range(LINES))
