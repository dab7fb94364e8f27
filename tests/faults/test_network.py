"""A network file system that answers with errors for what it did; nothing is lost or written twice. See `network`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

HERE = os.path.dirname(__file__)
LEAST = {"first": 30, "next": 35, "pack": 45, "outcome": 8, "side": 25, "prune": 25}
LEAST |= {"rebuild": 40, "restore": 50, "claim": 50, "hook": 15}
"""How many faults each operation knows at least; fewer would mean that none was met."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The library of `network.c`, built."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: apt-get install gcc libc6-dev"
    library = tmp_path_factory.mktemp("shim") / "network.so"
    words = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, f"{HERE}/network.c"]
    subprocess.run([*words, "-ldl"], check=True)
    return library


def run(program, shim, *words):
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, program), *map(str, words)],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize("operation", LEAST)
def test_nothing_is_lost_whatever_a_network_says(operation, shim, tmp_path):
    said = run("network.py", shim, tmp_path, operation)
    faults, failed, wait = re.fullmatch(r"faults=(\d+) failed=(\d+) wait=([\d.]+)", said).groups()
    assert int(faults) >= LEAST[operation]
    assert int(failed) < int(faults) / 2, "what took effect is called a failure"
    assert (float(wait) > 0) == (operation == "hook")


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "operation", ["first", "next", "pack", "outcome", "side", "prune", "rebuild", "restore", "upload", "hook"]
)
def test_nothing_is_lost_on_a_disk_that_is_full_or_read_only(operation, shim, tmp_path):
    said = run("disk.py", shim, tmp_path, operation)
    tries, failed, wait = re.fullmatch(r"tries=(\d+) failed=(\d+) wait=([\d.]+) disk=(?:real|limited)", said).groups()
    assert int(tries) == 10
    assert int(failed) >= (operation not in {"hook", "rebuild"}), "the disk was neither full nor read-only"
    assert 0 < float(wait) < 9.5
