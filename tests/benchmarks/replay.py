"""Replay, compiled part and all, against other readers: ccusage's native binary, jq, and plain `json`.

    python tests/benchmarks/replay.py [--corpus FOLDER | --megabytes N] [--ccusage BINARY] [--rounds N]

Whole processes, warm page cache, one round after the other so that a busy machine hurts all alike; medians of wall
clock and of CPU time with their spread, and the ratio of the medians. Without `--corpus` one is generated in a
temporary folder. ccusage: `npm install ccusage@20.0.24`, then name its `bin/ccusage` in the platform's package.
It ends with status 1 where the totals of all tokens differ from ccusage's.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import corpus
from claims import Figure, of

PLAIN = """
import glob, json, sys
best = {}
for path in glob.glob(sys.argv[1] + '/**/*.jsonl', recursive=True):
    for line in open(path, 'rb'):
        row = json.loads(line)
        message = row.get('message')
        if isinstance(message, dict) and 'usage' in message:
            best[message['id']] = message['usage']
print(len(best))
"""
JQ = "select(.message.usage?) | .message.usage.output_tokens"


def commands(folder, ccusage):
    """Name → (arguments, environment, cores)."""
    one = ["taskset", "-c", "0"] if shutil.which("taskset") else []
    ours = [sys.executable, "-m", "mala_context.cli", "replay", "--format", "json", folder]
    cached = {"PYTHONDONTWRITEBYTECODE": ""}  # what pip installs is compiled to bytecode, and so is this after one run
    found = {
        "replay --jobs 1": ([*one, *ours, "--jobs", "1"], cached, 1),
        "replay --jobs 2": ([*ours, "--jobs", "2"], cached, 2),
        "plain json": ([*one, sys.executable, "-c", PLAIN, folder], {}, 1),
    }
    if ccusage:
        theirs = [ccusage, "session", "--json", "--offline"]
        found["ccusage, one core"] = ([*one, *theirs], {"CLAUDE_CONFIG_DIR": folder}, 1)
        found["ccusage"] = (theirs, {"CLAUDE_CONFIG_DIR": folder}, 2)
    if shutil.which("jq"):
        files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
        found["jq"] = ([*one, "jq", "-c", JQ, *files], {}, 1)
    return found


def measure(arguments, environment):
    """Wall clock, CPU seconds and peak memory in MB of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, env=os.environ | environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{arguments[:3]} failed with {status}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def agree(folder, ccusage):
    """Compare the totals; returns whether they agree."""
    ours = json.loads(subprocess.check_output([sys.executable, "-m", "mala_context.cli", "replay", "--totals", folder]))
    environment = os.environ | {"CLAUDE_CONFIG_DIR": folder}
    theirs = json.loads(subprocess.check_output([ccusage, "session", "--json", "--offline"], env=environment))["totals"]
    names = {
        "input_tokens": "inputTokens",
        "cache_creation_tokens": "cacheCreationTokens",
        "cache_read_tokens": "cacheReadTokens",
        "output_tokens": "outputTokens",
    }
    for ours_name, their_name in names.items():
        print(f"{ours_name:24}{ours[ours_name]:>16,}{theirs[their_name]:>16,}")
    return all(ours[one] == theirs[other] for one, other in names.items())


def show(results):
    """Print medians and spreads, and ratios to ccusage."""
    print(f"\n{'':20}{'wall s':>8}{'min-max':>14}{'CPU s':>8}{'MB':>6}")
    middle = {}
    for name, runs in results.items():
        walls, cpus, memory = zip(*runs, strict=True)
        middle[name] = (statistics.median(walls), statistics.median(cpus), max(memory))
        spread = f"{min(walls):.2f}-{max(walls):.2f}"
        print(f"{name:20}{middle[name][0]:8.2f}{spread:>14}{middle[name][1]:8.2f}{middle[name][2]:6.0f}")
    print()
    for ours, other in (
        ("replay --jobs 1", "ccusage, one core"),
        ("replay --jobs 2", "ccusage"),
        ("replay --jobs 1", "jq"),
        ("replay --jobs 1", "plain json"),
    ):
        if other in middle:
            wall, cpu, memory = (b / a for a, b in zip(middle[ours], middle[other], strict=True))
            print(f"{other} / {ours}: wall {wall:.2f}, CPU {cpu:.2f}, memory {memory:.1f}")


def results_of(folder, ccusage, rounds):
    """Name → what each round of it took."""
    runs = commands(folder, ccusage)
    results = {name: [] for name in runs}
    for arguments, environment, _ in runs.values():
        measure(arguments, environment)  # warms the page cache
    for _ in range(rounds):
        for name, (arguments, environment, _) in runs.items():
            results[name].append(measure(arguments, environment))
    return results


def generated(folder, megabytes):
    """Write a corpus in a process of its own, for a child's most memory begins with its parent's; return its words."""
    generate = [sys.executable, corpus.__file__, folder, str(megabytes)]
    return subprocess.run(generate, check=True, capture_output=True, text=True).stdout.strip()


def figures(quick, ccusage=None):
    """What `main` prints, for `all.py`: the rate, and what others take of the same corpus."""
    with tempfile.TemporaryDirectory() as folder:
        written = generated(folder, 200 if quick else 500)
        megabytes = int(written.split()[0].replace(",", "")) / 1e6
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        results = results_of(folder, ccusage, 3 if quick else 5)
    ours = [megabytes / seconds for _, seconds, _ in results["replay --jobs 1"]]
    yield of(
        "replay.rate", ours, "MB/s", beside=f"{megabytes:.0f} MB, processor time, whole process", more_is_better=True
    )
    peak = max(run[2] for run in results["replay --jobs 1"])
    if peak > own:  # a child's most memory begins with its parent's
        yield Figure("replay.peak", peak, "MiB")
    mine = {1: "replay --jobs 1", 2: "replay --jobs 2"}
    for name, cores in (("plain json", 1), ("jq", 1), ("ccusage, one core", 1), ("ccusage", 2)):
        if name in results:
            walls = [other[0] / own[0] for other, own in zip(results[name], results[mine[cores]], strict=True)]
            key = f"replay.against_{name.replace(', ', '_').replace(' ', '_')}"
            yield of(key, walls, "x", beside=f"{name} / replay --jobs {cores}, wall clock", more_is_better=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus")
    parser.add_argument("--megabytes", type=float, default=500)
    parser.add_argument("--ccusage")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.corpus or temporary
        if not options.corpus:
            print(generated(folder, options.megabytes))
        show(results_of(folder, options.ccusage, options.rounds))
        if options.ccusage and not agree(folder, options.ccusage):
            sys.exit("the totals differ")


if __name__ == "__main__":
    main()
