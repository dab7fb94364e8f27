"""Archives in S3, on loopback: what arrives, what breaks on the way, and that nothing is lost or doubled."""

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from click.testing import CliRunner

from mala_context.agent.archiving import SessionArchiver
from mala_context.agent.archiving.uploads import LONGEST_PAUSE, Uploads
from mala_context.analysis.doctor.gather.archives import stores
from mala_context.archive.layout import manifest_name
from mala_context.archive.manifests import parse
from mala_context.archive.remote import bucket as bucket_module
from mala_context.archive.remote.address import Target
from mala_context.archive.remote.bucket import PART
from mala_context.archive.remote.uploaded import uploads
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from mala_context.config import ArchiveConfig, ContextConfig
from mala_context.errors import ObjectStoreError
from tests.helpers.archive_tools import grow, names
from tests.helpers.s3_server import KEY_ID, SECRET, environment
from tests.helpers.variants import variants

TESTS = pathlib.Path(__file__).parent.parent


@pytest.fixture
def archive(tmp_path, proxy, bucket):
    target = Target(address=f"s3://{bucket}/top", prefix="hosts/one")
    return TranscriptArchive(tmp_path / "archives", target=target)


@pytest.fixture
def transcript(tmp_path):
    return tmp_path / "s1.jsonl"


def stored(s3_server, bucket):
    return {name.removeprefix("top/hosts/one/"): data for name, data in s3_server.objects(bucket).items()}


def check_nothing_lost(archive, s3_server, bucket, transcript):
    """The store holds the transcript once, and its manifest."""
    objects = stored(s3_server, bucket)
    pieces = sorted(name for name in objects if name.endswith("_transcript.jsonl"))
    assert b"".join(objects[name] for name in pieces) == transcript.read_bytes()
    assert pieces == names(archive)
    assert set(objects) == {*pieces, manifest_name("s1")}


def test_pieces_then_manifest(archive, s3_server, bucket, transcript, proxy):
    grow(transcript, 0, 10)
    archive.archive(transcript, "s1", trigger="auto")
    grow(transcript, 10, 20)
    archive.archive(transcript, "s1", trigger="auto")
    result = archive.push()
    assert (result.files, result.sessions, result.pending) == (3, 1, ())
    check_nothing_lost(archive, s3_server, bucket, transcript)
    assert proxy.sent()[-1] == f"top/hosts/one/{manifest_name('s1')}"
    assert set(uploads(parse(stored(s3_server, bucket)[manifest_name("s1")]))) == set(names(archive))
    before = len(proxy.seen)
    assert archive.push().files == 0
    assert len(proxy.seen) == before, "what is written down as uploaded is asked for again"


def test_every_byte_is_read_back_and_the_checksum_is_sent(archive, s3_server, bucket, transcript, proxy):
    grow(transcript, 0, 10)
    archive.archive(transcript, "s1")
    archive.push()
    (name,) = names(archive)
    path = f"/{bucket}/top/hosts/one/{name}"
    put = next(headers for method, seen, headers in proxy.seen if (method, seen) == ("PUT", path))
    assert base64.b64decode(put["x-amz-checksum-sha256"]) == hashlib.sha256(transcript.read_bytes()).digest()
    assert any((method, seen.partition("?")[0]) == ("GET", path) for method, seen, _ in proxy.seen)


@pytest.mark.parametrize(
    ("encryption", "key", "wanted"),
    [("AES256", None, ("AES256", None)), ("aws:kms", "key-7", ("aws:kms", "key-7"))],
)
def test_server_side_encryption_is_asked_for(tmp_path, transcript, proxy, s3_server, bucket, encryption, key, wanted):
    target = Target(address=f"s3://{bucket}", prefix="", encryption=encryption, kms_key=key)
    archive = TranscriptArchive(tmp_path / "a", target=target)
    transcript.write_bytes(b"x" * (PART + 1) + b"\n")  # in parts, which are begun by another request
    archive.archive(transcript, "s1")
    archive.push()
    for name in (*names(archive), manifest_name("s1")):
        head = s3_server.head(bucket, name)
        assert (head["ServerSideEncryption"], head.get("SSEKMSKeyId")) == wanted


@pytest.mark.parametrize(
    "faults",
    [[500, 500], ["cut"], ["cut", 503, "cut"], ["damage"], ["silent damage"]],
    ids=lambda faults: "-".join(map(str, faults)),
)
def test_what_breaks_on_the_way_arrives_in_the_end(archive, s3_server, bucket, transcript, proxy, faults):
    grow(transcript, 0, 2000)
    archive.archive(transcript, "s1", trigger="auto")
    proxy.faults = list(faults)
    for _ in range(3):  # what the library does not try again by itself the next round does
        with contextlib.suppress(ObjectStoreError):
            archive.push()
    assert proxy.faults == []
    check_nothing_lost(archive, s3_server, bucket, transcript)
    assert archive.push().files == 0


def test_damage_that_the_store_does_not_see_is_seen_here(archive, transcript, proxy):
    grow(transcript, 0, 50)
    archive.archive(transcript, "s1")
    proxy.faults = ["silent damage"]
    with pytest.raises(ObjectStoreError, match="is not what was sent"):
        archive.push()
    assert uploads(archive.manifest("s1")) == {}


def test_a_clock_that_is_off_is_said_and_survived(archive, s3_server, bucket, transcript, proxy):
    grow(transcript, 0, 50)
    archive.archive(transcript, "s1", trigger="auto")
    proxy.clock = timedelta(minutes=20)
    with pytest.raises(ObjectStoreError, match="this machine's clock") as raised:
        archive.push()
    assert SECRET not in str(raised.value)
    assert proxy.skewed.is_set()
    proxy.clock = timedelta(0)
    archive.push()
    check_nothing_lost(archive, s3_server, bucket, transcript)


def hook_input(transcript, session="s1"):
    return {"session_id": session, "transcript_path": str(transcript), "trigger": "auto", "cwd": None}


@pytest.fixture
def archivist(tmp_path, proxy, bucket, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    config = ArchiveConfig(directory=f"s3://{bucket}/top", prefix="hosts/one")
    return SessionArchiver.for_repo(tmp_path, config, [str(tmp_path / "projects")])


@pytest.mark.parametrize("fault", variants(["down", "cut", "slow", "500", "clock"], default=2))
async def test_no_hook_waits_for_a_store(archivist, s3_server, bucket, transcript, proxy, monkeypatch, fault):
    """Each fault in turn: the hook's answer, then all of it in the store, once, when the fault is over."""
    monkeypatch.setattr(bucket_module, "RETRIES", 2)
    monkeypatch.setattr("mala_context.agent.archiving.uploads.FIRST_PAUSE", 0.05)
    proxy.delay = 1.0 if fault == "slow" else 0.0
    proxy.faults = {"500": [500, 500], "cut": ["cut"]}.get(fault, [])
    proxy.clock = timedelta(minutes=20) if fault == "clock" else timedelta(0)
    proxy.down = fault == "down"
    for number in range(3):
        grow(transcript, 10 * number, 10 * number + 10)
        begun = time.monotonic()
        await archivist.before_compaction(hook_input(transcript))
        assert time.monotonic() - begun < 10
    reached = {"clock": proxy.skewed, "slow": proxy.asked}.get(fault, proxy.failed)
    assert await asyncio.to_thread(reached.wait, 30)
    grow(transcript, 30, 40)
    begun = time.monotonic()
    await archivist.before_compaction(hook_input(transcript))  # while the store is at its worst
    assert time.monotonic() - begun < 10
    proxy.delay, proxy.clock, proxy.down = 0.0, timedelta(0), False
    uploads_of = archivist._upkeep._uploads
    await asyncio.to_thread(wait_until_idle, uploads_of)
    check_nothing_lost(archivist.archive, s3_server, bucket, transcript)
    assert len(names(archivist.archive)) == 4


def wait_until_idle(uploads_of):
    end = time.monotonic() + 60
    while uploads_of._running and time.monotonic() < end:
        time.sleep(0.02)
    assert not uploads_of._running


def test_down_for_an_hour(archive, s3_server, bucket, transcript, proxy, monkeypatch, caplog):
    """By a clock of the test's own: the pauses grow, there is one WARNING, and what came meanwhile goes up too."""
    monkeypatch.setattr(bucket_module, "RETRIES", 0)
    caplog.set_level(logging.INFO)
    pauses = []

    def pause(_event, seconds):
        pauses.append(seconds)
        if len(pauses) == 5:
            grow(transcript, 10, 20)
            archive.archive(transcript, "s1", trigger="auto")
        proxy.down = sum(pauses) < 3600

    proxy.down = True
    grow(transcript, 0, 10)
    sends = Uploads(archive, pause=pause)
    archive.archive(transcript, "s1", trigger="auto")
    wait_until_idle(sends)
    assert 3600 <= sum(pauses) < 3600 + LONGEST_PAUSE
    assert pauses[1:] == sorted(pauses[1:])
    assert caplog.text.count("Archive: not uploaded") == 1
    assert caplog.text.count("go on") == 1
    check_nothing_lost(archive, s3_server, bucket, transcript)


def test_resumed_by_the_next_process(archive, s3_server, bucket, transcript, proxy):
    """A run that ended while the store was down left its state in the manifest alone."""
    grow(transcript, 0, 10)
    archive.archive(transcript, "s1", trigger="auto")
    later = TranscriptArchive(archive.location, target=archive.target)
    sends = Uploads(later)
    sends.wake()
    wait_until_idle(sends)
    check_nothing_lost(archive, s3_server, bucket, transcript)


def test_no_secret_is_seen_anywhere(archivist, s3_server, bucket, transcript, proxy, tmp_path, monkeypatch, caplog):
    """A planted key: through faults whose answers hold it, in no log line of any level, no file and no object."""
    caplog.set_level(0)
    monkeypatch.setattr(bucket_module, "RETRIES", 1)
    proxy.clock = timedelta(minutes=20)  # its answer holds the key
    grow(transcript, 0, 10)
    archive = archivist.archive
    archive.on_change(None)
    archive.archive(transcript, "s1", trigger="auto")
    said = []
    for fault in ("skew", 500, "cut", None):
        proxy.faults = [] if fault in {None, "skew"} else [fault] * 2
        try:
            archive.push()
        except ObjectStoreError as error:
            said.append(f"{error!r} {error.__cause__!r} {error.__dict__}")
        proxy.clock = timedelta(0)
    assert said
    done = cli(["archives", "list", "--json"], tmp_path, proxy.port)
    assert done.returncode == 0
    texts = [*said, caplog.text, done.stdout, done.stderr]
    for path in (tmp_path / "runs").rglob("*"):
        texts += [path.read_bytes().decode("utf-8", "replace")] if path.is_file() else []
    texts += [data.decode("utf-8", "replace") for data in s3_server.objects(bucket).values()]
    assert all(SECRET not in text and KEY_ID not in text for text in texts)


def cli(words, repo, port, **env):
    return subprocess.run(
        [sys.executable, "-m", "mala_context.cli", *words],
        cwd=repo,
        env={**os.environ, **environment(port), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_the_commands(archivist, bucket, transcript, proxy, tmp_path, monkeypatch):
    """As a user: push, prune here, and everything reads on; then from another machine."""
    (tmp_path / "mala.yaml").write_text(f"context: {{archive: {{directory: 's3://{bucket}/top', prefix: hosts/one}}}}")
    grow(transcript, 0, 30)
    archive = archivist.archive
    archive.on_change(None)
    archive.archive(transcript, "s1", trigger="auto")

    monkeypatch.chdir(tmp_path)

    def run(*words, status=0):
        done = CliRunner().invoke(app, ["archives", *words])
        assert done.exit_code == status, (words, done.output, done.exception)
        return done.stdout

    assert "kept s1: not all of it is uploaded yet" in run("prune", "s1", "--yes")
    address = f"s3://{bucket}/top/hosts/one"
    assert re.search(rf"^2 files, .* uploaded; 1 session complete in {address}$", run("push"), re.MULTILINE)
    assert "0 files" in run("push")
    assert "removed s1 here; the object store keeps it" in run("prune", "s1", "--yes")
    assert names(archive) == []
    expected = transcript.read_text()
    transcript.unlink()
    place = ("--dir", address)
    for where in ((), place):
        assert run("cat", "s1", *where) == expected
        assert "s1" in run("list", *where)
        assert run("verify", *where).endswith("sound\n")
        run("show", "s1", *where)
        run("search", "xxx*", *where)
        run("lost", "s1", *where)
        run("export", "s1", str(tmp_path / f"copy{len(where)}"), *where)
        run("restore", "s1", *where, status=3)  # there is no message in it to go back to
    assert re.search(r" \d[\d.]* K?Br\b", run("list"))
    assert "catch" not in run("catch-up")
    run("push", *place, status=2)  # a place in a store is no archive of this machine
    proxy.down = True
    run("cat", "s1", status=3)


def test_nobody_waits_at_exit(archivist, bucket, transcript, proxy, tmp_path):
    """A process with an upload in flight ends at once, and ends well."""
    program = f"""
import asyncio, sys
from mala_context.agent.archiving import SessionArchiver
from mala_context.config import ArchiveConfig, ContextConfig
from mala_context.analysis.doctor.gather.archives import stores
archivist = SessionArchiver.for_repo({str(tmp_path)!r}, ArchiveConfig(directory="s3://{bucket}/top"), [])
asyncio.run(archivist.before_compaction({hook_input(transcript)!r}))
input()
"""
    grow(transcript, 0, 10)
    proxy.delay = 60.0
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, env={**os.environ})
    end = time.monotonic() + 60
    while not proxy.seen and time.monotonic() < end:
        time.sleep(0.01)
    begun = time.monotonic()
    child.communicate(b"\n", timeout=60)
    assert child.returncode == 0
    assert time.monotonic() - begun < 5


def test_an_interrupted_push_ends_at_once(archivist, bucket, transcript, proxy, tmp_path):
    (tmp_path / "mala.yaml").write_text(f"context: {{archive: {{directory: 's3://{bucket}'}}}}")
    grow(transcript, 0, 10)
    archivist.archive.on_change(None)
    archivist.archive.archive(transcript, "s1")
    proxy.delay = 60.0
    command = [sys.executable, "-m", "mala_context.cli", "archives", "push"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    assert proxy.asked.wait(60)
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said.strip()) == (130, b"mala-context: interrupted")
    assert time.monotonic() - begun < 5


def kill(tmp_path, s3_server, bucket, count, seed):
    done = subprocess.run(
        [
            sys.executable,
            TESTS / "helpers" / "upload_killer.py",
            tmp_path / "k",
            f"s3://{bucket}/x",
            str(count),
            str(seed),
        ],
        env={**os.environ, **environment(s3_server.port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kills, checked = map(int, re.fullmatch(r"kills=(\d+) checked=(\d+)", done.stdout.splitlines()[-1]).groups())
    assert kills == count
    assert checked > count / 2
    objects = {name.removeprefix("x/"): data for name, data in s3_server.objects(bucket).items()}
    known = set()
    for transcript in (tmp_path / "k").glob("*.jsonl"):
        session = transcript.stem
        pieces = sorted(name for name in objects if name.startswith(f"{session}_"))
        assert b"".join(objects[name] for name in pieces) == transcript.read_bytes(), session
        manifest = parse(objects[manifest_name(session)])
        assert set(manifest.pieces()) == set(pieces)
        known |= {*pieces, manifest_name(session)}
    assert set(objects) == known


@pytest.mark.long
def test_killed_at_fifteen_random_moments(tmp_path, s3_server, bucket):
    kill(tmp_path, s3_server, bucket, 15, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_at_two_hundred_random_moments(tmp_path, s3_server, bucket):
    kill(tmp_path, s3_server, bucket, 200, 2)


MEASURE = """
import sys
from mala_context.archive.remote.address import Target
from mala_context.archive.store import TranscriptArchive

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

size, address, base = int(sys.argv[1]), sys.argv[2], sys.argv[3]
row = b'{"text":"' + b"x" * 1_000_000 + b'"}\\n'
with open(base + "/s1.jsonl", "wb") as file:
    for _ in range(size):
        file.write(row)
target = Target(address=address, prefix="")
archive = TranscriptArchive(base + "/a", target=target, projects_dirs=[])
archive.archive(base + "/s1.jsonl", "s1")
archive.bucket().size("none")
before = status("VmRSS")
result = archive.push()
assert result.pending == (), result
archive.prune(session_ids=["s1"], dry_run=False)
from mala_context.archive.verify import verify_archive
assert verify_archive(archive).ok
print(round(status("VmHWM") - before))
"""


def growth(tmp_path, s3_server, bucket, megabytes):
    """MB of memory that sending and reading back one piece of this size takes at most."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.replace("\\\\", "\\"), str(megabytes), f"s3://{bucket}", str(tmp_path)],
        env={**os.environ, **environment(s3_server.port)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


@pytest.mark.long
def test_memory_stays_flat(tmp_path, s3_server, bucket):
    assert growth(tmp_path, s3_server, bucket, 64) < 64


@pytest.mark.long
def test_memory_stays_flat_with_half_a_gigabyte(tmp_path, s3_server, bucket):
    assert growth(tmp_path, s3_server, bucket, 500) < 64


def test_the_doctor_writes_reads_and_removes(tmp_path, proxy, s3_server, bucket):
    config = ContextConfig(archive=ArchiveConfig(directory=f"s3://{bucket}/top", prefix="hosts/one"))
    env = {"MALA_RUNS_DIR": str(tmp_path)}
    (store,) = stores(str(tmp_path), config, env)
    assert (store.address, store.error) == (f"s3://{bucket}/top/hosts/one", None)
    assert stored(s3_server, bucket) == {}
    (store,) = stores(str(tmp_path), replace(config, archive=ArchiveConfig(directory="s3://nobodys/top")), env)
    assert store.error == "there is no such bucket"
