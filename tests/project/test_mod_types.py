"""The mod of compactions by reference is TypeScript; its types hold against the part of the CLI's interface it uses."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MOD = ROOT / "mala_context/agent/reference/register.ts"
STRICT = ("--noEmit", "--strict", "--target", "es2022", "--module", "es2022", "--noUncheckedIndexedAccess")


def check(folder, code):
    (folder / "register.ts").write_text(code)
    shutil.copy(ROOT / "tests/data/claude-code.d.ts", folder)
    files = ("register.ts", "claude-code.d.ts")
    return subprocess.run(["tsc", *STRICT, *files], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.system
def test_the_mods_types_hold(tmp_path):
    done = check(tmp_path, MOD.read_text())
    assert done.returncode == 0, done.stdout


@pytest.mark.system
def test_a_wrong_type_is_found(tmp_path):
    done = check(tmp_path, MOD.read_text().replace("trigger: e.trigger", "trigger: e.triggers"))
    assert "triggers" in done.stdout
