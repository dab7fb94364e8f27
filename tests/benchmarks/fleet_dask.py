"""Replay and audit on a Dask cluster of this machine, one worker against two, over corpora of several sizes.

    python tests/benchmarks/fleet_dask.py [MEGABYTES …] [--rounds N]

Whole processes, warm page cache, one round after the other so that a busy machine hurts all alike. The local engine
with one process and with two stands beside them. The last column is what matters: two workers against one.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import corpus

WAYS = {
    "dask, 1 worker": ("--engine", "dask", "--jobs", "1"),
    "dask, 2 workers": ("--engine", "dask", "--jobs", "2"),
    "local, 1 process": ("--jobs", "1"),
    "local, 2 processes": ("--jobs", "2"),
}
COMMANDS = {"replay": ("replay", "--totals"), "audit": ("audit", "--json", "--worst", "0")}


def once(command, way, folder):
    """Seconds of one whole process, and what it printed."""
    arguments = [sys.executable, "-m", "mala_context.cli", *COMMANDS[command], *WAYS[way], folder]
    begun = time.perf_counter()
    out = subprocess.run(arguments, capture_output=True, check=True, env={**os.environ, "TERM": "dumb"}).stdout
    return time.perf_counter() - begun, out


def measure(command, folder, rounds):
    """Way → seconds of each round; ends the program where two ways print different things."""
    seconds = {way: [] for way in WAYS}
    printed = set()
    for number in range(rounds + 1):  # the first warms the page cache
        for way in WAYS:
            took, out = once(command, way, folder)
            printed.add(out)
            if number:
                seconds[way].append(took)
    if len(printed) != 1:
        sys.exit(f"{command}: the engines print different things")
    return seconds


def table(sizes, rounds):
    """Print a line for each size and command."""
    print(f"{'':14}" + "".join(f"{way:>26}" for way in WAYS) + f"{'1 / 2 workers':>16}")
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            corpus.write(folder, megabytes, seed=5)
            for command in COMMANDS:
                seconds = measure(command, folder, rounds)
                cells = (f"{statistics.median(s):6.2f} ({min(s):.2f} to {max(s):.2f})" for s in seconds.values())
                one, two = (statistics.median(seconds[way]) for way in ("dask, 1 worker", "dask, 2 workers"))
                line = f"{megabytes:5.0f} MB {command:6}" + "".join(f"{cell:>26}" for cell in cells)
                print(f"{line}{one / two:>15.2f}x", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megabytes", nargs="*", type=float, default=[30.0, 100.0, 300.0, 1000.0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    table(options.megabytes, options.rounds)
