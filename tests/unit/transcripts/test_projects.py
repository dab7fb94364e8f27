"""The CLI's project folders; the names were made by CLI 2.1.332."""

import os

import pytest

from mala_context.transcripts.projects import find_transcript, folder_name, folder_of, projects_dir


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/home/cyou/mala", "-home-cyou-mala"),
        ("/tmp/exp/a/pro ject_ü.x", "-tmp-exp-a-pro-ject---x"),
        ("/tmp/exp/enc/emo😀ji", "-tmp-exp-enc-emo--ji"),
        ("/tmp/exp/enc/e\u0301.dir", "-tmp-exp-enc-e--dir"),
        (f"/tmp/exp/enc/{'x' * 190}/{'y' * 30}", ("-tmp-exp-enc-" + "x" * 190)[:200] + "-jyb333"),
        (f"/tmp/exp/enc/{'x' * 190}/{'y' * 40}", ("-tmp-exp-enc-" + "x" * 190)[:200] + "-bixhc1"),
    ],
)
def test_folders_are_named_as_the_cli_names_them(cwd, folder):
    assert folder_name(cwd) == folder


def test_a_link_has_the_folder_of_what_it_leads_to(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert folder_of("/p", str(tmp_path / "link")) == folder_of("/p", str(tmp_path / "real"))


def test_a_folder_of_another_hash_counts_for_a_long_name(tmp_path):
    cwd = "/" + "x" * 300
    assert folder_of(str(tmp_path / "none"), cwd) == str(tmp_path / "none" / folder_name(cwd))
    other = tmp_path / (folder_name(cwd)[:201] + "other")
    other.mkdir()
    assert folder_of(str(tmp_path), cwd) == str(other)
    own = tmp_path / folder_name(cwd)
    own.mkdir()
    assert folder_of(str(tmp_path), cwd) == str(own)


def test_the_projects_directory_is_the_transcripts_if_it_is_still_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "own"))
    there = tmp_path / "other" / "projects"
    transcript = str(there / "-x" / "s.jsonl")
    assert projects_dir(transcript) == str(tmp_path / "own" / "projects")
    there.mkdir(parents=True)
    assert projects_dir(transcript) == str(there)
    assert projects_dir(transcript, tmp_path) == os.fspath(tmp_path)
    assert projects_dir(None) == str(tmp_path / "own" / "projects")


def test_a_transcript_is_found_by_exactly_its_name(tmp_path):
    for folder in ("-w", "-other", "-link"):
        (tmp_path / folder).mkdir()
    (tmp_path / "-w" / "s1.jsonl.bak").write_bytes(b"x")
    (tmp_path / "-w" / "xs1.jsonl").write_bytes(b"x")
    (tmp_path / "-w" / "s2.jsonl").mkdir()
    (tmp_path / "file.jsonl").write_bytes(b"x")
    dirs = [str(tmp_path), str(tmp_path / "nowhere")]
    assert find_transcript("s1", projects_dirs=dirs) is None
    assert find_transcript("s2", projects_dirs=dirs) is None
    (tmp_path / "-other" / "s1.jsonl").write_bytes(b"x")
    os.symlink(tmp_path / "file.jsonl", tmp_path / "-link" / "s1.jsonl")
    assert find_transcript("s1", projects_dirs=dirs) == str(tmp_path / "-other" / "s1.jsonl")
    (tmp_path / "-w" / "s1.jsonl").write_bytes(b"x")
    os.utime(tmp_path / "-w" / "s1.jsonl", (1, 1))
    assert find_transcript("s1", projects_dirs=dirs) == str(tmp_path / "-other" / "s1.jsonl")
    assert find_transcript("s1", projects_dirs=dirs, cwd="/w") == str(tmp_path / "-w" / "s1.jsonl")


def test_the_projects_are_the_clis(tmp_path, monkeypatch):
    folder = tmp_path / ".claude" / "projects" / "-a-b-c"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_bytes(b"x")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_transcript("s1", cwd="/a/b.c") == str(folder / "s1.jsonl")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    monkeypatch.setenv("HOME", "/")
    assert find_transcript("s1") == str(folder / "s1.jsonl")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    assert find_transcript("s1") is None
