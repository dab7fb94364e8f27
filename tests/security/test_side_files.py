"""What lies beside a transcript is written by whatever the agent runs: no name there leads out of it."""

import os
import stat
import threading

import pytest

from mala_context.archive import manifests
from mala_context.archive.restore import restore_session
from mala_context.archive.source import own_directory
from mala_context.archive.store import TranscriptArchive
from tests.helpers.small_transcripts import SID, dump, session
from tests.security.hostile import EVIL, NAME
from tests.security.odd_files import NO_FILES

SECRET = b'{"PRIVATE":"KEY"}\n'


class Machine:
    """A session with side files, and a directory that it must not lead to."""

    def __init__(self, root, monkeypatch):
        monkeypatch.setenv("MALA_RUNS_DIR", str(root / "runs"))
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(root / "claude"))
        self.secret = root / "secret"
        for name in ("tool-results/a.txt", "subagents/agent-a1.jsonl", "a.txt", "agent-a1.jsonl"):
            path = self.secret / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(SECRET)
        self.transcript = root / "claude" / "projects" / "-p" / f"{SID}.jsonl"
        self.beside = self.transcript.with_suffix("")
        (self.beside / "tool-results").mkdir(parents=True)
        (self.beside / "subagents").mkdir()
        self.transcript.write_bytes(dump(session(1)))
        self.fill(self.beside)
        self.archive = TranscriptArchive(root / "archives")

    def fill(self, beside):
        (beside / "tool-results" / "a.txt").write_bytes(b"a result")
        (beside / "subagents" / "agent-a1.jsonl").write_bytes(dump(session(0)))

    def keep(self):
        return self.archive.archive_session(self.transcript, SID)

    def leaked(self):
        """Files of the archive that hold the secret."""
        found = []
        for name in os.listdir(self.archive.location):
            with open(os.path.join(self.archive.location, name), "rb") as file:
                if b"PRIVATE" in file.read():
                    found.append(name)
        return found


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("place", ["", "tool-results", "subagents", "tool-results/a.txt", "subagents/agent-a1.jsonl"])
def test_a_link_in_any_place_is_not_followed(place, machine):
    """In place of the session's folder itself, of a folder in it, of a file."""
    there = machine.beside / place
    os.rename(there, machine.beside.parent / "aside")
    os.symlink(machine.secret / place, there)
    machine.keep()
    assert machine.leaked() == []


@pytest.mark.long
@pytest.mark.parametrize("place", ["", "tool-results", "subagents"])
def test_a_folder_swapped_for_a_link_all_the_while(place, machine):
    """Another thread swaps it again and again: between the look, the status and the opening."""
    there, aside = machine.beside / place, machine.beside.parent / "aside"
    over = threading.Event()

    def swap():
        while not over.is_set():
            os.rename(there, aside)
            os.symlink(machine.secret / place, there)
            os.unlink(there)
            os.rename(aside, there)

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        for number in range(30):
            (machine.transcript).write_bytes(machine.transcript.read_bytes() + b'{"n":%d}\n' % number)
            machine.keep()
    finally:
        over.set()
        racer.join()
    machine.fill(machine.beside)
    machine.keep()
    assert machine.leaked() == []
    assert any(".file-" in name for name in os.listdir(machine.archive.location)), "no side file was ever kept"


def test_a_link_swapped_in_right_behind_the_look(machine, monkeypatch):
    """The race that the test above may miss, at its worst moment."""
    machine.keep()
    scandir = os.scandir

    def and_swap(path):
        found = scandir(path)
        for place in ("tool-results", "subagents"):
            there = machine.beside / place
            if there.is_dir() and not there.is_symlink():
                os.rename(there, machine.beside.parent / f"aside-{place}")
                os.symlink(machine.secret / place, there)
        return found

    monkeypatch.setattr(os, "scandir", and_swap)
    for path in (machine.beside / "tool-results" / "a.txt", machine.beside / "subagents" / "agent-a1.jsonl"):
        path.write_bytes(dump(session(2)))
    machine.keep()
    assert machine.leaked() == []


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
@pytest.mark.parametrize("place", ["tool-results/b.txt", "subagents/agent-b1.jsonl"])
def test_what_is_no_file_is_passed_over(place, make, machine, monkeypatch):
    monkeypatch.chdir(machine.beside)
    make(machine.beside / place)
    machine.keep()
    assert {row["path"] for row in machine.archive.manifest(SID).of_kind("file")} == {"tool-results/a.txt"}


@pytest.mark.parametrize("name", [NAME, "..\\..\\x", "-rf", "$(id)", "a\nb", "é" * 100, "x" * 255, "con", "a;b"])
def test_names_are_kept_as_words_and_name_no_file_of_ours(name, machine):
    (machine.beside / "tool-results" / name.replace("/", "_")).write_bytes(b"of " + name.encode())
    (machine.beside / "subagents" / f"agent-{name[:200]}.jsonl".encode()[:255].decode("utf-8", "ignore")).write_bytes(
        b"{}\n"
    )
    machine.keep()
    names = os.listdir(machine.archive.location)
    assert all(each.startswith((f"{SID}_", f"{SID}.")) for each in names), names
    assert all(each.isascii() and each.isprintable() for each in names)
    assert {stat.S_IMODE(os.stat(os.path.join(machine.archive.location, each)).st_mode) for each in names} == {0o600}


@pytest.mark.parametrize("name", ["../../../a", "/etc/a", "..", "a/../../b", EVIL, "a\0b", "."])
def test_a_manifests_path_puts_nothing_back_elsewhere(name, machine, tmp_path):
    """A side file's row may be written by others; what it is put back as is what the session's rows name."""
    machine.keep()
    (row,) = machine.archive.manifest(SID).of_kind("file")
    path = f"{machine.beside}/tool-results/{name}"
    with machine.transcript.open("ab") as file:
        file.write(dump([{"type": "user", "uuid": "u9", "message": {"content": f"saved to {path}"}}]))
    with open(os.path.join(machine.archive.location, f"{SID}.manifest.jsonl"), "ab") as file:
        file.write(manifests.dump([{**row, "path": f"tool-results/{name}"}]))
    machine.archive.archive(str(machine.transcript), SID)
    before = set(tmp_path.rglob("*"))
    restore_session(machine.archive, SID)
    new = {each for each in set(tmp_path.rglob("*")) - before if each.is_file()}
    assert all(each.is_relative_to(machine.transcript.parent) for each in new), new


def test_where_a_subagents_session_is():
    assert own_directory("/p/s1/subagents/agent-a.jsonl") == "/p/s1"
    assert own_directory("/p/subagents/s1/subagents/workflows/w/agent-a.jsonl") == "/p/subagents/s1"
    for path in ("/p/agent-a.jsonl", "/p/s1/subagents/../x/agent-a.jsonl", "/subagents/x", None, 7):
        assert own_directory(path) is None
