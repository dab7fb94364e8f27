"""What `mala-context watch` costs and how soon it shows a row; run `python tests/benchmarks/watch.py [seconds]`.

Each figure is of the whole command on a terminal of its own:

* idle: the share of a core while 50 sessions with 200 subagents and 1,000 older transcripts in 50 folders lie still;
* row: from the end of the write of a response's row to its size on the terminal, of 40 rows at random moments;
* huge: from the start of the process to the size of a transcript of 200 MB, and until all its compactions are counted,
  beside the same for a transcript of 20 KB.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from claims import Figure, of

from tests.helpers.recordings import Rows, dump
from tests.helpers.watch_sessions import WATCH, Terminal, append, session, subagent

ROUNDS = 40
HUGE = 200_000_000
IDLE_SECONDS = 20.0


def cpu(pid: int) -> float:
    """Return the seconds of processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crowd(projects: Path) -> list[tuple[Rows, Path]]:
    """Write 50 sessions with subagents, and many older ones."""
    made = [session(projects, number) for number in range(50)]
    for _, path in made:
        for agent in range(4):
            subagent(path, f"a{agent}")
    for number in range(1_000, 2_000):
        _, path = session(projects, number, turns=1, folder=number % 50)
        os.utime(path, (1, 1))
    now = time.time() - 600  # idle, and subagents not drawn
    for _, path in made:
        for each in (path, *path.with_suffix("").rglob("*.jsonl")):
            os.utime(each, (now, now))
    return made


def watched(directory: Path, *more: str) -> Terminal:
    """Start the command on a terminal."""
    environment = {"HOME": str(directory), "MALA_RUNS_DIR": str(directory / "runs")}
    return Terminal(*WATCH, "--projects", str(directory / "projects"), *more, **environment)


def idle_and_row(seconds: float, rounds: int = ROUNDS) -> tuple[float, list[float]]:
    """Return what share of a core idle sessions cost, and how many seconds each row took, sorted."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        made = crowd(directory / "projects")
        with watched(directory) as terminal:
            terminal.until("50 sessions")
            while terminal.read(1.0):
                pass
            begun, used = time.perf_counter(), cpu(terminal.process.pid)
            while time.perf_counter() - begun < seconds:
                terminal.read(0.5)
            share = (cpu(terminal.process.pid) - used) / (time.perf_counter() - begun)
            times = [row(terminal, *random.choice(made), number) for number in range(rounds)]
    return share, sorted(times)


def show_idle_and_row(seconds: float) -> None:
    """Print what idle sessions cost, and how soon a row is shown."""
    share, times = idle_and_row(seconds)
    print(f"idle: {share:.2%} of a core, 50 sessions")
    print(
        f"row: median {statistics.median(times) * 1000:.0f} ms, 90 % {times[int(ROUNDS * 0.9)] * 1000:.0f} ms, "
        f"longest {times[-1] * 1000:.0f} ms, {ROUNDS} rows"
    )


def row(terminal: Terminal, rows: Rows, path: Path, number: int) -> float:
    """Append a response to a session and return how many seconds later its size is on the terminal."""
    time.sleep(random.uniform(0.3, 0.9))
    terminal.read(0)
    tokens = 100_003 + 101 * number
    append(path, rows.response(f"new-{number}", tokens))
    return terminal.until(f"{tokens:,}")


def big(projects: Path, size: int) -> str:
    """Write a transcript of a size with a compaction in each tenth of it; returns its last size as it is shown."""
    rows = Rows()
    path = projects / "-home-dev-big" / f"{rows.session_id}.jsonl"
    path.parent.mkdir(parents=True)
    text = "a line of a tool's result that is as long as lines are\n" * 40
    written = compactions = 0
    with path.open("wb") as file:
        while written < size:
            rows.prompt(text, cwd="/home/dev/big")
            rows.response(f"m-{written}", 60_000 + written // 4_000 % 90_000, text=text)
            if written > compactions * size / 10:
                compactions += 1
                rows.boundary(170_000, 4_000)
            data = dump(rows.rows)
            written += file.write(data)
            rows.rows.clear()
        rows.prompt()
        rows.response("last", 77_777)
        file.write(dump(rows.rows))
    return "77,777"


def start(size: int) -> tuple[float, float]:
    """Return the seconds until a transcript's size is shown, and until all of it is counted."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        shown = big(directory / "projects", size)
        with watched(directory) as terminal:
            first = terminal.until(shown)
        begun = time.perf_counter()
        with watched(directory, "--once") as terminal:
            terminal.ended(60)
        return first, time.perf_counter() - begun


def figures(quick: bool) -> Iterator[Figure]:
    """Yield what `main` prints, for `all.py`."""
    small, huge = start(20_000), start(HUGE)
    yield Figure("watch.first", huge[0], "s", beside=f"of 20 KB: {small[0]:.2f} s")
    yield Figure("watch.counted", huge[1], "s", beside=f"of 20 KB: {small[1]:.2f} s")
    share, times = idle_and_row(5.0 if quick else IDLE_SECONDS, 10 if quick else ROUNDS)
    yield Figure("watch.idle", share * 100, "% of a core", beside="50 idle sessions, 200 subagents")
    yield of("watch.row", [each * 1000 for each in times], "ms", beside="asked for every 150 ms")
    yield Figure("watch.row_longest", times[-1] * 1000, "ms", beside=f"{len(times)} rows")


def main(arguments: list[Any]) -> None:
    """Print all figures."""
    small, huge = start(20_000), start(HUGE)
    print(f"huge: first size after {huge[0]:.2f} s, all counted after {huge[1]:.2f} s, 200 MB")
    print(f"small: first size after {small[0]:.2f} s, all counted after {small[1]:.2f} s, 20 KB")
    show_idle_and_row(float(arguments[0]) if arguments else IDLE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
