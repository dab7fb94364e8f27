"""A machine for the doctor: a home with a repository, Claude Code's folders, and archives; and what can be wrong."""

import json
import os
import subprocess
import sys

from mala_context.analysis.doctor import examine, gather
from mala_context.archive.store import TranscriptArchive
from tests.helpers.small_transcripts import SID, dump, session

OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class Machine:
    """A home with a repository, Claude Code's settings and projects, and archives; all healthy at first."""

    def __init__(self, root):
        self.home = root / "home"
        self.claude = self.home / ".claude"
        self.folder = self.claude / "projects" / "-home-dev-project"
        self.runs = self.home / ".config" / "mala" / "runs"
        self.repo = self.home / "repo"
        self.bin = root / "bin"
        for each in (self.folder, self.repo / ".claude", self.bin):
            each.mkdir(parents=True, mode=0o700)
        (self.claude / "projects").chmod(0o700)
        path = os.pathsep.join([str(self.bin), *(each for each in (os.environ["PATH"],) if each)])
        self.env = {"HOME": str(self.home), "PATH": path}
        self.settings = self.claude / "settings.json"
        self.settings.write_text(json.dumps({"model": "sonnet", "cleanupPeriodDays": 90}))
        self.archive = TranscriptArchive(directory=self.runs / "-home-repo" / "archives")
        self.transcript = self.write(SID, session(2))
        self.archive.archive(self.transcript, SID, trigger="auto")

    def write(self, session_id, rows, mode=0o600):
        path = self.folder / f"{session_id}.jsonl"
        path.write_bytes(dump(rows))
        path.chmod(mode)
        return path

    @property
    def pieces(self):
        return sorted((self.runs / "-home-repo" / "archives").glob("*_transcript.jsonl"))

    def set(self, **values):
        self.settings.write_text(json.dumps({**json.loads(self.settings.read_text()), **values}))

    def findings(self, **more):
        checked = examine(gather(str(self.repo), env=self.env, **more))
        return [finding for each in checked for finding in each.findings]

    def names(self):
        return sorted(finding.check for finding in self.findings())

    def run(self, *args, **more):
        command = [sys.executable, "-m", "mala_context.cli", "doctor", "--repo", str(self.repo), *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=100, **more)


def old_cli(machine):
    program = machine.bin / "claude"
    program.write_text("#!/bin/sh\necho '1.0.30 (Claude Code)'\n")
    program.chmod(0o755)


def broken_config(machine):
    (machine.repo / "mala.yaml").write_text("context:\n  warn_at: 70\n  oops: 1\n")


def broken_settings(machine):
    (machine.repo / ".claude" / "settings.local.json").write_text("{,}")


def hooks_off(machine):
    machine.set(disableAllHooks=True)


def no_compaction(machine):
    machine.set(env={"DISABLE_AUTO_COMPACT": "1"})


def early_cleanup(machine):
    machine.set(cleanupPeriodDays=1)


def unknown_model(machine):
    machine.set(model="glm-9-air")


def open_runs(machine):
    machine.runs.chmod(0o755)


def open_piece(machine):
    machine.pieces[0].chmod(0o644)


def never_archived(machine):
    machine.write(OTHER, session(1))


def damaged_piece(machine):
    machine.pieces[0].write_bytes(b"X" + machine.pieces[0].read_bytes()[1:])


FAULTS = {
    "cli": old_cli,
    "config": broken_config,
    "settings": broken_settings,
    "hooks-off": hooks_off,
    "compaction": no_compaction,
    "cleanup": early_cleanup,
    "models": unknown_model,
    "permissions": open_runs,
    "readable": open_piece,
    "unarchived": never_archived,
    "verify": damaged_piece,
}
"""By the name of the check that finds it."""
