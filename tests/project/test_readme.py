"""What README promises is what is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mala_context.cli.app import COMMANDS
from mala_context.config import parse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_commands_is_the_command_lines_own():
    assert re.findall(r"^\| `mala-context ([\w-]+)", README, re.MULTILINE) == list(COMMANDS)


def test_the_table_says_what_the_help_says():
    """Word by word: where lines break is the library's affair."""
    command = [sys.executable, "-m", "mala_context.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    head, _, listed = done.stdout.partition("Commands:\n")
    rows = re.findall(r"^\| `mala-context ([\w-]+)[^`]*` \| (.*) \|$", README, re.MULTILINE)
    assert " ".join(f"{name} {line}" for name, line in rows).split() == listed.split()
    (statuses,) = re.findall(r"^Exit status: [^.]*\.", README, re.MULTILINE)
    assert " ".join(statuses.split()) in " ".join(head.split())


@pytest.mark.parametrize("ending", ["bin/mala-context demo", "bin/pytest"])
def test_ci_finds_the_two_commands(ending):
    lines = [line for line in README.splitlines() if line.endswith(ending)]
    assert len(lines) == 1
    assert f"{ending}$' README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_its_configuration_can_be_read():
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert parse(block).warn_at == 0.70


@pytest.mark.parametrize("target", re.findall(r"\]\(((?!https?:)[^)#]+)", README))
def test_its_links_lead_somewhere(target):
    assert (ROOT / target).exists()
