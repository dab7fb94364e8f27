"""Directories that must be there."""

import os

import pytest

from mala_context.cli.paths import ThereDirectory


def test_one_that_is_there(tmp_path):
    assert ThereDirectory().convert(str(tmp_path), None, None) == str(tmp_path)


def test_others(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError) as missing:
        ThereDirectory().convert(str(tmp_path / "none"), None, None)
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        ThereDirectory().convert(str(tmp_path / "file"), None, None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        ThereDirectory().convert(str(tmp_path), None, None)
