"""A clock that jumps back and ahead, within a process and between two. See `clock`."""

from __future__ import annotations

import glob
import os
import subprocess
import sys

import pytest

CLOCK = os.path.join(os.path.dirname(__file__), "clock.py")


@pytest.mark.system
@pytest.mark.timeout(120)
def test_pieces_keep_their_order_whatever_the_clock_does(tmp_path):
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    assert found, "libfaketime is needed: apt-get install faketime"
    env = {
        **os.environ,
        "TZ": "UTC",
        "LD_PRELOAD": found[0],
        "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "NO_FAKE_STAT": "1",
        "FAKE_UTIME": "0",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    (tmp_path / "d").mkdir()
    done = subprocess.run([sys.executable, CLOCK, tmp_path / "d"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "jumps=12 steps=30"
