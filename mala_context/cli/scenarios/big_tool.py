"""The scenario `big-tool`: one tool result is larger than the room that is left.

The same agent twice: without the cap the API refuses the next request and the session is dead; with
`guard.tool_output_tokens: auto` the result is cut to its head, its tail and the path of the full text, and the agent
reads the line that it needs from there.

The keys of the result: `window`, `cli_version`; `without` and `with_guard` as in `overflow`; `result_characters`,
`shown_characters`, `full_text` (`path`, `mode`, `whole`), `found`.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from mala_context.cli.scenarios import guarded
from mala_context.cli.scenarios.archived import mode_text
from mala_context.cli.scenarios.report import Check, Lines, Report, Stage, Table, environment
from mala_context.config import GuardConfig
from mala_context.testing import Request, tool

LINES: Final = 1_400
NEEDLE: Final = "the pump failed at 09:41"
PLACE: Final = 700
_PATH: Final = re.compile(r"full text: ([^;\]\n]+?\.txt)")


class _BigToolWorker:
    """Fills two thirds of the window, reads a large file, and looks for a line in the middle of it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.step = 0
        self.large: Request | None = None
        self.last: Request | None = None

    def __call__(self, request: Request) -> Any:
        self.step += 1
        if self.step == 1:
            look = tool("Bash", command="head -c 24000 service.log", description="Look at the log")
            return look + look + look
        if self.step == 2:
            return tool("Read", file_path=self.path)
        if self.step == 3:
            self.large = request
            full = _PATH.search(request.tool_results[-1])
            return tool("Read", file_path=full[1] if full else self.path, offset=PLACE - 10, limit=20)
        self.last = request
        return f"Found: {NEEDLE}." if NEEDLE in request.tool_results[-1] else "Not found."


async def play(stage: Stage) -> Report:
    """Play both runs and check them. Raises what the SDK raises where the CLI cannot be run."""
    runs, workers = {}, {}
    with environment("MALA_RUNS_DIR", stage.place("runs")):
        for name, guard in (("without", GuardConfig()), ("with", GuardConfig(tool_output_tokens="auto"))):
            workers[name] = _BigToolWorker(stage.write(f"project-{name}", "journal.txt", _journal()))
            runs[name] = await guarded.run(stage, name, workers[name], ["What failed?"], guard=guard, tell_agent=False)
    worker = workers["with"]
    shown = worker.large.tool_results[-1] if worker.large is not None else ""
    full = _full_text(shown, worker.path)
    found = worker.last is not None and NEEDLE in worker.last.tool_results[-1]
    size = len(_journal())
    data = guarded.data(
        runs["without"],
        runs["with"],
        result_characters=size,
        shown_characters=len(shown),
        full_text=full,
        found=found,
    )
    rows = [runs["without"].row("without"), runs["with"].row("with the cap")]
    parts: list[Table | Lines] = [Table("The same agent, twice", guarded.COLUMNS, rows), _lines(shown, full)]
    whole = full is not None and full["whole"]
    checks = [
        guarded.died_check(runs["without"]),
        guarded.finished_check(runs["with"], 1, f"Found: {NEEDLE}."),
        guarded.accepted_check(runs["with"]),
        Check("cut", 0 < len(shown) < size and NEEDLE not in shown, f"shown: {len(shown):,} of {size:,} characters"),
        Check("kept", whole, "the full text is on disk, " + ("byte for byte" if whole else "but NOT whole")),
        Check("private", full is not None and full["mode"] == "0600", f"its mode is {full['mode'] if full else None}"),
        Check("read_back", found, f"the agent {'found' if found else 'did NOT find'} its line in the full text"),
    ]
    return Report(data, parts, checks)


def _journal() -> str:
    """Return the large file, with the line to be found in its middle."""
    usual = "all pumps are running, pressure steady"
    return "".join(f"entry {n:04d}: {NEEDLE if n == PLACE else usual}\n" for n in range(1, LINES + 1))


def _full_text(shown: str, original: str) -> dict[str, Any] | None:
    match = _PATH.search(shown)
    if match is None or not os.path.exists(match[1]):
        return None
    with open(match[1], "rb") as kept, open(original, "rb") as whole:
        same = kept.read() == whole.read()
    return {"path": match[1], "mode": mode_text(os.stat(match[1])), "whole": same}


def _lines(shown: str, full: dict[str, Any] | None) -> Lines:
    marker = next((line for line in shown.splitlines() if "left out" in line), "nothing was left out")
    return Lines("What the agent was shown between head and tail", [marker, f"mode {full['mode']}" if full else "-"])
