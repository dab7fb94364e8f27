"""A file system whose writes take not one byte and say so by a count of 0: Python's buffer would try for ever."""

from __future__ import annotations

import os
import random
import shutil
import subprocess

import pytest

from tests.attack.machine import EVENTS, Machine

HERE = os.path.dirname(__file__)
COMMANDS = [
    "replay {path} --format csv --output {out}",
    "report {path} -o {out}",
    "audit {path} --plot {out}.svg",
    "config init --force",
    "init --yes",
    "init --yes --warn-at 0.5",
    "archives export {sid} {out}",
    "archives export {sid} {out} --html",
    "archives export {sid} {out} --redact",
    "archives pack",
    "archives restore {sid}",
    "archives search checks",
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: apt-get install gcc libc6-dev"
    library = tmp_path_factory.mktemp("library") / "takes_nothing.so"
    words = [compiler, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, f"{HERE}/takes_nothing.c"]
    subprocess.run([*words, "-ldl"], check=True)
    return str(library)


@pytest.fixture
def machine(tmp_path):
    machine = Machine(str(tmp_path / "machine"), random.Random(1))
    machine.grow(8)
    machine.compact()
    machine.grow(4)
    return machine


@pytest.mark.system
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_waits(command, library, machine):
    words = command.format(path=machine.path, sid=machine.sid, out=machine.out).split()
    before = machine.tree()
    machine.env["LD_PRELOAD"] = library
    done = machine.cli(*words)
    assert done.returncode == 3
    assert b"nothing could be written" in done.stderr or b"disk is full" in done.stderr
    assert machine.tree() == before
    assert not os.path.exists(machine.out)


@pytest.mark.system
@pytest.mark.parametrize("event", EVENTS)
def test_no_hook_waits_and_the_next_one_archives(event, library, machine):
    machine.env["LD_PRELOAD"] = library
    machine.hook(event)
    del machine.env["LD_PRELOAD"]
    machine.hook("SessionEnd")
    machine.whole()


@pytest.mark.system
def test_an_answer_into_such_a_file_ends(library, machine, tmp_path):
    machine.env["LD_PRELOAD"] = library
    with open(tmp_path / "said", "wb") as said:
        machine.hook("PreCompact", stdout=said)
        machine.cli("statusline", given=b"{}", stdout=said)
    assert (tmp_path / "said").read_bytes() == b""
