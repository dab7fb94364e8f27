"""What a release rests on: one version, a changelog that can be read, metadata that says what is true."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from mala_context.analysis.doctor.checks import machine
from tests.helpers import extras

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
PAGE = (ROOT / "docs/reference/compatibility.md").read_text()
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
"""The headings that Keep a Changelog has."""


def dotted(version):
    return ".".join(map(str, version))


class TestChangelog:
    def test_its_versions(self):
        """Unreleased first, then the newest first, each with its day."""
        first, *released = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
        assert first == "[Unreleased]"
        found = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", each) for each in released]
        assert all(found)
        numbers = [tuple(map(int, each.groups())) for each in found]
        assert numbers == sorted(set(numbers), reverse=True)

    def test_its_kinds(self):
        for version in re.split(r"^## .*$", CHANGELOG, flags=re.MULTILINE)[1:]:
            kinds = re.findall(r"^### (.*)$", version, re.MULTILINE)
            assert len(kinds) == len(set(kinds))
            assert set(kinds) <= KINDS

    def test_a_released_version_is_in_it(self):
        assert PROJECT["version"].startswith("0.") or f"## [{PROJECT['version']}] - " in CHANGELOG


class TestVersion:
    def test_the_plugin_has_the_packages(self):
        assert json.loads((ROOT / ".claude-plugin/plugin.json").read_text())["version"] == PROJECT["version"]

    def test_the_command_says_it(self):
        command = [sys.executable, "-m", "mala_context.cli", "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert re.fullmatch(r"mala-context, version \d+\.\d+\.\d+\n", done.stdout)


class TestMetadata:
    def test_each_extra_is_tried(self):
        assert set(extras.SMOKES) == set(PROJECT["optional-dependencies"])

    @pytest.mark.parametrize("minor", [11, 12, 13, 14])
    def test_pythons(self, minor):
        assert f"Programming Language :: Python :: 3.{minor}" in PROJECT["classifiers"]
        assert f"| 3.{minor}" in PAGE

    def test_oldest_dependencies_are_those_that_ci_tries(self):
        """Each requirement has a lower bound, and that is the version that is installed there."""
        tried = (ROOT / ".ci/oldest.txt").read_text().split()
        for requirement in PROJECT["dependencies"]:
            name, _, oldest = requirement.partition(">=")
            assert re.search(rf"^{re.escape(name)}=={re.escape(oldest)}(\.0)*$", "\n".join(tried), re.MULTILINE), name


class TestTested:
    def test_the_oldest_sdk_is_the_one_that_is_required(self):
        assert f"claude-agent-sdk>={dotted(machine.OLDEST_SDK)}" in PROJECT["dependencies"]

    @pytest.mark.parametrize("version", [machine.OLDEST_SDK, machine.NEWEST_SDK, machine.NEWEST_CLI], ids=dotted)
    def test_the_page_has_the_versions_of_the_doctor(self, version):
        assert f"| {dotted(version)} |" in PAGE
