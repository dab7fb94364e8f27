"""`mala-context replay` without click says what it says with click."""

import sys

import pytest

from mala_context.cli import main
from mala_context.cli.session_lines import fast
from tests.helpers.recordings import SID, plain

WITHOUT_CLICK = [
    ["--totals"],
    ["--totals", "--format", "table"],
    ["--format", "json"],
    ["--format=ndjson", "--jobs", "1"],
    ["--format", "json", "no-such-file"],
]
WITH_CLICK = [
    [],
    ["--format", "csv"],
    ["--format", "xml"],
    ["--format", "json", "--trace"],
    ["--format", "json", "--jobs", "0"],
    ["--format", "json", "--jobs", "many"],
]


@pytest.fixture
def path(tmp_path):
    plain().write(tmp_path / f"{SID}.jsonl")
    return str(tmp_path)


def ended(capsys, monkeypatch, *arguments):
    """What `mala-context replay` writes to both streams, and its exit status."""
    monkeypatch.setattr(sys, "argv", ["mala-context", "replay", *arguments])
    with pytest.raises(SystemExit) as status:
        main()
    return *capsys.readouterr(), status.value.code


@pytest.mark.parametrize("arguments", WITHOUT_CLICK)
def test_the_answer_is_that_of_click(path, arguments, capsys, monkeypatch):
    found = ended(capsys, monkeypatch, path, *arguments)
    monkeypatch.setattr("mala_context.cli.session_lines.parsed", lambda *_, **__: None)
    assert found == ended(capsys, monkeypatch, path, *arguments)


@pytest.mark.parametrize("arguments", WITH_CLICK)
def test_click_answers_all_else(path, arguments):
    assert fast([path, *arguments]) is None
    assert fast(["--format", "json"]) is None  # this user's own sessions


def test_files_without_a_row_end_with_3(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.jsonl").write_text("no row\n")
    _, said, status = ended(capsys, monkeypatch, str(tmp_path), "--format", "json")
    assert "nothing could be read" in said
    assert status == 3
