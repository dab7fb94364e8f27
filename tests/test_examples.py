"""Every example runs to its end, as a user would run it."""

import pathlib
import subprocess
import sys
import time

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parent.parent / "examples").glob("*.py"))


def run(path, folder):
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def test_there_are_examples():
    assert "multi_provider_guard.py" in {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path, tmp_path):
    done = run(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert path.read_text().startswith('"""')


def test_multi_provider_guard(tmp_path):
    path = next(path for path in EXAMPLES if path.name == "multi_provider_guard.py")
    started = time.monotonic()
    lines = run(path, tmp_path).stdout.splitlines()
    assert time.monotonic() - started < 2
    assert sum("forced_final" in line for line in lines) == 1
    first_cloud = next(number for number, line in enumerate(lines) if "cloud/large" in line)
    assert not any("local/small" in line for line in lines[first_cloud:])
    assert "tools set_metadata" in lines[-3]
    assert lines[-1].startswith("Finished in turn ")
    assert lines[-1].endswith("reason: context")
