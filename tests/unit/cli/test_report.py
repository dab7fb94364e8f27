"""`mala-context report`: what is written where, and what is refused."""

import json
import os
import stat

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from tests.helpers.recordings import OTHER, SID, plain


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.delenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", raising=False)
    monkeypatch.chdir(tmp_path)
    plain().write(tmp_path / "in" / f"{SID}.jsonl")
    return tmp_path


def run(*arguments, status=0):
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stderr if status == 3 else result


def test_the_page_is_written_whole_private_and_said(place):
    result = run("in")
    page = place / "report.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert page.read_text().endswith("</html>\n")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert result.stdout == ""
    assert "report.html: 2.0 MB" in result.stderr
    assert sorted(os.listdir(place)) == ["in", "report.html"]


def test_an_existing_file_is_replaced_in_one_step(place):
    (place / "a.svg").write_text("old")
    run("in", "-o", "a.svg")
    assert (place / "a.svg").read_text().startswith("<svg")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(place, monkeypatch):
    (place / "a.html").write_text("old")

    def broken(_report):
        yield "half"
        raise KeyboardInterrupt

    monkeypatch.setattr("mala_context.analysis.report.page.page", broken)
    result = CliRunner().invoke(app, ["report", "in", "-o", "a.html"])
    assert result.exit_code == 130
    assert (place / "a.html").read_text() == "old"
    assert sorted(os.listdir(place)) == ["a.html", "in"]


def test_a_dash_prints_the_page(place):
    assert run("in", "-o", "-").stdout.startswith("<!DOCTYPE html>")
    assert os.listdir(place) == ["in"]


def test_json_prints_the_data(place):
    found = json.loads(run("in", "--json", "--warn-at", "0.1", "--auto-compact-window", "100000").stdout)
    (session,) = found["sessions"]
    assert (session["session_id"], session["threshold"], session["threshold_acts"]) == (SID, 67_000, True)
    assert [mark["kind"] for mark in session["marks"]] == ["warning"] * len(session["marks"])


def test_the_threshold_of_the_configuration_is_marked(place):
    (place / "mala.yaml").write_text("context:\n  warn_at: 0.1\n")
    assert json.loads(run("in", "--json").stdout)["sessions"][0]["warn_at"] == 0.1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["in", "-o", "a.pdf"], "end in .html, .svg or .png"),
        (["in", "-o", "none/a.html"], "there is no folder none"),
        (["in", "-o", "in.html"], "it is a folder"),
        (["in", "--json", "-o", "a.html"], "exclude each other"),
        (["in", "--warn-at", "70"], "0.7 for 70 %"),
        (["in", "--since", "7d"], "name no PATH"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(place, arguments, words):
    (place / "in.html").mkdir()
    assert words in run(*arguments, status=2).stderr


def test_an_empty_folder_and_an_unknown_name_are_said(place):
    (place / "empty").mkdir()
    assert "no recorded session in empty" in run("empty", status=3)
    assert "no file or folder of this name" in run("deadbeef", status=3)
    assert "none.jsonl" in run("none.jsonl", status=3)


def test_a_session_of_the_archive_is_named_by_its_first_letters(place):
    archive = TranscriptArchive(place / "archives")
    archive.archive(str(place / "in" / f"{SID}.jsonl"), SID, trigger="session_end", agent="main")
    found = json.loads(run(SID[:6], "--dir", place / "archives", "--json").stdout)
    assert [each["session_id"] for each in found["sessions"]] == [SID]


def test_an_archive_elsewhere_is_read_through_a_pipe(place, monkeypatch):
    archive = TranscriptArchive(place / "archives")
    monkeypatch.setattr(TranscriptArchive, "location", "s3://bucket/runs")
    monkeypatch.setattr("mala_context.cli.report.find_session", lambda *_: (archive, SID))
    assert f"archives cat {SID} --dir s3://bucket/runs | mala-context report -" in run(SID[:6], status=3)


def test_a_place_that_cannot_be_written_is_named(place, monkeypatch):
    def full(_report):
        yield "half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mala_context.analysis.report.page.page", full)
    assert run("in", "-o", "a.html", status=3) == "mala-context: a.html: No space left on device\n"
    assert os.listdir(place) == ["in"]


def test_a_session_that_is_not_archived_is_found_by_its_transcript(place):
    plain(OTHER).write(place / "claude" / "projects" / "-p" / f"{OTHER}.jsonl")
    found = json.loads(run(OTHER, "--json").stdout)
    assert [each["session_id"] for each in found["sessions"]] == [OTHER]


def test_more_sessions_than_wanted_are_said(place):
    plain(OTHER).write(place / "in" / f"{OTHER}.jsonl")
    result = run("in", "--newest", "1", "-o", "a.svg")
    assert "the newest 1 of 2 sessions" in result.stderr


@pytest.mark.system
def test_a_png_is_made_by_cairo(place):
    run("in", "-o", "a.png")
    data = (place / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20]) == 1920
    assert int.from_bytes(data[20:24]) == 800


def test_the_page_is_opened_where_that_is_asked_for(place, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    run("in", "--open")
    assert opened == [(place / "report.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert "no browser could be started" in run("in", "--open", status=3)
    for wrong in (["--json"], ["-o", "-"]):
        assert "--open needs a file" in run("in", "--open", *wrong, status=2).output
