"""What a fleet costs: events a second, lag, memory, disk, uploads, kills; and Dask's workers.

    python tests/benchmarks/fleet.py [PART …] [--sessions N] [--rounds N] [--kills N] [--megabytes N …]

Parts: `events`, `memory`, `run`, `paced`, `kills`, `dask`; all of them by default. Sessions play the recordings of the
test suite, each under an id of its own. CPU seconds are of one thread, so that a busy machine hurts less; beside them
stands what `json.loads` takes for the same rows in the same rounds, and the ratio. Medians, with least and most.
"""

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc

import fleet_dask
import fleet_simulation as simulation
from claims import of
from fleet_simulation import Fleet

from mala_context.tracking.readers import read_row
from mala_context.tracking.registry import LIVE
from mala_context.tracking.tracker import ContextTracker

PAGE = resource.getpagesize()


def spread(values, form="{:,.0f}"):
    """Median (least to most)."""
    least, middle, most = (form.format(each) for each in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({least} to {most})"


def cpu(work):
    """CPU seconds of this thread for a piece of work."""
    gc.collect()
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def sources(sessions):
    """One recording's rows, as decoded JSON text, for each session, and the events of each."""
    found = simulation.recorded()
    read = [[event for line in source.lines for event in read_row(json.loads(line))] for source in found]
    return [found[place % len(found)].lines for place in range(sessions)], [
        read[place % len(read)] for place in range(sessions)
    ]


def in_turn(trackers, events):
    """Give every tracker its next event, in turn, until all have theirs."""
    moved = 0
    for place in range(max(map(len, events))):
        for tracker, own in zip(trackers, events, strict=True):
            if place < len(own):
                moved += tracker.apply(own[place]) is not None
    return moved


def event_rates(options):
    """Rows and events of all sessions; a second of one core: events applied, rows by `json.loads`, rows followed."""
    lines, events = sources(options.sessions)
    rows, count = sum(map(len, lines)), sum(map(len, events))
    flat = [line for own in lines[:30] for line in own]
    applied, plain, whole = [], [], []
    for _ in range(options.rounds):
        trackers = [ContextTracker(remembers=LIVE) for _ in range(options.sessions)]
        applied.append(count / cpu(lambda trackers=trackers: in_turn(trackers, events)))
        del trackers
        plain.append(len(flat) / cpu(lambda: [json.loads(line) for line in flat]))
        tracker = ContextTracker(remembers=LIVE)

        def follow(tracker=tracker):
            for line in flat:
                for event in read_row(json.loads(line)):
                    tracker.apply(event)

        whole.append(len(flat) / cpu(follow))
    return rows, count, applied, plain, whole


def take_events(options):
    """Events a second that trackers take, of `sessions` sessions in turn, on one core."""
    rows, count, applied, plain, whole = event_rates(options)
    print(f"events: {options.sessions:,} trackers in turn, {rows:,} rows, {count:,} events")
    print(f"  events applied, with a snapshot where a number moved: {spread(applied)} a second of one core")
    print(f"  rows decoded, read and applied: {spread(whole)} a second of one core")
    print(f"  json.loads of the same rows alone: {spread(plain)} a second")
    print(
        f"  applied for each row that json.loads decodes: {statistics.median(applied) / statistics.median(plain):.2f}"
    )


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def follow_all(sessions):
    """Trackers of so many sessions, each with rows of its own."""
    found = simulation.recorded()
    trackers = []
    for place in range(sessions):
        tracker, source = ContextTracker(remembers=LIVE), found[place % len(found)]
        for line in source.under(f"{place:08d}-0000-4000-8000-000000000000"):
            for event in read_row(json.loads(line)):
                tracker.apply(event)
        trackers.append(tracker)
    return trackers


def memories(options):
    """KiB of a tracked session: as Python allocates it, and as the system sees it; with the number of sessions."""
    code = "import fleet, sys; fleet.print_memory(int(sys.argv[1]), sys.argv[2])"
    for way, sessions in (("tracemalloc", min(100, options.sessions)), ("resident", options.sessions)):
        values = []
        for _ in range(min(3, options.rounds)):
            run = [sys.executable, "-c", code, str(sessions), way]
            out = subprocess.run(run, check=True, capture_output=True, text=True, cwd=os.path.dirname(__file__)).stdout
            values.append(float(out) / 1024)
        yield way, sessions, values


def take_memory(options):
    """Memory of a tracked session."""
    print(f"memory of a tracked session, of {options.sessions:,}:")
    for way, sessions, values in memories(options):
        print(f"  {way}: {spread(values, '{:.1f}')} KiB, of {sessions:,} sessions")


def print_memory(sessions, way):
    """Print the bytes that a session takes, in a process of its own."""
    follow_all(3)  # what is made once, for all
    gc.collect()
    if way == "tracemalloc":
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] if way == "tracemalloc" else resident()
    trackers = follow_all(sessions)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if way == "tracemalloc" else resident()
    print((after - before) / len(trackers))


def figures(quick):
    """What the parts `events` and `memory` print, for `all.py`."""
    options = argparse.Namespace(sessions=100 if quick else 1_000, rounds=3 if quick else 5)
    _, _, applied, plain, whole = event_rates(options)
    beside = f"json.loads: {statistics.median(plain):,.0f} rows"
    yield of("fleet.events", applied, "a second", beside=beside, more_is_better=True)
    yield of("fleet.rows", whole, "a second", beside=beside, more_is_better=True)
    names = {"tracemalloc": "fleet.allocated", "resident": "fleet.resident"}
    for way, sessions, values in memories(options):
        yield of(names[way], values, "KiB", beside=f"{sessions:,} sessions")


def tree(path):
    """Bytes and number of the files below a path."""
    sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names]
    return sum(sizes), len(sizes)


def take_run(options):
    """Play every session as fast as it goes, with archives and uploads."""
    print(f"run: {options.sessions:,} sessions as fast as they go, each archived before its compaction and at its end")
    speeds, cores = [], []
    for _ in range(min(3, options.rounds)):
        with tempfile.TemporaryDirectory() as directory:
            begun, used = time.perf_counter(), time.process_time()
            with Fleet(directory, options.sessions) as fleet:
                _, events = fleet.run()
                played = time.perf_counter() - begun
            took, used = time.perf_counter() - begun, time.process_time() - used
            speeds.append(events / played)
            cores.append(used / took)
            simulation.check_end(directory)
            kept = {name: tree(os.path.join(directory, name)) for name in ("projects", "archives", "store")}
            waits = sorted(fleet.waits)
    print(f"  events: {spread(speeds)} a second of wall clock, archives and uploads beside them")
    print(f"  cores used: {spread(cores, '{:.2f}')}; uploads ended {took - played:.1f} s after the last row")
    print(f"  an archive's wait then: median {statistics.median(waits):.2f} s, most {waits[-1]:.2f}, n {len(waits):,}")
    for name, (size, files) in kept.items():
        print(f"  {name}: {size:,} bytes in {files:,} files, {size / options.sessions:,.0f} a session")
    print(f"  uploaded: {fleet.uploaded_bytes:,} bytes in {fleet.uploaded_files:,} files")


def take_paced(options):
    """Play every session at the pace of agents, and see how late rows are taken."""
    for rate in (0.2, 2.0):
        with tempfile.TemporaryDirectory() as directory, Fleet(directory, options.sessions) as fleet:
            fleet.begin_anywhere()
            used = time.process_time()
            late = sorted(fleet.run_paced(rate * options.sessions, options.seconds))
            used = (time.process_time() - used) / options.seconds
        waits = sorted(fleet.waits) or [0.0]
        p50, p99 = (1e3 * late[int(share * len(late))] for share in (0.5, 0.99))
        print(
            f"paced: {options.sessions:,} sessions at {rate:g} rows a second for {options.seconds:g} s: late by "
            f"{p50:.2f} ms (median), {p99:.1f} (p99), {1e3 * late[-1]:.0f} (most); {used:.2f} cores; "
            f"{len(fleet.waits):,} archives waited {statistics.median(waits):.3f} s (median), {waits[-1]:.2f} (most)"
        )


def take_kills(options):
    """Kill fleets at random moments."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        checked = simulation.kill(directory, options.kills, seed=options.kills)
    took = time.perf_counter() - begun
    print(f"kills: {options.kills}, acknowledged archives looked at {checked:,}, lost 0, in {took:.0f} s")


def take_dask(options):
    """Replay and audit by one worker and by two."""
    fleet_dask.table(options.megabytes, min(3, options.rounds))


PARTS = {
    "events": take_events,
    "memory": take_memory,
    "run": take_run,
    "paced": take_paced,
    "kills": take_kills,
    "dask": take_dask,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=", ".join(PARTS))
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the paced part")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1000.0], help="of Dask's corpora")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
