"""What the `archive:` section comes to."""

import pytest

from mala_context.archive.remote.address import is_address
from mala_context.config import ArchiveConfig, Retention, archive_of, target_of


@pytest.mark.parametrize(
    ("directory", "place"),
    [(None, "runs/*/archives"), ("kept", "repo/kept"), ("s3://bucket/x", "runs/*/archives"), ("~/kept", "home/kept")],
)
def test_where_archives_are_kept(tmp_path, monkeypatch, directory, place):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("repo", "home", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text("{}\n")
    archive_of(tmp_path / "repo", ArchiveConfig(directory=directory)).archive(str(transcript), "s1")
    assert len(list(tmp_path.glob(f"{place}/s1_*"))) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_how_they_are_kept(tmp_path):
    config = ArchiveConfig(mode="full", compress="zstd", keep=Retention(days=3), warn_bytes=5)
    archive = archive_of(tmp_path, config)
    assert (archive.mode, archive.compress, archive.warn_bytes) == ("full", "zstd", 5)
    assert archive.keep == {"days": 3, "bytes": None}
    assert archive_of(tmp_path, ArchiveConfig()).keep is None


def test_an_address_is_an_object_store_behind_the_folder(tmp_path):
    config = ArchiveConfig(directory="s3://bucket/x", prefix="p", encryption="aws:kms", kms_key="k")
    target = target_of(config)
    assert (target.address, target.prefix, target.encryption, target.kms_key) == ("s3://bucket/x", "p", "aws:kms", "k")
    assert archive_of(tmp_path, config).target == target
    assert is_address("s3://bucket/x")


@pytest.mark.parametrize("directory", [None, "kept", "/kept"])
def test_a_folder_is_none(directory):
    assert target_of(ArchiveConfig(directory=directory)) is None
    assert not is_address(directory)
