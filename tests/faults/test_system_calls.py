"""Every call into the system fails in turn; nothing that was committed is lost. See `breaker`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

BREAKER = os.path.join(os.path.dirname(__file__), "breaker.py")
LEAST = {"first": 60, "next": 80, "pack": 100, "outcome": 20, "side": 50, "prune": 60, "rebuild": 90, "restore": 30}
LEAST |= {"upload": 60, "hook": 40}
"""How many faults each operation knows at least; fewer would mean that strace broke nothing."""


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize("operation", LEAST)
def test_nothing_is_lost_whatever_fails(operation, tmp_path):
    done = subprocess.run([sys.executable, BREAKER, tmp_path, operation], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    faults, wait = re.fullmatch(r"faults=(\d+) wait=([\d.]+)", done.stdout.splitlines()[-1]).groups()
    assert int(faults) >= LEAST[operation]
    assert (float(wait) > 0) == (operation == "hook")
