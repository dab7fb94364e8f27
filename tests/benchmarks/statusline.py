"""How long the status line takes, as Claude Code runs it: `python tests/benchmarks/statusline.py`.

Each case is a whole process, from the start of the installed command to its end. Runs of all cases and of a bare
Python of the same environment alternate, so that what else the machine does falls on all of them; beside the wall
clock stands processor time, which on a quiet machine is the same within half a millisecond, and on a busy one still
says what the process itself costs. Exit status 1 where its median of one case is more than `MOST` milliseconds.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

MOST = 50.0
ROUNDS = 40
COMMAND = [str(pathlib.Path(sys.executable).with_name("mala-context")), "statusline"]
ENV = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled once, as in every installation."""
FILLER = {"type": "user", "message": {"role": "user", "content": "x" * 1_000}}
USAGE = {"input_tokens": 3, "cache_read_input_tokens": 120_000, "output_tokens": 1}
RESPONSE = {"type": "assistant", "message": {"model": "claude-sonnet-4-5", "usage": USAGE, "content": []}}
ATTACHMENT = {"type": "attachment", "attachment": {"type": "skill_listing", "content": "x" * 8_000}}
BOUNDARY = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto", "postTokens": 900}}
COUNTED = {
    "model": {"id": "claude-sonnet-4-5", "display_name": "Sonnet 4.5"},
    "context_window": {"context_window_size": 200_000, "current_usage": USAGE},
}


def given(place: pathlib.Path) -> dict[str, dict[str, object]]:
    """Write the transcripts; return the input of each case."""

    def transcript(name: str, megabytes: int, *last: dict[str, object], more: str = "") -> dict[str, object]:
        path = place / f"{name}.jsonl"
        with path.open("w") as file:
            for row in (ATTACHMENT, FILLER, RESPONSE):
                file.write(json.dumps(row) + "\n")
            line = json.dumps(FILLER) + "\n"
            file.write(line * (megabytes * 1_000_000 // len(line)))
            file.writelines(json.dumps(row) + "\n" for row in last)
            file.write(more)
        return {"model": {"id": "claude-sonnet-4-5"}, "transcript_path": str(path)}

    return {
        "counts given": COUNTED,
        "transcript, 1 MB": transcript("small", 1, RESPONSE),
        "transcript, 200 MB": transcript("large", 200, RESPONSE),
        "after a compaction": transcript("compacted", 200, RESPONSE, BOUNDARY),
        "a row half written": transcript("half", 1, RESPONSE, BOUNDARY, more=json.dumps(RESPONSE)[:100]),
        "no transcript": {"model": {"id": "claude-sonnet-4-5"}, "transcript_path": str(place / "none")},
    }


def seconds(command: list[str], data: bytes) -> tuple[float, float]:
    """Return how long a process takes, by the clock and in processor time."""
    before, begun = _processor(), time.perf_counter()
    subprocess.run(command, input=data, capture_output=True, check=True, env=ENV)
    took = time.perf_counter() - begun
    return took, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print a line for each case."""
    with tempfile.TemporaryDirectory() as directory:
        cases = given(pathlib.Path(directory))
        runs = {"bare Python": ([sys.executable, "-c", "pass"], b"")}
        runs |= {name: (COMMAND, json.dumps(case).encode()) for name, case in cases.items()}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for _ in range(ROUNDS + 3):
            for name, (command, data) in runs.items():
                taken[name].append(seconds(command, data))
    worst = 0.0
    for name, pairs in taken.items():
        wall, processor = (statistics.median(column) * 1_000 for column in zip(*pairs[3:], strict=True))
        worst = max(worst, processor)
        print(f"{name:20} {wall:6.1f} ms, {processor:6.1f} ms of processor")
    return worst > MOST


if __name__ == "__main__":
    sys.exit(main())
