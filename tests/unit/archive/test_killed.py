"""Killed at any instruction: what was committed stays, what was half-written goes. See `archive_killer`."""

import os
import re
import subprocess
import sys

import pytest

KILLER = os.path.join(os.path.dirname(__file__), "..", "..", "helpers", "archive_killer.py")


def kill(*args):
    done = subprocess.run([sys.executable, KILLER, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    kills, checked = map(int, re.fullmatch(r"kills=(\d+) checked=(\d+)", done.stdout.splitlines()[-1]).groups())
    return kills, checked


@pytest.mark.long
def test_killed_before_each_call_into_the_system(tmp_path):
    kills, _ = kill(tmp_path / "k", "steps")
    assert kills > 60


@pytest.mark.long
def test_killed_at_thirty_random_moments(tmp_path):
    kills, checked = kill(tmp_path / "k", "random", 30, 1)
    assert kills == 30
    assert checked > 30


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_at_three_hundred_random_moments(tmp_path):
    kills, checked = kill(tmp_path / "k", "random", 300, 2)
    assert kills == 300
    assert checked > 300
