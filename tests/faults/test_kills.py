"""Killed at random moments of every operation; what was committed stays, and the next run mends. See `kills`."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def kill(count, *words):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", "--kills", str(count), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last = r"kills=(\d+) committed=(\d+) lost=(\d+) mended=(\d+) wait=([\d.]+)"
    kills, committed, lost, _, wait = re.fullmatch(last, done.stdout.splitlines()[-1]).groups()
    assert (int(kills), int(lost)) == (count, 0)
    assert int(committed) > 0
    assert float(wait) < 9.5
    return done.stdout


def test_killed_while_archiving():
    assert kill(3, "--only", "archive", "--seed", "7").startswith("archive: 3 kills, ")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_at_sixty_random_moments_of_all_operations():
    said = kill(60)
    assert len(re.findall(r"^[a-z -]+: 6 kills, \d+ committed pieces, 0 bytes lost", said, re.MULTILINE)) == 10
