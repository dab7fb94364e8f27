"""Every figure that README and docs claim, measured again and side by side with what it is compared to.

    python tests/benchmarks/all.py [--only NAME …] [--quick] [--json] [--recordings FOLDER] [--ccusage BINARY]

One line a figure: its name, the median (least to most), what it is compared to, and what a page claims, with the share
by which a run may be worse. Ends with status 1 where a claim, or a bound that a benchmark has set itself, no longer
holds. `--quick` takes smaller inputs and fewer rounds; what it says is a hint. Each group is a script of its own, which
prints the same figures at more length.

`--recordings` names the transcripts of the claims on errors, `--ccusage` the native binary of ccusage 20.0.24; without
them those claims are listed as not measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import claims

HERE = Path(__file__).parent
GROUPS = (
    "replay",
    "overhead",
    "tracker",
    "guard",
    "telemetry",
    "hooks",
    "archive",
    "report",
    "watch",
    "fleet",
    "size",
    "audit",
)
"""In this order: the most memory of a process that `replay` starts is known only while this one is small."""


def measure(group: str, options: argparse.Namespace) -> Callable[[], Iterable[claims.Figure]] | None:
    """Return what measures a group; `None` where it needs what was not named."""
    sys.path.insert(0, str(HERE))  # some put the tests before it, which have a `fleet` too
    if group == "audit":
        if options.recordings is None:
            return None
        return partial(importlib.import_module(group).figures, options.recordings)
    more = {"ccusage": options.ccusage} if group == "replay" else {}
    return partial(importlib.import_module(group).figures, options.quick, **more)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return 1 where something no longer holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=GROUPS, default=GROUPS, help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one array of objects")
    parser.add_argument("--recordings", metavar="FOLDER", help="transcripts to audit")
    parser.add_argument("--ccusage", metavar="BINARY", help="ccusage to compare replay with")
    options = parser.parse_args(arguments)
    for option in ("recordings", "ccusage"):
        named = getattr(options, option)
        if named is not None and not os.path.exists(named):
            parser.error(f"--{option}: {named} is not there")
    found: list[dict[str, object]] = []
    for place, group in enumerate(options.only, 1):
        if sys.stderr.isatty():
            print(f"{place} of {len(options.only)}: {group} …", file=sys.stderr)
        work = measure(group, options)
        begun = time.perf_counter()
        rows = claims.rows(work()) if work is not None else []
        found += rows
        if not options.json:
            note = f"{time.perf_counter() - begun:.0f} s" if work is not None else "not measured: name --recordings"
            print(f"\n{group} ({note})", *map(claims.line, rows), sep="\n", flush=True)
    failed = [row for row in found if not row["holds"]]
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        claimed = sum(row["claimed"] is not None for row in found)
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores:
            print(f"\nOther work is here: a load of {load:.1f} on {cores} cores. Times on the clock are longer for it.")
        print(f"\n{len(found)} figures, {claimed} of them claimed; {len(failed)} no longer hold")
    return bool(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
