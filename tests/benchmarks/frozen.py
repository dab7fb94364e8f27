"""How long the plugin's hook takes on a frozen disk, and with a row of 1 GB: `python tests/benchmarks/frozen.py`.

strace delays calls of the hook by 15 seconds each, as a disk does that is frozen: every flush, new directory, new name,
removal or lock. Of each event the slowest run counts. Exit status 1 where one of them takes ten seconds. `--row BYTES`
sets the size of the long row, `--rounds N` the runs of each.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent.parent
HOOK = [os.path.realpath(sys.executable), "-I", "-S", str(ROOT / "hooks" / "hook.py")]
EVENTS = ("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit")
MOST = 10.0
DELAY = "15s"
CALLS = {
    "flushes": "fsync,fdatasync",
    "new directories": "mkdir,mkdirat",
    "new names": "rename,renameat,renameat2,link,linkat",
    "removals": "unlink,unlinkat,rmdir",
    "locks": "flock",
}
"""Groups of calls that are delayed. Opening, reading and listing are not among them: Python itself does these at its
start, so the delay would be Python's."""


def reap() -> None:
    """End what a hook left working on the frozen disk: orphans become children of this process."""
    while True:
        children = pathlib.Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Place:
    """A repository with a transcript; each run finds it as it was."""

    def __init__(self, top: pathlib.Path, row: int) -> None:
        self.top, self.runs = top, top / "runs"
        self.transcript = top / "s.jsonl"
        usage = {"input_tokens": 150_000, "output_tokens": 1}
        answer = {"type": "assistant", "message": {"model": "claude-sonnet-4-5", "usage": usage, "content": []}}
        with self.transcript.open("w") as file:
            file.write('{"type":"user","message":{"content":"hello"}}\n' * 1000)
            if row:
                file.write('{"type":"user","message":{"content":"')
                for _ in range(row >> 20):
                    file.write("words of a row, " * 65_536)
                file.write('"}}\n')
            file.write(json.dumps(answer) + "\n")

    def seconds(self, event: str, calls: str | None) -> float:
        """Return how long the hook takes until it has answered, and leave nothing running."""
        shutil.rmtree(self.runs, ignore_errors=True)
        given = {
            "hook_event_name": event,
            "session_id": "s",
            "transcript_path": str(self.transcript),
            "trigger": "auto",
        }
        given |= {"cwd": str(self.top), "source": "startup", "reason": "other", "compact_summary": "We talked."}
        env = {
            "MALA_RUNS_DIR": str(self.runs),
            "HOME": str(self.top),
            "MALA_WARN_AT": "0.5",
            "PATH": os.environ["PATH"],
        }
        command = [*HOOK, "warn"] if event == "UserPromptSubmit" else HOOK
        if calls is not None:
            inject = f"inject={calls}:delay_enter={DELAY}"
            command = ["strace", "-D", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}", "-e", inject, *command]
        asked, answer = self.top / "input", self.top / "answer"
        asked.write_text(json.dumps(given))
        with asked.open("rb") as stdin, answer.open("wb") as stdout:  # no pipes: strace would keep them open
            begun = time.perf_counter()
            subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, env=env, check=True)
            took = time.perf_counter() - begun
        if not answer.read_bytes():
            raise RuntimeError(f"{event}: no answer")
        reap()
        return took


def main() -> int:
    """Measure each event in each situation and print a line for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        small, large = pathlib.Path(directory, "small"), pathlib.Path(directory, "large")
        small.mkdir()
        large.mkdir()
        situations = [("a disk as it is", Place(small, 0), None)]
        situations += [(f"{name} take {DELAY}", Place(small, 0), calls) for name, calls in CALLS.items()]
        situations += [(f"a row of {given.row / 1e9:.1f} GB", Place(large, given.row), None)]
        for name, place, calls in situations:
            for event in EVENTS:
                found = sorted(place.seconds(event, calls) for _ in range(given.rounds))
                worst = max(worst, found[-1])
                print(f"{name:45} {event:17} {found[0]:6.2f} to {found[-1]:5.2f} s", flush=True)
    print(f"slowest: {worst:.2f} s of {MOST:g} s")
    return worst >= MOST


if __name__ == "__main__":
    sys.exit(main())
