"""What lies beside a transcript."""

import hashlib
import os
import stat

import pytest

from mala_context.archive import side_files
from mala_context.archive.store import TranscriptArchive
from tests.helpers.archive_tools import cat, names, rows


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "s1.jsonl"
    path.write_bytes(rows(0, 3))
    (tmp_path / "s1" / "tool-results").mkdir(parents=True)
    (tmp_path / "s1" / "subagents").mkdir()
    (tmp_path / "s1" / "tool-results" / "a.txt").write_bytes(b"result")
    (tmp_path / "s1" / "tool-results" / "b.txt").write_bytes(b"result")
    (tmp_path / "s1" / "subagents" / "agent-a1.jsonl").write_bytes(rows(10, 13))
    (tmp_path / "s1" / "subagents" / "agent-a1.meta.json").write_bytes(b"{}")
    return path


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(tmp_path / "archives")


def test_each_content_is_kept_once_and_each_path_is_listed(archive, transcript):
    archive.archive_session(transcript, "s1")
    files = archive.manifest("s1").of_kind("file")
    digest = hashlib.sha256(b"result").hexdigest()
    assert {row["path"]: row["sha256"] for row in files if "tool" in row["path"]} == {
        "tool-results/a.txt": digest,
        "tool-results/b.txt": digest,
    }
    assert {row["path"] for row in files} == {
        "tool-results/a.txt", "tool-results/b.txt", "subagents/agent-a1.meta.json",
    }  # fmt: skip
    kept = [name for name in names(archive, "") if ".file-" in name]
    assert len(kept) == 2
    assert f"s1.file-{digest}" in kept
    assert stat.S_IMODE(os.stat(f"{archive.location}/{kept[0]}").st_mode) == 0o600
    assert cat(archive, subagent="a1") == rows(10, 13)


def test_what_is_unchanged_is_not_read_again(archive, transcript, monkeypatch):
    archive.archive_session(transcript, "s1")
    before = archive.manifest("s1").rows
    monkeypatch.setattr(side_files, "_keep", None)
    assert archive.archive_side_files(str(transcript), "s1") == []
    assert archive.manifest("s1").rows == before


def test_what_changed_is_kept_beside_what_was(archive, transcript, tmp_path):
    archive.archive_session(transcript, "s1")
    (tmp_path / "s1" / "tool-results" / "a.txt").write_bytes(b"another")
    (tmp_path / "s1" / "subagents" / "agent-a1.jsonl").write_bytes(rows(10, 15))
    (result,) = archive.archive_side_files(str(transcript), "s1")
    assert result.offset == len(rows(10, 13))
    assert len([name for name in names(archive, "") if ".file-" in name]) == 3


def test_a_kept_file_that_was_deleted_is_kept_again(archive, transcript):
    archive.archive_session(transcript, "s1")
    for name in names(archive, ""):
        if ".file-" in name:
            os.unlink(f"{archive.location}/{name}")
    archive.archive_side_files(str(transcript), "s1")
    assert len([name for name in names(archive, "") if ".file-" in name]) == 2


def test_links_are_not_followed_and_other_files_do_not_matter(archive, transcript, tmp_path, caplog):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(b"private")
    os.symlink(secret, tmp_path / "s1" / "linked")
    os.symlink(secret / "key", tmp_path / "s1" / "tool-results" / "c.txt")
    os.mkfifo(tmp_path / "s1" / "pipe")
    (tmp_path / "s1" / "empty").write_bytes(b"")
    (tmp_path / "s1" / "subagents" / "agent-x y.jsonl").write_bytes(rows(0, 1))
    deep = tmp_path / "s1" / "1" / "2" / "3" / "4" / "5"
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(b"too deep")
    archive.archive_session(transcript, "s1")
    paths = {row["path"] for row in archive.manifest("s1").of_kind("file")}
    assert paths == {"tool-results/a.txt", "tool-results/b.txt", "subagents/agent-a1.meta.json"}
    assert "cannot name a file" in caplog.text


def test_a_file_swapped_for_a_link_after_the_look_is_passed_over(archive, transcript, tmp_path, caplog):
    with archive.store(create=True).lock("s1", 1) as files:
        (tmp_path / "gone").write_bytes(b"x")
        os.symlink(tmp_path / "gone", tmp_path / "link")
        assert side_files.keep_side_files(files, [("link", str(tmp_path / "link")), ("no", "/nowhere")], 1) == []
    assert caplog.text.count("not archived") == 2


def test_too_many_files_are_said(transcript, monkeypatch, caplog):
    monkeypatch.setattr(side_files, "MOST", 2)
    assert len(list(side_files.walk(str(transcript)))) == 2
    assert "More than 2 files" in caplog.text


def test_a_transcript_without_a_directory_has_nothing_beside_it(archive, tmp_path):
    assert list(side_files.walk(str(tmp_path / "other.jsonl"))) == []
    assert archive.archive_side_files(str(tmp_path / "other.jsonl"), "s1") == []
    assert not os.path.exists(archive.location)


@pytest.mark.parametrize(
    ("name", "subagent"),
    [
        ("subagents/agent-a.jsonl", "a"),
        ("agent-a.jsonl", None),
        ("subagents/agent-a.txt", None),
        ("subagents/a.jsonl", None),
    ],
)
def test_subagents_are_told_by_their_place(name, subagent):
    assert side_files.subagent_of(name) == subagent
