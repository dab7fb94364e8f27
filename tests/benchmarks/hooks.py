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
from collections.abc import Iterator
from unittest import mock

from claims import Figure

from mala_context import TranscriptArchive

ROOT = pathlib.Path(__file__).parent.parent.parent
PYTHON = [os.path.realpath(sys.executable), "-I", "-S"]
MOST = 6.0
ROUNDS = 60


def seconds(command: list[str], data: bytes, env: dict[str, str]) -> float:
    """Return how long a process takes."""
    begun = time.perf_counter()
    subprocess.run(command, input=data, capture_output=True, env=env, check=True)
    return time.perf_counter() - begun


def times(rounds: int = ROUNDS) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield each event with the seconds of a bare Python and of the hook, in turn."""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        transcript = place / "s.jsonl"
        transcript.write_text('{"type":"user"}\n' * 20_000)
        env = {"MALA_RUNS_DIR": str(place / "runs"), "HOME": directory, "CLAUDE_PROJECT_DIR": directory}
        with mock.patch.dict(os.environ, env):  # an outcome is this process's to tell, else there would be one to write
            TranscriptArchive(repo_path=directory).register_session("owned", str(transcript), pid=os.getpid())
        for event in ("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit"):
            session = "owned" if event == "PostCompact" else "s"
            given = {
                "hook_event_name": event,
                "session_id": session,
                "transcript_path": str(transcript),
                "trigger": "auto",
            }
            data = json.dumps(given).encode()
            command = [*PYTHON, str(ROOT / "hooks/hook.py"), *(["warn"] if event == "UserPromptSubmit" else [])]
            for _ in range(3):
                seconds(command, data, env)
            pairs = [(seconds([*PYTHON, "-c", "pass"], data, env), seconds(command, data, env)) for _ in range(rounds)]
            yield event, [bare for bare, _ in pairs], [hook for _, hook in pairs]


def figures(quick: bool) -> Iterator[Figure]:
    """Yield what `main` prints, for `all.py`."""
    for event, bare, hook in times(10 if quick else ROUNDS):
        middle = statistics.median(bare)
        ratio, beside = statistics.median(hook) / middle, f"bare Python: {middle * 1e3:.1f} ms"
        yield Figure(f"hooks.{event}", ratio, "x bare", beside=beside, bound=MOST)


def main() -> int:
    """Measure each event and print a line for it."""
    worst = 0.0
    for event, bares, hooks in times():
        bare, hook = statistics.median(bares), statistics.median(hooks)
        worst = max(worst, hook / bare)
        print(f"{event:17} {hook * 1000:6.1f} ms, bare {bare * 1000:5.1f} ms: {hook / bare:.2f} times")
    return worst > MOST


if __name__ == "__main__":
    sys.exit(main())
