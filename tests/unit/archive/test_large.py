"""Sizes and processes: memory that does not grow, one line of 200 MB, several processes at once."""

import os
import subprocess
import sys

import pytest

from mala_context.archive.store import TranscriptArchive
from tests.helpers.archive_tools import cat, rows

LINE = 200_000_000

ARCHIVE = """
import resource, sys
from mala_context.archive.store import TranscriptArchive
archive = TranscriptArchive(sys.argv[1] + "/archives")
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    result = archive.archive(sys.argv[1] + "/s1.jsonl", "s1", trigger="auto", final=True)
    print(result.bytes, result.reason)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with open("/proc/self/status") as file:  # the other figure begins with the parent's on Linux
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
except FileNotFoundError:
    pass
print(peak)
"""


def start(directory, times):
    process = subprocess.Popen(
        [sys.executable, "-c", ARCHIVE, str(directory), str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process):
    out, _ = process.communicate("go\n", timeout=100)
    assert process.returncode == 0
    return out.splitlines()


def test_two_hundred_megabytes_on_one_line_take_no_memory(tmp_path):
    with open(tmp_path / "s1.jsonl", "wb") as file:
        file.truncate(LINE)
    first, second, peak = finish(start(tmp_path, 2))
    assert (first, second) == (f"{LINE} archived", "0 nothing new")
    assert int(peak) < 32 * 2**20
    (piece,) = TranscriptArchive(tmp_path / "archives").pieces("s1")
    os.unlink(tmp_path / "archives" / piece.name)


@pytest.mark.parametrize("writers", [2, 5])
def test_processes_at_the_same_moment_archive_each_byte_once(tmp_path, writers):
    (tmp_path / "s1.jsonl").write_bytes(rows(0, 3000))
    processes = [start(tmp_path, 1) for _ in range(writers)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    lines = [finish(process)[0].split(" ", 1) for process in processes]
    assert sum(int(count) for count, _ in lines) == len(rows(0, 3000))
    assert sorted(reason for _, reason in lines) == ["archived", *["nothing new"] * (writers - 1)]
    assert cat(TranscriptArchive(tmp_path / "archives")) == rows(0, 3000)
