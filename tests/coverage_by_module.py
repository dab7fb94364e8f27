"""How much of each module its own test file covers, alone: `python tests/coverage_by_module.py [MODULE ...]`.

A module counts as covered by the tests that were written for it, not by a test of another module that passes through
it. The test file carries the module's room and name: `mala_context/archive/remote/push.py` has
`tests/unit/archive/test_remote_push.py`, or `test_push.py` where no other module of the room could have that name.
Where a package is one subject, `mala_context/guard/policy/` for example, all its modules have
`tests/unit/guard/test_policy.py`. A longer name adds to it (`test_replay_follow_more.py`). Each test file runs once,
its long tests too, in a process of its own; the processes that it starts count. A test of how long something takes,
or of its imports, may fail here: that is said, and has no effect. On CPython 3.11, the lines of a coroutine after an
`await` in which a scope was cancelled are not seen. MODULE is a file or a folder of the package; without any, all are
measured, which takes minutes. Exits with 1 where a module is below `--below`.
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
UNIT = TESTS / "unit"
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
SHARED = {
    "agent/builder": "runtime",
    "analysis/replay/decoded_columns": "replay_columns",
    "analysis/replay/lanes": "replay_scan",
    "analysis/replay/row_runs": "replay_columns",
    "agent/sdk": "runtime",
    "agent/wiring": "runtime",
}
"""Modules that are one subject with another module, and the name of its test file."""
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
    room, rest = (UNIT / parts[0], parts[1:]) if len(parts) > 1 else (UNIT, parts)
    there = {path.stem.removeprefix("test_"): path for path in room.glob("test_*.py")}
    for name in _names(parts[: len(parts) - len(rest)], rest):
        if name in there:
            return [there[name], *_additions(room, name, there)]
    for length in range(len(rest) - 1, 0, -1):
        name = "_".join(rest[:length])
        if name in there:
            return [there[name], *(path for other, path in sorted(there.items()) if other.startswith(f"{name}_"))]
    return [there[room.name], *_additions(room, room.name, there)] if room.name in there else _shared(room, rest)


def _shared(room: pathlib.Path, rest: tuple[str, ...]) -> list[pathlib.Path]:
    """Return the test file of `SHARED` for the parts of one subject that lie in several modules."""
    name = SHARED.get("/".join((room.name, *rest)))
    return [room / f"test_{name}.py"] if name else []


def _names(room: tuple[str, ...], rest: tuple[str, ...]) -> list[str]:
    """Return the names that a module's test file may have: its whole name, or a short name that no other could have."""
    return ["_".join(rest), *(name for name in _short(rest) if len(_by_name()[(*room, name)]) == 1)]


def _short(rest: tuple[str, ...]) -> list[str]:
    return ["_".join(rest[-count:]) for count in (1, 2) if len(rest) > count]


@functools.cache
def _by_name() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Return the modules that a test file of a room and name could be for."""
    found: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for parts in (path.relative_to(PACKAGE).with_suffix("").parts for path in modules([])):
        room, rest = (parts[:1], parts[1:]) if len(parts) > 1 else ((), parts)
        for name in {"_".join(rest), *_short(rest)}:
            found.setdefault((*room, name), set()).add(parts)
    return found


def _additions(room: pathlib.Path, name: str, there: dict[str, pathlib.Path]) -> list[pathlib.Path]:
    """Return test files whose name begins with this name and that belong to no other module."""
    others = {key[-1] for key in _by_name() if key[:-1] == ((room.name,) if room != UNIT else ())}
    return [path for other, path in sorted(there.items()) if other.startswith(f"{name}_") and other not in others]


def run(test: pathlib.Path, folder: pathlib.Path) -> str:
    """Run a test file under coverage; return where its data is, with what went wrong on standard error."""
    settings, data = folder / f"{test.stem}.ini", folder / f"{test.stem}.data"
    settings.write_text(SETTINGS.format(package=PACKAGE, data=data), encoding="utf-8")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest"]
    command += ["-n0", "-q", "-p", "tests.coverage_by_module", "-m", "not system", str(test)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
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
