"""What is noted of uploads stands in manifests, here and in the store: rows that others write lead nowhere."""

import contextlib
import io
import os
import stat
import threading
import uuid

import pytest

from mala_context.archive import manifests
from mala_context.archive.layout import manifest_name
from mala_context.archive.remote import push
from mala_context.archive.remote.address import Target
from mala_context.archive.remote.bucket import Bucket
from mala_context.archive.remote.uploaded import elsewhere, uploads
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.errors import ArchiveUnavailableError, ObjectStoreError
from tests.helpers.small_transcripts import SID, dump, message, session
from tests.security.hostile import EVIL

OTHER = "6d616c61-0000-4000-8000-00000000000e"


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive with a session of two pieces and a store; nothing is uploaded yet."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    made = TranscriptArchive(tmp_path / "archives", target=Target(address=f"memory://{uuid.uuid4().hex}", prefix="x"))
    path = tmp_path / "claude" / "projects" / "-p" / f"{SID}.jsonl"
    path.parent.mkdir(parents=True)
    for number in (1, 2):
        with path.open("ab") as file:
            file.write(dump([message(number, f"turn {number}")]))
        made.archive(str(path), SID, trigger="auto")
    made.transcript = path
    return made


def as_written(rows):
    return manifests.dump({"v": 1, **row} for row in rows)


def add_rows(archive, *rows):
    with open(os.path.join(archive.location, manifest_name(SID)), "ab") as file:
        file.write(as_written(rows))


def cat(archive, *, here=False):
    """The session as its pieces have it, those that are here alone where `here` says so."""
    found = b""
    with archive.view(SID) as files:
        for piece in archive.pieces(SID):
            if not here or piece.remote is None:
                with contextlib.closing(files.open(piece.name)) as reader:
                    found += reader.read()
    return found


def uploaded_row(name, to="memory://elsewhere", **fields):
    return {"row": "uploaded", "name": name, "to": to, "length": 7, "sha256": "0" * 64, **fields}


ROWS = [
    uploaded_row("../../../etc/passwd", "file:///etc"),
    uploaded_row("/etc/passwd", "file:///"),
    uploaded_row(f"{OTHER}_20260101T000000.000000Z_transcript.jsonl", "file:///etc"),
    uploaded_row(f"{SID}_20260101T000000.000000Z_transcript.jsonl/../../x", "file:///etc"),
    uploaded_row(f"{SID}_20260101T000000.000000Z_transcript.jsonl", "http://169.254.169.254/"),
    uploaded_row(f"{SID}_20260101T000001.000000Z_transcript.jsonl", EVIL),
    uploaded_row(f"{SID}_20260101T000002.000000Z_transcript.jsonl", "s3://key:hunter2@b"),
    uploaded_row(EVIL, EVIL),
    uploaded_row(f"{SID}_20260101T000003.000000Z_transcript.jsonl", length=10**30),
    uploaded_row(f"{SID}_20260101T000004.000000Z_transcript.jsonl", length=-1),
    uploaded_row(["x"], {"to": []}),
    uploaded_row(manifest_name(SID), EVIL),
]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_an_uploads_row_leads_to_no_other_file(row, archive):
    """It may name an object that is not there; it never names a file of this machine or of another session."""
    add_rows(archive, row)
    with archive.view(SID) as files:
        named = [file.name for file in files.list() if file.remote is not None]
        assert all(name.startswith(f"{SID}_") and "/" not in name for name in named)
        for name in named:
            with pytest.raises((OSError, ObjectStoreError)) as raised:
                files.open(name)
            assert "hunter2" not in str(raised.value)
    with archive.transcript.open("ab") as file:
        file.write(dump([message(3, "more")]))
    before = archive.transcript.read_bytes()
    assert archive.archive(str(archive.transcript), SID).archived, "the session goes on"
    archive.push()
    assert {each.name for each in archive.bucket().list()} >= {piece.name for piece in archive.pieces(SID)} - set(named)
    assert cat(archive, here=True).endswith(before[-100:])


def test_what_a_stores_manifest_says_of_this_machine_is_not_taken(archive, tmp_path):
    """Whoever can write to the store cannot have a file of this machine sent there, or a piece here disbelieved."""
    secret = tmp_path / "id_rsa"
    secret.write_bytes(b"PRIVATE KEY\n")
    archive.push()
    bucket, name = archive.bucket(), manifest_name(SID)
    there = manifests.parse(bucket.read(name)).rows
    first = next(row for row in there if row["row"] == "piece")
    planted = [
        *there,
        {**first, "sha256": "0" * 64, "length": 1, "offset": 5, "transcript": str(secret)},
        {**first, "name": f"{SID}_20990101T000000.000000Z_transcript.jsonl", "transcript": str(secret)},
        {"v": 1, "row": "session", "transcript": str(secret), "cwd": "/", "pid": 1, "host": os.uname().nodename},
        {"v": 1, "row": "removing", "names": [first["name"]]},
        {"v": 1, "row": "outcome", "outcome": "compacted", "piece": first["name"], "tokens_after": 7},
    ]
    data = as_written(planted)
    bucket.put(name, io.BytesIO(data), len(data))
    os.unlink(os.path.join(archive.location, name))
    with archive.transcript.open("ab") as file:
        file.write(dump([message(3, "more")]))
    archive.archive(str(archive.transcript), SID)
    archive.push()
    manifest = archive.manifest(SID)
    assert [row["tokens_after"] for row in manifest.of_kind("outcome")] == [7], "the manifest was not taken at all"
    assert str(secret) not in str(manifest.rows)
    assert first["name"] not in manifest.removed()
    assert cat(archive) == archive.transcript.read_bytes()
    assert {each.kind for each in verify_archive(archive).problems} <= {"gone", "missing"}
    list(archive.catch_up(session_ids=[SID]))
    archive.push()
    assert not [each for each in bucket.list() if b"PRIVATE KEY" in (bucket.read(each.name) or b"")]
    assert b"PRIVATE KEY" not in cat(archive)


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symlink", "hardlink"])
def test_a_link_in_place_of_the_manifest_is_not_written_through(make, archive, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep me\n")
    victim.chmod(0o644)
    manifest = os.path.join(archive.location, manifest_name(SID))
    os.unlink(manifest)
    make(victim, manifest)
    try:
        archive.push()
    except ArchiveUnavailableError:
        assert make is os.symlink
    assert (victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (b"keep me\n", 0o644)
    assert not [each for each in archive.bucket().list() if archive.bucket().read(each.name) == b"keep me\n"]


def test_an_archive_swapped_for_a_link_sends_nothing_from_behind_it(archive, tmp_path):
    behind = tmp_path / "behind"
    behind.mkdir(mode=0o755)
    (behind / f"{SID}_20260101T000000.000000Z_transcript.jsonl").write_bytes(b"not of this archive\n")
    os.rename(archive.location, tmp_path / "aside")
    os.symlink(behind, archive.location)
    with pytest.raises(ArchiveUnavailableError, match="symbolic link"):
        archive.push()
    assert list(archive.bucket().list()) == []
    assert stat.S_IMODE(behind.stat().st_mode) == 0o755


@pytest.mark.long
def test_an_archive_swapped_again_and_again_sends_nothing_from_behind(archive, tmp_path):
    """Another thread swaps the directory for one with the same names all the while."""
    behind, aside = tmp_path / "behind", tmp_path / "aside"
    behind.mkdir()
    for name in os.listdir(archive.location):
        (behind / name).write_bytes(b"not of this archive\n")
    over = threading.Event()

    def swap():
        while not over.is_set():
            os.rename(archive.location, aside)
            os.symlink(behind, archive.location)
            os.unlink(archive.location)
            os.rename(aside, archive.location)

    racer = threading.Thread(target=swap)
    racer.start()
    refused = 0
    try:
        for _ in range(40):
            try:
                archive.push()
            except (ArchiveUnavailableError, FileNotFoundError):
                refused += 1
    finally:
        over.set()
        racer.join()
    archive.push()
    bucket = archive.bucket()
    assert not [each.name for each in bucket.list() if b"not of this" in (bucket.read(each.name) or b"")]
    assert all((behind / name).read_bytes() == b"not of this archive\n" for name in os.listdir(behind))
    assert set(os.listdir(behind)) == {name for name in os.listdir(archive.location) if not name.startswith(".")}


@pytest.mark.parametrize("uploaded", [False, True])
def test_an_archive_that_is_moved_for_a_moment_empties_no_manifest_in_the_store(archive, monkeypatch, uploaded):
    if uploaded:
        archive.push()
        add_rows(archive, {"row": "session", "cwd": "/w"})
    sizes, send = [], push._Sender._send_manifest

    def moved(sender):
        monkeypatch.setattr(push._Sender, "_send_manifest", send)
        os.rename(archive.location, f"{archive.location}.aside")
        try:
            return send(sender)
        finally:
            os.rename(f"{archive.location}.aside", archive.location)

    def put(bucket, name, reader, size, put=Bucket.put):
        sizes.append(size)
        put(bucket, name, reader, size)

    monkeypatch.setattr(push._Sender, "_send_manifest", moved)
    monkeypatch.setattr(Bucket, "put", put)
    assert archive.push().pending == ()
    assert sizes
    assert min(sizes) > 0


@pytest.mark.parametrize("made_before", [False, True])
def test_a_folder_as_a_store_is_private(made_before, umask, tmp_path):
    """Under any umask, and where somebody made the folder first."""
    store = tmp_path / "store"
    if made_before:
        store.mkdir()
        store.chmod(0o777)
    transcript = tmp_path / f"{SID}.jsonl"
    transcript.write_bytes(dump(session(2)))
    archive = TranscriptArchive(tmp_path / "archives", target=Target(address=f"file://{store}", prefix=""))
    archive.archive(str(transcript), SID)
    assert archive.push().files == 2
    for top in (store, tmp_path / "archives"):
        assert stat.S_IMODE(top.stat().st_mode) == 0o700
        assert {stat.S_IMODE(each.stat().st_mode) for each in top.iterdir()} == {0o600}
    assert sorted(os.listdir(store)) == sorted(os.listdir(tmp_path / "archives"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("theirs", ["store", "store/host", "store/host/repo", "a link to the host"])
def test_a_store_below_a_folder_of_another_user_is_refused(theirs, archive, tmp_path):
    """He could put any other folder in its place. What he finds afterwards is what he left there."""
    folder = tmp_path / "store" / "host" / "repo"
    if theirs.startswith("a link"):
        folder.parent.parent.mkdir()
        (tmp_path / "elsewhere").mkdir()
        folder.parent.symlink_to(tmp_path / "elsewhere")
        os.chown(folder.parent, 65_534, 65_534, follow_symlinks=False)
    else:
        (tmp_path / theirs).mkdir(parents=True)
        os.chown(tmp_path / theirs, 65_534, 65_534)
        (tmp_path / theirs).chmod(0o777)
    before = sorted(tmp_path.joinpath("store").rglob("*"))
    refused = TranscriptArchive(
        archive.location, target=Target(address=f"file://{tmp_path / 'store'}", prefix="host/repo")
    )
    with pytest.raises(ObjectStoreError, match="belongs to user 65534, not to us"):
        refused.push()
    with pytest.raises(ObjectStoreError, match="belongs to user"):
        refused.bucket().remove("x")
    assert sorted(tmp_path.joinpath("store").rglob("*")) == before
    assert not (tmp_path / "elsewhere" / "repo").exists()


def test_a_row_of_any_kind_is_read():
    """The pure half of the first test, on what `uploads` and `elsewhere` make of all rows at once."""
    data = as_written(ROWS)
    assert all(isinstance(name, str) for name in uploads(manifests.parse(data)))
    names = [file.name for file in elsewhere(SID, data, [])]
    assert names
    assert all(name.startswith(f"{SID}_") and "/" not in name for name in names)
