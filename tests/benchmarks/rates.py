"""How many MB of recordings a second each command reads: `python tests/benchmarks/rates.py FOLDER [FOLDER …]`.

Each row is a whole process on one core, with the files in the page cache: the median of `--rounds` and the slowest and
fastest round, in MB of plain transcript a second of processor time. FOLDER holds transcripts, packed or not; they are
copied to a temporary directory first, unpacked. `--beside COMMAND` names another `mala-context`, which takes turns with
this one: the last figure is how many times as long that one takes. `search` builds its index; `archives catch-up` finds
a session of which all but the first row is not archived.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from mala_context.archive.store import TranscriptArchive

MB = 1_000_000
COMMANDS = ("audit", "report", "watch", "catch-up", "search")


def unpacked(folder: str, at: Path) -> int:
    """Write each transcript of a folder as a project's session; return their bytes."""
    project = at / "projects" / "-home-dev-work"
    project.mkdir(parents=True)
    for path in sorted(Path(folder).rglob("*.jsonl*")):
        identity = uuid5(NAMESPACE_URL, path.name)
        with (
            (gzip.open if path.suffix == ".gz" else open)(path) as source,
            open(project / f"{identity}.jsonl", "wb") as file,
        ):
            shutil.copyfileobj(source, file)
    return sum(path.stat().st_size for path in project.iterdir())


def archived(project: Path, to: Path, *, whole: bool) -> None:
    """Archive each session, or only its first row."""
    archive = TranscriptArchive(str(to))
    for path in sorted(project.iterdir()):
        data = path.read_bytes()
        if not whole:
            path.write_bytes(data[: data.find(b"\n") + 1])
        archive.archive(str(path), path.stem, trigger="session_end")
        path.write_bytes(data)
        os.utime(path, (1_700_000_000, 1_700_000_000))


def prepared(command: str, at: Path) -> Callable[[], list[str]]:
    """Return what makes the arguments of a round, with everything as it was before the first."""
    project, kept, used = at / "projects" / "-home-dev-work", at / f"{command}-kept", at / f"{command}-used"
    if command == "audit":
        return lambda: ["audit", str(project), "--json"]
    if command == "report":
        return lambda: ["report", str(project), "--newest", "10000", "-o", str(at / "report.html")]
    if command == "watch":
        return lambda: ["watch", "--once", "--since", "3650d", "--most", "10000", "--projects", str(at / "projects")]
    archived(project, kept, whole=command == "search")
    words = ["catch-up"] if command == "catch-up" else ["search", "the"]

    def fresh() -> list[str]:
        shutil.rmtree(used, ignore_errors=True)
        shutil.copytree(kept, used)
        return ["archives", *words, "--dir", str(used)]

    return fresh


def seconds(program: list[str], arguments: list[str], home: Path) -> float:
    """Return the processor time of a process on one core."""
    # What pip installs is compiled to bytecode, and so is this after one run.
    cached = {"PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **cached, "HOME": str(home), "MALA_RUNS_DIR": str(home / "runs")}
    run = subprocess.Popen(
        [*program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        sys.exit(f"{arguments[:2]} failed with {run.returncode}")
    return usage.ru_utime + usage.ru_stime


def rates(folder: str, commands: list[str], rounds: int, beside: str | None) -> Iterator[str]:
    """Yield a line for each command."""
    programs = [[sys.executable, "-m", "mala_context.cli"], *([[beside]] if beside else [])]
    with tempfile.TemporaryDirectory() as name:
        at = Path(name)
        size = unpacked(folder, at) / MB
        for command in commands:
            arguments = prepared(command, at)
            times: list[list[float]] = [[] for _ in programs]
            for number in range(rounds):
                for place in range(len(programs))[:: -1 if number % 2 else 1]:
                    times[place].append(seconds(programs[place], arguments(), at))
            own = times[0]
            line = f"{command:9} {size:4.0f} MB {size / statistics.median(own):6.0f} MB/s"
            line += f" ({size / max(own):.0f} to {size / min(own):.0f})"
            if beside:
                line += f", {statistics.median(times[1]) / statistics.median(own):.2f} times as long"
            yield line


def main() -> None:
    """Print the rates of each folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--only", nargs="+", metavar="COMMAND", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", metavar="COMMAND", help="another mala-context")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for folder in options.folders:
        print(folder, flush=True)
        for line in rates(folder, options.only, options.rounds, options.beside):
            print(line, flush=True)


if __name__ == "__main__":
    main()
