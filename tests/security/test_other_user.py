"""A second user of the machine, for real: a process of his that owns the runs directory and swaps what it can."""

import contextlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

import pytest

from mala_context.archive.full_outputs import Spills
from mala_context.archive.search import search_session
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError
from tests.helpers.small_transcripts import SID, dump, message

OTHER = 65_534
SECRET = "the-words-of-the-session"
ATTACK = r"""
import os, random, sys, time
runs, victim, secret, ready, user = sys.argv[1:]
os.setgroups([])
os.setgid(int(user))
os.setuid(int(user))
found = set()

def look(top):
    for folder, _, files in os.walk(top):
        for name in files:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    if secret.encode() in file.read():
                        found.add(name)
            except OSError:
                pass

def attempt(call, *given):
    try:
        call(*given)
    except OSError:
        pass

def plant(path, links, names):
    "Put a directory that everybody may write to, or links to what is the victim's, in place of one of ours."
    attempt(os.mkdir, path)
    attempt(os.chmod, path, 0o777)
    for each in names:
        place = os.path.join(path, each)
        if links:
            attempt(os.symlink, victim, place)
        else:
            attempt(os.mkdir, place)
            attempt(os.chmod, place, 0o777)

os.umask(0)
print("ready", flush=True)
turn = 0
while os.path.exists(ready):
    turn += 1
    for name in os.listdir(runs):
        if name.startswith("aside"):
            continue
        path = os.path.join(runs, name)
        attempt(os.rename, path, os.path.join(runs, f"aside-{turn}"))
        plant(path, turn % 2, ("search", "spills") if turn % 3 else ("archives", "search", "spills"))
        time.sleep(random.random() / 50)
        look(runs)
        attempt(os.rename, path, os.path.join(runs, f"aside-his-{turn}"))
        attempt(os.rename, os.path.join(runs, f"aside-{turn}"), path)
    time.sleep(random.random() / 50)  # else nothing would ever be written that he could be after
look(runs)
print(sorted(found), flush=True)
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can act as two users"),
]


@pytest.fixture
def shared(monkeypatch):
    """A directory that all may enter, with a runs directory of the other user and documents of ours in it."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="mala-context-test-"))
    top.chmod(0o755)
    runs, documents = top / "runs", top / "documents"
    runs.mkdir()
    os.chown(runs, OTHER, OTHER)
    runs.chmod(0o777)
    (documents / "thesis").mkdir(parents=True)
    (documents / "thesis" / "one.txt").write_text("keep me")
    for each in (documents / "thesis", documents):
        os.utime(each, (1_700_000_000, 1_700_000_000))
    monkeypatch.setenv("MALA_RUNS_DIR", str(runs))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(top / "claude"))
    yield top
    shutil.rmtree(top, ignore_errors=True)


@contextlib.contextmanager
def attacker(top):
    """Run his process; the list that is given holds what he read, once the block is over."""
    ready = top / "ready"
    ready.touch()
    words = [
        sys.executable,
        "-I",
        "-c",
        ATTACK,
        str(top / "runs"),
        str(top / "documents"),
        SECRET,
        str(ready),
        str(OTHER),
    ]
    read = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            yield read
        finally:
            ready.unlink()
            out, errors = process.communicate(timeout=60)
    assert errors == ""
    read.append(out)


def test_he_reads_nothing_and_nothing_of_ours_goes(shared):
    repo = shared / "repo"
    old = os.umask(0)
    done = 0
    try:
        with attacker(shared) as read:
            for number in range(150):
                path = shared / f"{SID}.jsonl"
                with path.open("ab") as file:
                    file.write(dump([message(number, f"{SECRET} {number}")]))
                os.chmod(path, 0o600)
                archive = TranscriptArchive(repo_path=repo, projects_dirs=[])
                for act in (
                    lambda each=archive: each.archive_session(shared / f"{SID}.jsonl", SID),
                    lambda each=archive: search_session(each, SID, SECRET),
                    lambda number=number: Spills(repo).write(SID, f"{SECRET} full {number}".encode(), str(shared)),
                    lambda each=archive: each.prune(days=0.0, dry_run=False),
                ):
                    try:
                        act()
                        done += 1
                    except (ArchiveError, OSError):
                        pass  # he may keep us from writing; it is said, and the session goes on
    finally:
        os.umask(old)
    assert read == ["[]\n"]
    assert done > 20, "nothing was ever done while he was at it"
    assert (shared / "documents" / "thesis" / "one.txt").read_text() == "keep me"
    assert stat.S_IMODE((shared / "documents").stat().st_mode) == 0o755
    assert os.listdir(shared / "documents") == ["thesis"]
