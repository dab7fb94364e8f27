"""What a report costs: `python tests/benchmarks/report.py [responses] [megabytes]`.

* page: reading one session of so many responses (5,000), and writing its page; time and size of each;
* folder: reading a generated folder of so many megabytes (200) on one process and on all, and the most memory used.

How smooth a page is, is measured in a browser: `pytest -n 0 -m system tests/browser -s`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from claims import Figure

from mala_context.analysis.report import build_report
from mala_context.analysis.report.page import page
from mala_context.analysis.report.svg_chart import svg
from tests.helpers.recordings import SID
from tests.helpers.report_sessions import long_session


def one(responses: int) -> tuple[float, float, int, int, int]:
    """Return seconds of reading and of writing one session, and bytes of transcript, page and picture."""
    with tempfile.TemporaryDirectory() as folder:
        path = long_session(Path(folder) / f"{SID}.jsonl", responses)
        size = os.path.getsize(path)
        begun = time.perf_counter()
        found = build_report([path])
        read = time.perf_counter()
        text = "".join(page(found)).encode("utf-8", "backslashreplace")
        written = time.perf_counter()
        picture = svg(found.sessions)
    return read - begun, written - read, size, len(text), len(picture)


def show_one(responses: int) -> None:
    read, written, size, text, picture = one(responses)
    print(f"page: {responses:,} responses, {size / 1e6:.1f} MB read in {read:.2f} s")
    print(f"page: {text / 1e6:.2f} MB written in {written:.2f} s; the SVG has {picture / 1e3:.0f} kB")


def folder_of(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).with_name("corpus.py")
        subprocess.run([sys.executable, str(script), folder, str(megabytes)], check=True, stdout=subprocess.DEVNULL)
        for jobs in (1, None):
            begun = time.perf_counter()
            found = build_report([folder], newest=10_000, jobs=jobs)
            took = time.perf_counter() - begun
            rate = megabytes / took
            print(
                f"folder: {len(found.sessions)} sessions, {took:.1f} s, {rate:.0f} MB/s with {jobs or 'all'} processes"
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"folder: at most {peak / 1024:.0f} MiB in this process")


def figures(quick: bool) -> Iterator[Figure]:
    """Yield what is printed of one session, for `all.py`."""
    responses = 500 if quick else 5_000
    read, written, size, text, _ = one(responses)
    yield Figure("report.read", read, "s", beside=f"{responses:,} responses, {size / 1e6:.1f} MB")
    yield Figure("report.write", written, "s", beside=f"a page of {text / 1e6:.2f} MB")


if __name__ == "__main__":
    show_one(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
    folder_of(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
