"""Two containers, one runs directory: the same host name and process id, and each its own list of processes."""

import json
import shutil
import subprocess
import sys

import pytest

from mala_context import TranscriptArchive
from mala_context.archive.verify import verify_archive
from tests.helpers.archive_tools import cat

WORK = """
import os, sys
from mala_context import TranscriptArchive
place, path, session, what = sys.argv[1:]
assert os.getpid() == 1
archive = TranscriptArchive(place)
if what == "owns":
    archive.register_session(session, path, pid=1)
    archive.archive(path, session, trigger="auto")
    print("ready", flush=True)
    sys.stdin.read()
if what == "starts":
    print(sum(each.archived for each in archive.catch_up()), flush=True)
if what == "writes":
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(100):
        with open(path, "ab") as file:
            file.write(b'{"container":"%s","n":%d}\\n' % (session.encode(), number))
        archive.archive(path, "shared", trigger="auto")
"""
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0,
        reason="only root makes namespaces of processes here",
    ),
]


class Container:
    """A process with the id 1, as a container's first one has it."""

    def __init__(self, place, path, session, what):
        command = [*UNSHARE, sys.executable, "-c", WORK, str(place), str(path), session, what]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        return self.process.stdout.readline().strip()

    def end(self, how="close"):
        if how == "kill":
            self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "s1.jsonl").write_text('{"n":1}\n')
    return tmp_path / "archives"


def test_the_session_of_a_killed_container_is_archived_by_the_next(place, tmp_path):
    first = Container(place, tmp_path / "s1.jsonl", "s1", "owns")
    assert first.line() == "ready"
    with (tmp_path / "s1.jsonl").open("a") as file:
        file.write('{"n":2}\n')
    first.end("kill")
    second = Container(place, tmp_path / "s1.jsonl", "s2", "starts")
    assert second.line() == "1"
    second.end()
    assert cat(TranscriptArchive(place)) == (tmp_path / "s1.jsonl").read_bytes()


def test_a_container_that_starts_beside_a_living_one_loses_nothing(place, tmp_path):
    first = Container(place, tmp_path / "s1.jsonl", "s1", "owns")
    assert first.line() == "ready"
    with (tmp_path / "s1.jsonl").open("a") as file:
        file.write('{"n":2}\n')
    second = Container(place, tmp_path / "s1.jsonl", "s2", "starts")
    assert second.line() in {
        "0",
        "1",
    }  # whose process it is cannot be seen from there, so its rest may be archived early
    second.end()
    first.end()
    archive = TranscriptArchive(place)
    archive.archive(tmp_path / "s1.jsonl", "s1")
    assert cat(archive) == (tmp_path / "s1.jsonl").read_bytes()
    assert verify_archive(archive).ok


def test_containers_that_archive_one_session_at_once_write_no_byte_twice(place, tmp_path):
    path = tmp_path / "shared.jsonl"
    path.touch()
    both = [Container(place, path, name, "writes") for name in ("a", "b")]
    assert [each.line() for each in both] == ["ready", "ready"]
    for each in both:
        each.process.stdin.write("go\n")
        each.process.stdin.flush()
    for each in both:
        each.end()
    archive = TranscriptArchive(place)
    archive.archive(path, "shared")
    found = cat(archive, "shared")
    assert found == path.read_bytes()
    assert len(found.splitlines()) == 200
    assert {each.chain for each in archive.pieces("shared")} == {1}
    assert all(json.loads(line) for line in found.splitlines())
