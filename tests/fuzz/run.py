"""Fuzz one of the targets, or all of them, steered by coverage.

Run with `python -m tests.fuzz.run TARGET --seconds 600` (extra `fuzz`). New inputs that reach new code are kept in
`tests/fuzz/corpus/TARGET` when `--keep` is given; an input that breaks a promise is written there as `crash-…`.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
CORPUS = HERE / "corpus"
LARGEST = 8_192
SHAPES = HERE.parent / "data" / "core"
_HERE = "here"
KEPT = 40
"""At most so many inputs of a target are kept, the smallest."""
RECORDED = ("rows", "stream_json", "transcript")
"""Targets that start from the recordings that the other tests read."""


def one(name: str, seconds: int, found: str) -> None:
    """Fuzz in this process, which ends with the first fault."""
    import atheris

    with atheris.instrument_imports(include=["mala_context"]):
        from tests.fuzz.targets import TARGETS
    crashes = str(CORPUS / name) + "/"
    words = [sys.argv[0], f"-max_total_time={seconds}", f"-max_len={LARGEST}", "-rss_limit_mb=1024", "-timeout=10"]
    atheris.Setup([*words, f"-artifact_prefix={crashes}", "-print_final_stats=1", found], TARGETS[name])
    atheris.Fuzz()


def main() -> int:
    """Fuzz each target in a process of its own; return 1 where one broke a promise."""
    if sys.argv[1:2] == [_HERE]:  # before anything of ours is imported, or its branches would not be counted
        one(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return 0
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=int, default=60, help="how long each target is fuzzed (60)")
    parser.add_argument("--keep", action="store_true", help="keep inputs that reach new code")
    chosen = parser.parse_args()
    failed = 0
    for name in TARGETS if chosen.target == "all" else [chosen.target]:
        seeds = CORPUS / name
        seeds.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as found:
            for seed in (*seeds.iterdir(), *(SHAPES.glob("*.jsonl") if name in RECORDED else ())):
                shutil.copy(seed, found)
            command = [sys.executable, "-m", "tests.fuzz.run", _HERE, name, str(chosen.seconds), found]
            ended = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, errors="replace")
            runs = [line.split()[-1] for line in ended.stderr.splitlines() if "number_of_executed_units" in line]
            fault = ended.returncode != 0
            print(f"{name:12} {runs[0] if runs else '?':>10} inputs, {'A PROMISE BROKEN' if fault else 'no fault'}")
            if fault:
                print(ended.stderr[-3_000:])
            failed |= fault
            if chosen.keep:
                new = [each for each in pathlib.Path(found).iterdir() if each.suffix != ".jsonl"]
                for each in sorted(new, key=lambda path: path.stat().st_size)[:KEPT]:
                    shutil.copy(each, seeds / each.name)
    return failed


if __name__ == "__main__":
    sys.exit(main())
