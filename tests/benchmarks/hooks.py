"""How long a command hook takes that archives nothing, against a bare Python: `python tests/benchmarks/hooks.py`.

Runs of both alternate, so that what else the machine does falls on both. Exit status 1 where the median of one event
is more than six times the bare Python's.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent.parent
PYTHON = [os.path.realpath(sys.executable), "-I", "-S"]
MOST = 6.0
ROUNDS = 60


def seconds(command: list[str], data: bytes, env: dict[str, str]) -> float:
    """Return how long a process takes."""
    begun = time.perf_counter()
    subprocess.run(command, input=data, capture_output=True, env=env, check=True)
    return time.perf_counter() - begun


def main() -> int:
    """Measure each event and print a line for it."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        transcript = place / "s.jsonl"
        transcript.write_text('{"type":"user"}\n' * 20_000)
        env = {"MALA_RUNS_DIR": str(place / "runs"), "HOME": directory, "CLAUDE_PROJECT_DIR": directory}
        for event in ("PreCompact", "SessionStart", "SessionEnd", "UserPromptSubmit"):
            given = {"hook_event_name": event, "session_id": "s", "transcript_path": str(transcript), "trigger": "auto"}
            data = json.dumps(given).encode()
            command = [*PYTHON, str(ROOT / "hooks/hook.py"), *(["warn"] if event == "UserPromptSubmit" else [])]
            for _ in range(3):
                seconds(command, data, env)
            pairs = [(seconds([*PYTHON, "-c", "pass"], data, env), seconds(command, data, env)) for _ in range(ROUNDS)]
            bare, hook = (statistics.median(column) for column in zip(*pairs, strict=True))
            worst = max(worst, hook / bare)
            print(f"{event:17} {hook * 1000:6.1f} ms, bare {bare * 1000:5.1f} ms: {hook / bare:.2f} times")
    return worst > MOST


if __name__ == "__main__":
    sys.exit(main())
