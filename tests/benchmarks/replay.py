"""Replay, compiled part and all, against other readers: ccusage's native binary, jq, and plain `json`.

    python tests/benchmarks/replay.py [--corpus FOLDER | --megabytes N] [--ccusage BINARY] [--rounds N]
    python tests/benchmarks/replay.py --ccusage BINARY --shapes [--recordings FOLDER ...] [--megabytes N]

Whole processes, warm page cache, one round after the other so that a busy machine hurts all alike; medians of wall
clock and of CPU time with their spread, and the ratio of the medians. Without `--corpus` one is generated in a
temporary folder. ccusage: `npm install ccusage@20.0.24`, then name its `bin/ccusage` in the platform's package.
It ends with status 1 where the totals of all tokens differ from ccusage's.

With `--shapes` there is one corpus for each shape of transcript (see `shapes`), and one for each folder of recordings,
which may be packed by gzip. Each is read with `--totals`, as ccusage does, and with `--format json`, which estimates
too.
The ratio is ccusage's processor time by ours, on one core and on two.
"""

import argparse
import gzip
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
import shapes
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


def agree(folder, ccusage, show=print):
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
        show(f"{ours_name:24}{ours[ours_name]:>16,}{theirs[their_name]:>16,}")
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


def unpacked(recordings, folder):
    """Put recordings where ccusage looks for them; return their folder."""
    projects = os.path.join(folder, "projects", "recordings")
    os.makedirs(projects)
    for name in sorted(os.listdir(recordings)):
        path = os.path.join(recordings, name)
        if name.endswith((".jsonl", ".jsonl.gz")):
            opened = gzip.open if name.endswith(".gz") else open
            with opened(path, "rb") as file, open(os.path.join(projects, name.removesuffix(".gz")), "wb") as copy:
                shutil.copyfileobj(file, copy)
    return folder


def ratios(folder, ccusage, rounds):
    """Name → ccusage's processor time by ours in each round: totals and JSON on one core, totals on two."""
    found = {"totals": [], "json": [], "totals, two": [], "memory": []}
    ours = [sys.executable, "-m", "mala_context.cli", "replay", folder]
    one = ["taskset", "-c", "0"] if shutil.which("taskset") else []
    cached, configured = {"PYTHONDONTWRITEBYTECODE": ""}, {"CLAUDE_CONFIG_DIR": folder}
    theirs = [ccusage, "session", "--json", "--offline"]
    for number in range(rounds + 1):  # the first warms the page cache
        runs = {
            "theirs": measure([*one, *theirs], configured),
            "totals": measure([*one, *ours, "--totals", "--jobs", "1"], cached),
            "json": measure([*one, *ours, "--format", "json", "--jobs", "1"], cached),
            "theirs, two": measure(theirs, configured),
            "totals, two": measure([*ours, "--totals", "--jobs", "2"], cached),
        }
        if number:
            for name in ("totals", "json"):
                found[name].append(runs["theirs"][1] / runs[name][1])
            found["totals, two"].append(runs["theirs, two"][0] / runs["totals, two"][0])
            found["memory"].append(runs["theirs"][2] / runs["totals"][2])
    return found


def shape_rows(ccusage, rounds, megabytes, recordings=()):
    """Yield the name of each corpus, its ratios, and whether the totals agree; `None` where ccusage finds no row."""
    for name in (*shapes.SHAPES, "mixture", *recordings):
        with tempfile.TemporaryDirectory() as folder:
            if name in recordings:
                unpacked(name, folder)
            else:
                generate = [sys.executable, shapes.__file__, folder, name, str(megabytes)]
                subprocess.run(generate, check=True, capture_output=True)
            same = None if name == shapes.UNREAD else agree(folder, ccusage, lambda _: None)
            yield name, ratios(folder, ccusage, rounds), same


def table(ccusage, rounds, megabytes, recordings):
    """Print the ratios of every shape; return whether all totals agree."""
    print(f"{'ccusage / replay':28}{'totals':>8}{'min-max':>12}{'json':>8}{'two cores':>11}{'memory':>8}  totals agree")
    fine = True
    for name, found, same in shape_rows(ccusage, rounds, megabytes, recordings):
        middle = {each: statistics.median(values) for each, values in found.items()}
        said = {True: "yes", False: "NO", None: "ccusage finds no row"}[same]
        spread = f"{min(found['totals']):.2f}-{max(found['totals']):.2f}"
        columns = f"{middle['totals']:8.2f}{spread:>12}{middle['json']:8.2f}"
        print(f"{name:28}{columns}{middle['totals, two']:11.2f}{middle['memory']:8.1f}  {said}", flush=True)
        fine = fine and same is not False
    return fine


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
    if ccusage:
        worst = min(
            (
                found["totals"]
                for name, found, same in shape_rows(ccusage, 1 if quick else 3, 60 if quick else 200)
                if same
            ),
            key=statistics.median,
        )
        yield of(
            "replay.worst_shape", worst, "x", beside="ccusage / replay --totals, processor time", more_is_better=True
        )
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shapes", action="store_true", help="one corpus a shape")
    parser.add_argument("--recordings", action="append", default=[], metavar="FOLDER", help="with --shapes: these too")
    options = parser.parse_args()
    if options.shapes or options.recordings:
        if not options.ccusage:
            parser.error("--shapes is beside --ccusage")
        if not table(options.ccusage, options.rounds, options.megabytes, options.recordings):
            sys.exit("the totals differ")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.corpus or temporary
        if not options.corpus:
            print(generated(folder, options.megabytes))
        show(results_of(folder, options.ccusage, options.rounds))
        if options.ccusage and not agree(folder, options.ccusage):
            sys.exit("the totals differ")


if __name__ == "__main__":
    main()
