"""Archives in S3, on loopback: what arrives, what breaks on the way, and that nothing is lost or doubled."""

import base64
import hashlib
import json
import logging
import os
import threading
import time
from datetime import timedelta

import pytest
from archive_tools import cat, names, rows
from s3_server import KEY_ID, SECRET

from mala_context.archive.layout import manifest_name
from mala_context.archive.manifest import parse
from mala_context.archive.remote.address import Target
from mala_context.archive.remote.bucket import PART
from mala_context.archive.remote.uploaded import uploads
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ObjectStoreError


@pytest.fixture
def archive(tmp_path, proxy, bucket):
    target = Target(address=f"s3://{bucket}/top", prefix="hosts/one")
    return TranscriptArchive(tmp_path / "archives", target=target)


@pytest.fixture
def transcript(tmp_path):
    return tmp_path / "s1.jsonl"


def grow(transcript, first, last):
    with open(transcript, "ab") as file:
        file.write(rows(first, last))


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
        try:
            archive.push()
        except ObjectStoreError as error:
            assert SECRET not in str(error)
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
