"""By how much the estimates are off on recordings: `python tests/benchmarks/audit.py FOLDER`.

What the pages say is of 93 public transcripts, which are not part of this repository; any folder of recordings can be
named. The figures are those of `mala-context audit FOLDER --json`, in percent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from claims import Figure
from folders import folders

ESTIMATES = (("context_command", "tokens"), ("pre_tokens", "cli_estimate"), ("next_prompt", "projected"))
VALUES = ("median", "p90", "p99")


def figures(folder: str) -> Iterator[Figure]:
    """Yield the errors of the three numbers, each against its own truth."""
    command = [sys.executable, "-m", "mala_context.cli", "audit", folder, "--json"]
    truths = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["truths"]
    for truth, name in ESTIMATES:
        found = truths.get(truth, {"n": 0})
        if not found["n"]:
            continue
        beside = f"{truth}, n = {found['n']:,}"
        if truth == "next_prompt":
            theirs = found["estimators"]["cli_estimate"]
            beside += "; chars/4: " + " / ".join(f"{100 * theirs[value]:.3g}" for value in VALUES)
        for value in VALUES:
            percent = round(100 * found["estimators"][name][value], 3)
            yield Figure(f"audit.{name}.{value}", percent, "%", beside=beside)


if __name__ == "__main__":
    for figure in figures(*folders(__doc__, 1, 1)[0]):
        print(f"{figure.name:28} {figure.value:7.3f} %  {figure.beside}")
