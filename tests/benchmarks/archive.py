"""Figures of the archive, side by side with `shutil.copy2` plus fsync: `python tests/benchmarks/archive.py`.

A transcript grows to 100 MB in 20 steps, and after each it is archived. Both ways see the same bytes, run in shuffled
order seven times, and the medians count. Rows hold real text (the standard library's sources), so packing has what it
has in life. `--quick` uses a tenth of the bytes and three runs; its figures say nothing about the targets.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from claims import Figure

from mala_context.archive.source import Source
from mala_context.archive.store import TranscriptArchive

STEPS = 20
MB = 1_000_000
PEAK = (
    "import os, resource, sys, time\n"
    "from mala_context.archive.store import TranscriptArchive\n"
    "archive = TranscriptArchive(sys.argv[2])\n"
    "started = time.perf_counter()\n"
    "result = archive.archive(sys.argv[1], 's', trigger='auto')\n"
    "took = time.perf_counter() - started\n"
    "if os.path.exists('/proc/self/status'):\n"  # ru_maxrss of a child begins with its parent's there
    "    lines = open('/proc/self/status').read().splitlines()\n"
    "    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith('VmHWM'))\n"
    "else:\n"
    "    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "print(result.bytes, took, peak)\n"
)


def steps_of(total: int) -> list[bytes]:
    """Return the bytes that each step adds: JSON lines around chunks of source text."""
    chance = random.Random(0)
    sources = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "**", "*.py"), recursive=True))
    chance.shuffle(sources)
    text = ""
    for path in sources:
        with open(path, encoding="utf-8", errors="replace") as file:
            text += file.read()
        if len(text) > total:
            break
    steps, place = [], 0
    for _ in range(STEPS):
        rows, size = [], 0
        while size < total // STEPS:
            length = int(chance.lognormvariate(7, 1.2))
            chunk = text[place : place + length]
            place = (place + length) % max(1, len(text) - 100_000)
            row = {
                "parentUuid": f"{chance.getrandbits(128):032x}",
                "type": chance.choice(["user", "assistant"]),
                "message": {"role": "user", "content": [{"type": "text", "text": chunk}]},
                "uuid": f"{chance.getrandbits(128):032x}",
                "timestamp": f"2026-01-01T00:00:00.{chance.randrange(1000):03d}Z",
            }
            rows.append(json.dumps(row).encode() + b"\n")
            size += len(rows[-1])
        steps.append(b"".join(rows))
    return steps


def by_archive(base: str, transcript: str) -> object:
    archive = TranscriptArchive(os.path.join(base, "archives"))
    return lambda _step: archive.archive(transcript, "s", trigger="auto")


def by_copy(base: str, transcript: str) -> object:
    os.mkdir(os.path.join(base, "copies"))

    def copy(step: int) -> None:
        target = os.path.join(base, "copies", f"{step:02d}.jsonl")
        shutil.copy2(transcript, target)
        fd = os.open(target, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    return copy


def run(way, base: str, steps: list[bytes]) -> list[float]:
    """Grow a transcript and archive it after each step; returns the seconds of each archive."""
    shutil.rmtree(base, ignore_errors=True)
    os.mkdir(base)
    transcript = os.path.join(base, "s.jsonl")
    act = way(base, transcript)
    os.sync()
    times = []
    for number, data in enumerate(steps):
        with open(transcript, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        started = time.perf_counter()
        act(number)
        times.append(time.perf_counter() - started)
    return times


def stored(directory: str) -> int:
    return sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory))


def twenty_archives(base: str, steps: list[bytes], runs: int, report) -> None:
    total = sum(map(len, steps))
    times = {by_archive: [], by_copy: []}
    order = [way for way in times for _ in range(runs)]
    random.Random(1).shuffle(order)
    for way in order:
        times[way].append(run(way, os.path.join(base, way.__name__), steps))
    sums = {way: statistics.median(map(sum, each)) for way, each in times.items()}
    last = {way: statistics.median(each[-1] for each in each_way) for way, each_way in times.items()}
    directory = os.path.join(base, "by_archive", "archives")
    pieces = [os.path.getsize(os.path.join(directory, name)) for name in sorted(os.listdir(directory))]
    report("20 archives, total", "{:.0f} ms", sums[by_archive] * 1e3)
    report("20 x copy2 + fsync, total", "{:.0f} ms", sums[by_copy] * 1e3)
    ratio = sums[by_archive] / sums[by_copy]
    report("total against copy2", "{:.2f} x", ratio, "at most 1.25 x", ratio <= 1.25)
    report("last step, archive", "{:.1f} ms", last[by_archive] * 1e3)
    below = last[by_archive] < last[by_copy]
    report("last step, copy2", "{:.1f} ms", last[by_copy] * 1e3, "archive below copy2", below)
    used = stored(directory) / total
    report("stored bytes", "{:.4f} x the transcript", used, "at most 1.01 x", used <= 1.01)
    copied = stored(os.path.join(base, "by_copy", "copies")) / total
    report("stored bytes, copies", "{:.2f} x the transcript", copied)
    most = max(pieces[1:]) / max(map(len, steps))
    report("largest piece", "{:.3f} x the largest step", most, "what is new", most <= 1.001)

    archive = TranscriptArchive(directory, compress="zstd")
    rates = []
    transcript = os.path.join(base, "by_archive", "s.jsonl")
    for _ in range(runs):
        with Source(transcript) as source, archive.view("s") as files:
            started = time.perf_counter()
            for piece in archive.pieces("s"):
                reader = files.open(piece.name)
                assert source.same_as(reader, piece.offset, piece.length)
                reader.close()
            rates.append(total / (time.perf_counter() - started) / 1e9)
    rate = statistics.median(rates)
    report("prefix comparison", "{:.1f} GB/s", rate, "at least 3 GB/s", rate >= 3)
    started = time.perf_counter()
    archive.pack()
    report("packing all of it", "{:.1f} s", time.perf_counter() - started)
    packed = stored(directory) / total
    report("stored bytes, packed", "{:.3f} x the transcript", packed, "at most 0.3 x", packed <= 0.3)


def large(base: str, steps: list[bytes], size: int, runs: int, report) -> None:
    """Archive one large transcript in a process of its own, and look at its time and memory."""
    transcript = os.path.join(base, "large.jsonl")
    with open(transcript, "wb") as file:
        written = 0
        while written < size:
            for data in steps:
                written += file.write(data)
        os.fsync(file.fileno())
    times, peaks = [], []
    for number in range(runs):
        target = os.path.join(base, f"large{number}")
        os.sync()
        command = [sys.executable, "-c", PEAK, transcript, target]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(out[0]) == written
        times.append(float(out[1]))
        again = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        peaks += [int(out[2]), int(again[2])]
        shutil.rmtree(target)
    took, peak = max(times), max(peaks)
    report(f"{written / 1e9:.2f} GB at once, slowest of {runs}", "{:.2f} s", took, "within 10 s", took < 10)
    report("peak memory of that process", "{:.1f} MB", peak / 2**20, "under 32 MB", peak < 32 * 2**20)


def measure(quick: bool, runs: int, directory: str | None, report) -> None:
    """Give every figure to `report`."""
    base = tempfile.mkdtemp(prefix="archive-benchmark-", dir=directory)
    try:
        steps = steps_of(10 * MB if quick else 100 * MB)
        twenty_archives(base, steps, runs, report)
        large(base, steps, (200 if quick else 2_000) * MB, 1 if quick else 3, report)
    finally:
        shutil.rmtree(base, ignore_errors=True)


NAMES = {
    "total against copy2": ("archive.total", 1.25),
    "stored bytes": ("archive.stored", 1.01),
    "largest piece": ("archive.largest_piece", 1.001),
    "stored bytes, packed": ("archive.packed", 0.3),
    "peak memory of that process": ("archive.peak", 32.0),
}
"""What it is called among the claims, and the most that it may be."""


def figures(quick: bool) -> list[Figure]:
    """Return what `main` prints, for `all.py`; what a quick run says of time is not held against its target."""
    found = []

    def report(what: str, form: str, value: float, target: str = "", met: bool = True) -> None:
        name, bound = NAMES.get(what, (f"archive: {what}", None))
        timed = name == "archive.total"
        unit = form.partition("} ")[2]
        found.append(Figure(name, value, unit, beside=target, bound=None if quick and timed else bound))

    measure(quick, 3 if quick else 7, None, report)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=None, help="runs of each way (7)")
    parser.add_argument("--directory", default=None, help="where to work; default: the temporary directory")
    args = parser.parse_args()
    runs = args.runs or (3 if args.quick else 7)
    missed = []

    def report(what: str, form: str, value: float, target: str = "", met: bool = True) -> None:
        if not met:
            missed.append(what)
        print(f"{what:34} {form.format(value):>28}   {target}{'' if met else '   MISSED'}".rstrip(), flush=True)

    size = "10.0" if args.quick else "100.0"
    print(f"{size} MB in {STEPS} steps, medians of {runs}, shuffled, fsync on")
    measure(args.quick, runs, args.directory, report)
    return 0 if args.quick else bool(missed)


if __name__ == "__main__":
    sys.exit(main())
