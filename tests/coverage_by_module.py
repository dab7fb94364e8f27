"""How much of each module its own test file covers, alone: `python tests/coverage_by_module.py [MODULE ...]`.

A module counts as covered by what was written for it, not by a test of something else that happens to pass through.
Its own test file carries its name: `mala_context/archive/store.py` has `tests/unit/archive/test_store.py`, and where a
package is one subject, `mala_context/guard/` say, all its modules have `tests/unit/guard/test_guard.py`. A longer name adds to it
(`test_following_rows.py`), folders between may be left out: `tests/unit/cli/test_undo.py` is for `cli/scenarios/undo.py`.
Each test file runs once, its long tests too, in a process of its own; the processes that it starts count. A test
of how long something takes, or of what it imports, may fail here: that is said, and counts for nothing. On CPython
3.11, what a coroutine does behind an `await` in which a scope was cancelled is not seen. MODULE is a
file or a folder of the package; without any, all are measured, which takes minutes. Exits with 1 where a module is
below `--below`.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PACKAGE = ROOT / "mala_context"
SETTINGS = """\
[run]
source = {package}
parallel = true
data_file = {data}
concurrency = thread, multiprocessing
patch = subprocess, _exit, fork
sigterm = true
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse
[report]
exclude_also =
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
    if __name__ == "__main__":
"""
DEADLINE = 900
"""Seconds that one test file may take."""


def modules(names: list[str]) -> list[pathlib.Path]:
    """Return the modules at these paths, or all; a file that only says what a package exports is none."""
    roots = [pathlib.Path(name).resolve() for name in names] or [PACKAGE]
    found = {path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py"))}
    return sorted(path for path in found if path.name not in {"__init__.py", "__main__.py"})


def own_tests(module: pathlib.Path) -> list[pathlib.Path]:
    """Return a module's own test files: see above."""
    parts = module.relative_to(PACKAGE).with_suffix("").parts
    there = {path.stem.removeprefix("test_"): path for path in TESTS.glob("test_*.py")}
    for name in _names(parts):
        if name in there:
            return [there[name], *_additions(name, there)]
    for length in range(len(parts) - 1, 0, -1):
        name = "_".join(parts[:length])
        if name in there:
            return [there[name], *(path for other, path in sorted(there.items()) if other.startswith(f"{name}_"))]
    return []


def _names(parts: tuple[str, ...]) -> list[str]:
    """Return what a module's test file may be called: its whole name, or a short one that no other could have."""
    return ["_".join(parts), *(name for name in _short(parts) if len(_by_name()[name]) == 1)]


def _short(parts: tuple[str, ...]) -> list[str]:
    return ["_".join((*parts[:1], *parts[-count:])) for count in (1, 2) if len(parts) > count]


@functools.cache
def _by_name() -> dict[str, set[tuple[str, ...]]]:
    """Return, by what a test file may be called, the modules that it could be for."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for parts in (path.relative_to(PACKAGE).with_suffix("").parts for path in modules([])):
        for name in {"_".join(parts), *_short(parts)}:
            found.setdefault(name, set()).add(parts)
    return found


def _additions(name: str, there: dict[str, pathlib.Path]) -> list[pathlib.Path]:
    """Return test files whose name begins with this one and that are no other module's."""
    return [path for other, path in sorted(there.items()) if other.startswith(f"{name}_") and other not in _by_name()]


def run(test: pathlib.Path, folder: pathlib.Path) -> str:
    """Run a test file under coverage; return where its data is, with what went wrong on standard error."""
    settings, data = folder / f"{test.stem}.ini", folder / f"{test.stem}.data"
    settings.write_text(SETTINGS.format(package=PACKAGE, data=data), encoding="utf-8")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
    command += ["-n0", "-q", "-p", "coverage_by_module", "-m", "not system", str(test)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode not in {0, 5}:
        print(
            f"{test.name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-500:]}",
            file=sys.stderr,
        )
    return str(data)


def pytest_configure() -> None:
    """Follow what tests start with an environment of their own, too: this module is a plugin of the runs."""
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def started(self: Any, *args: Any, env: Any = None, **more: Any) -> None:
        kept = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_PROCESS")}
        start(self, *args, env=None if env is None else {**kept, **env}, **more)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]  # in the processes of these runs alone


def measure(module: pathlib.Path, data: list[str], folder: pathlib.Path) -> tuple[float, str]:
    """Return the share of a module's statements that ran, in percent, and the lines that did not."""
    import coverage  # only what is measured needs it

    settings = folder / "all.ini"
    settings.write_text(SETTINGS.format(package=PACKAGE, data=folder / "all.data"), encoding="utf-8")
    measured = coverage.Coverage(data_file=None, config_file=str(settings))
    pieces = [str(piece) for each in data for piece in folder.glob(f"{pathlib.Path(each).name}.*")]
    if pieces:
        measured.combine(pieces, keep=True)
    _, statements, _, missing, lines = measured.analysis2(str(module))
    return (100.0 * (len(statements) - len(missing)) / len(statements) if statements else 100.0), lines


def main() -> int:
    """Measure, print the table, the least covered first, and return 1 where a module is below the bar."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("module", nargs="*", metavar="MODULE")
    asked.add_argument("--below", type=float, default=95.0, help="the bar in percent; 95 unless told otherwise")
    options = asked.parse_args()
    for name in options.module:
        if not pathlib.Path(name).resolve().is_relative_to(PACKAGE) or not pathlib.Path(name).exists():
            asked.error(f"{name}: no file or folder of {PACKAGE.name}/")
    tests = {module: own_tests(module) for module in modules(options.module)}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wanted = sorted({test for mine in tests.values() for test in mine})
        data = {test: run(test, folder) for test in wanted}
        rows = [(*measure(module, [data[t] for t in mine], folder), module, mine) for module, mine in tests.items()]
    for percent, lines, module, mine in sorted(rows, key=lambda row: (row[0], row[2])):
        by = " ".join(test.name for test in mine) or "no test file"
        print(f"{percent:6.1f} %  {module.relative_to(ROOT)}  ({by})" + (f"  missing {lines}" if lines else ""))
    low = sum(percent < options.below for percent, *_ in rows)
    print(f"{len(rows)} modules, {low} below {options.below:g} %")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
