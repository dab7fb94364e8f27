"""The doctor on a machine: a healthy one, and one with ten faults."""

import json
import os
import subprocess
import sys

import pytest

from mala_context.analysis.doctor import examine, gather
from tests.helpers.doctor_machine import FAULTS, OTHER, Machine, never_archived


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_healthy_machine_has_no_findings(machine):
    assert machine.findings() == []


def test_a_machine_on_which_nothing_is_there_yet(tmp_path):
    (tmp_path / "home").mkdir()
    env = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    checked = examine(gather(str(tmp_path), env=env))
    assert [each.check.name for each in checked if each.findings] == []
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_alone_is_one_finding(machine, name):
    FAULTS[name](machine)
    (finding,) = machine.findings()
    assert finding.check == name
    assert finding.steps()
    assert finding.where


def test_ten_faults_are_found_and_nothing_else(machine):
    for fault in FAULTS.values():
        fault(machine)
    done = machine.run("--json", "--no-session")
    assert (done.returncode, done.stderr) == (1, "")
    result = json.loads(done.stdout)
    assert result["ok"] is False
    assert sorted(each["check"] for each in result["findings"]) == sorted(FAULTS)
    assert len(result["findings"]) > 10
    states = {each["name"]: each["state"] for each in result["checks"]}
    assert states.pop("hooks") == "skipped"
    assert {name for name, state in states.items() if state == "failed"} == set(FAULTS)


def test_on_a_healthy_machine_hooks_fire_and_the_exit_status_is_0(machine):
    done = machine.run("--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["findings"] == []
    assert {each["state"] for each in result["checks"]} == {"ok"}
    assert result["repo"] == str(machine.repo)


def test_the_command_that_it_names_fixes_it(machine):
    """The command that a finding about an unarchived transcript names, run as it is."""
    never_archived(machine)
    (finding,) = machine.findings()
    (command,) = finding.steps()
    assert command == f"mala-context archives import {machine.folder}"
    command = command.replace("mala-context", f"{sys.executable} -m mala_context.cli")
    subprocess.run(command, shell=True, env=machine.env, cwd=machine.repo, check=True, capture_output=True, timeout=60)
    assert machine.findings() == []
    lost = [sys.executable, "-m", "mala_context.cli", "archives", "lost", OTHER]
    done = subprocess.run(
        lost, env=machine.env, cwd=machine.repo, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("1. "), "what was imported can be asked for what its compactions lost"


def test_fix_runs_the_commands_after_a_question_and_checks_again(machine):
    for name in ("permissions", "readable", "unarchived", "models"):
        FAULTS[name](machine)
    said_no = machine.run("--no-session", "--fix", input="n\nn\nn\n")
    assert said_no.returncode == 1
    assert "Checked again" not in said_no.stdout
    assert machine.names() == ["models", "permissions", "readable", "unarchived"]
    done = machine.run("--no-session", "--fix", "--yes")
    assert (done.returncode, done.stderr) == (1, "")
    assert f"  chmod 700 {machine.runs}\n" in done.stdout
    assert done.stdout.endswith("Checked again: 1 thing is wrong.\n")
    assert machine.names() == ["models"]
    (machine.repo / "mala.yaml").write_text("context:\n  window: 100000\n")
    machine.runs.chmod(0o755)
    done = machine.run("--no-session", "--fix", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Checked again: Nothing is wrong.")
