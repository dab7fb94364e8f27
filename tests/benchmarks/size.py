"""Cost against size: ten times as much, and a hundred times, for each part that reads or watches.

    python tests/benchmarks/size.py [PART …] [--rounds N] [--folder FOLDER] [--quick] [--huge]

Parts: `tracker` (responses), `archive` (MB), `replay` (MB), `report` (responses), `watch`, `list`, `start` (sessions).
Every figure is of processor time, medians, with least and most behind it; `replay`, `watch`, `list` and `start` are
whole processes. The last column is the exponent between a size and the one before: 1 is linear, less is what start-up
makes of it. `--huge` adds replay at 5 GB, which is generated below `--folder` (or the temporary directory) and removed
again.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import corpus
import tracker as tracking
from claims import Figure

from mala_context.analysis.report import build_report
from mala_context.analysis.report.page import page
from mala_context.archive.store import TranscriptArchive
from mala_context.tracking.tracker import ContextTracker
from tests.helpers.recordings import SID
from tests.helpers.report_sessions import long_session
from tests.helpers.watch_sessions import session

MB = 1_000_000
EXPONENT = 1.25
"""More than this between the two largest sizes is not linear."""


class Cost(NamedTuple):
    """What one size of one part took."""

    size: float
    seconds: list[float]
    peak: float | None = None
    """MiB of the process, where it is one of its own."""


def used(work: Callable[[], object]) -> float:
    """Return the processor seconds of a piece of work here."""
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def process(*arguments: str, **environment: str) -> tuple[float, float | None]:
    """Return the processor seconds of a command of ours, and its most memory in MiB, where that is known."""
    command = [sys.executable, "-m", "mala_context.cli", *arguments]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | environment)
    _, status, usage = os.wait4(run.pid, 0)
    if status:
        sys.exit(f"{arguments[:2]} failed with {status}")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # a child's begins with it
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024 if usage.ru_maxrss > own else None


def of_tracker(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """Responses read and applied."""
    for size in sizes:
        seconds = []
        for _ in range(rounds):
            found, tracker = 0.0, ContextTracker()
            for start in range(0, int(size), 1_000):  # as messages come, and not all held at once
                numbers = range(start, min(start + 1_000, int(size)))
                messages = [message for number in numbers for message in tracking.response(number, partial=False)]
                begun = time.process_time()
                tracking.run(tracker, messages)
                found += time.process_time() - begun
            seconds.append(found)
        yield Cost(size, seconds)


def of_archive(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """One transcript archived at once, without waiting for the disk."""
    line = b'{"type":"user","uuid":"%032x","message":{"role":"user","content":"%s"}}\n' % (7, b"a line of text " * 60)
    for size in sizes:
        transcript = os.path.join(folder, "s.jsonl")
        with open(transcript, "wb") as file:
            file.writelines(line for _ in range(int(size * MB / len(line))))
        seconds = []
        for number in range(rounds):
            archive = TranscriptArchive(os.path.join(folder, f"archives-{size:g}-{number}"))
            seconds.append(used(partial(archive.archive, transcript, "s", trigger="auto")))
        yield Cost(size, seconds)


def of_replay(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """`mala-context replay --jobs 1`, the whole process, warm page cache."""
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as at:
            subprocess.run([sys.executable, corpus.__file__, at, str(size)], check=True, stdout=subprocess.DEVNULL)
            process("replay", "--format", "json", "--jobs", "1", at)
            runs = [process("replay", "--format", "json", "--jobs", "1", at) for _ in range(rounds)]
        yield Cost(size, [seconds for seconds, _ in runs], max((peak for _, peak in runs if peak), default=None))


def of_report(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """One session read, and its page made."""
    for size in sizes:
        path = long_session(Path(folder) / f"{size:g}" / f"{SID}.jsonl", int(size))
        yield Cost(size, [used(lambda path=path: "".join(page(build_report([path])))) for _ in range(rounds)])


def of_watch(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """`mala-context watch --once` over so many sessions, the whole process."""
    for size in sizes:
        projects = Path(folder) / f"{size:g}" / "projects"
        for number in range(int(size)):
            session(projects, number, folder=number % 50)
        environment = {"HOME": folder, "MALA_RUNS_DIR": str(Path(folder) / "runs")}
        runs = [process("watch", "--once", "--projects", str(projects), **environment) for _ in range(rounds)]
        yield Cost(size, [seconds for seconds, _ in runs], max((peak for _, peak in runs if peak), default=None))


def archived(sizes: list[float], folder: str) -> Iterator[tuple[float, str, str]]:
    """Yield so many sessions, each archived once and all in one folder: how many, its path, and the runs directory."""
    for size in sizes:
        runs, transcript = os.path.join(folder, f"runs-{size:g}"), os.path.join(folder, f"{SID}.jsonl")
        Path(transcript).write_text('{"type":"user","uuid":"1","message":{"role":"user","content":"hello"}}\n')
        at = os.path.join(runs, folder.replace("/", "-"), "archives")
        TranscriptArchive(at).archive(transcript, SID, trigger="session_end")
        files = [(name, Path(at, name).read_bytes()) for name in os.listdir(at)]
        for number in range(int(size) - 1):
            other = f"{SID[:-12]}{number:012d}"
            for name, data in files:
                path = os.open(os.path.join(at, name.replace(SID, other)), os.O_WRONLY | os.O_CREAT, 0o600)
                os.write(path, data.replace(SID.encode(), other.encode()))
                os.close(path)
        yield size, at, runs


def of_list(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """`mala-context archives list` of so many sessions, the whole process."""
    for size, at, _ in archived(sizes, folder):
        runs = [process("archives", "list", "--dir", at) for _ in range(rounds)]
        yield Cost(size, [seconds for seconds, _ in runs], max((peak for _, peak in runs if peak), default=None))


def of_start(sizes: list[float], rounds: int, folder: str) -> Iterator[Cost]:
    """The plugin's hook at a session's start, beside so many sessions of which nothing was left to archive."""
    hook = Path(__file__).parent.parent.parent / "hooks" / "hook.py"
    given = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "new", "cwd": folder}
    for size, _, runs in archived(sizes, folder):
        seconds = []
        for _ in range(rounds):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            environment = {
                **os.environ,
                "MALA_RUNS_DIR": runs,
                "CLAUDE_CONFIG_DIR": folder,
                "CLAUDE_PROJECT_DIR": folder,
            }
            command = [sys.executable, "-I", "-S", str(hook)]
            subprocess.run(command, input=json.dumps(given).encode(), env=environment, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        yield Cost(size, seconds)


PARTS = {
    "tracker": (of_tracker, "responses", [1_000, 10_000, 100_000]),
    "archive": (of_archive, "MB", [10, 100, 1_000]),
    "replay": (of_replay, "MB", [5, 50, 500]),
    "report": (of_report, "responses", [500, 5_000, 50_000]),
    "watch": (of_watch, "sessions", [10, 100, 1_000]),
    "list": (of_list, "sessions", [100, 1_000, 10_000]),
    "start": (of_start, "sessions", [100, 1_000, 10_000]),
}


def costs(part: str, sizes: list[float], rounds: int, folder: str | None) -> Iterator[Cost]:
    """Yield what each size of a part costs."""
    with tempfile.TemporaryDirectory(dir=folder) as at:
        yield from PARTS[part][0](sizes, rounds, at)


def exponent(before: Cost, after: Cost) -> float:
    """Return the power of the size with which the cost grew."""
    ratio = statistics.median(after.seconds) / max(statistics.median(before.seconds), 1e-9)
    return math.log(ratio) / math.log(after.size / before.size)


def figures(quick: bool) -> Iterator[Figure]:
    """Yield the exponent between the two largest sizes of each part, for `all.py`."""
    for part, (_, unit, sizes) in PARTS.items():
        *_, before, after = costs(part, sizes[:2] if quick else sizes, 3, None)
        beside = f"{before.size:,.0f} to {after.size:,.0f} {unit}; 1 is linear"
        yield Figure(f"size.{part}", exponent(before, after), "exponent", beside=beside, bound=EXPONENT)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to work")
    parser.add_argument("--quick", action="store_true", help="without the largest size")
    parser.add_argument("--huge", action="store_true", help="replay at 5 GB too")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        _, unit, sizes = PARTS[part]
        sizes = sizes[:2] if options.quick else sizes + [5_000] * (options.huge and part == "replay")
        before = None
        for cost in costs(part, sizes, options.rounds, options.folder):
            middle = statistics.median(cost.seconds)
            spread = f"({min(cost.seconds):.3f} to {max(cost.seconds):.3f})"
            line = f"{part:8} {cost.size:9,.0f} {unit:9} {middle:8.3f} s {spread}"
            line += f", {middle / cost.size * 1e6:9,.1f} µs each"
            line += "" if cost.peak is None else f", {cost.peak:.0f} MiB"
            print(line + ("" if before is None else f", exponent {exponent(before, cost):.2f}"), flush=True)
            before = cost


if __name__ == "__main__":
    main()
