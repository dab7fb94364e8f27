"""What the scenarios measure and check, without a CLI."""

import os
from dataclasses import asdict
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.scenarios import SCENARIOS, compaction
from mala_context.cli.scenarios.archived import common_rows, examine
from mala_context.cli.scenarios.recording import CompactionRow, ResponseRow
from mala_context.cli.scenarios.report import Check, Report, Stage, ended_well, environment, percent_off

SESSION = "11111111-2222-3333-4444-555555555555"
ROW = b'{"type":"user"}\n'
BOUNDARY = b'{"type":"system","subtype":"compact_boundary","isSidechain":false}\n'


def response(tracked=100, received=100, *, turn=1, exact=True, estimates=None):
    return ResponseRow(turn, 1, "msg_1", tracked, received, exact, estimates or {})


def compacted(estimate, held, *, trigger="auto"):
    return CompactionRow(2, trigger, 190, 200, estimate, "estimate", 50, "msg_2", held)


def by_name(report_checks):
    return {check.name: check.ok for check in report_checks}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_played(name):
    module, line = SCENARIOS[name]
    assert callable(import_module(module).play)
    assert line


class TestPercentOff:
    @pytest.mark.parametrize(
        ("estimate", "truth", "percent"),
        [(110, 100, 10.0), (90, 100, -10.0), (100, 100, 0.0), (None, 100, None), (100, None, None), (100, 0, None)],
    )
    def test_values(self, estimate, truth, percent):
        assert percent_off(estimate, truth) == percent


class TestResponseRow:
    def test_equal_counts_are_exact(self):
        row = response().as_dict()
        assert row["exact"] is True
        assert row["difference"] == 0
        assert "estimates" not in row

    def test_a_count_that_is_off_is_not(self):
        row = response(99).as_dict()
        assert row["exact"] is False
        assert row["difference"] == -1

    def test_a_right_guess_is_not_exact(self):
        assert not response(exact=False).exact

    def test_a_response_that_was_not_tracked(self):
        row = response(None).as_dict()
        assert row["exact"] is False
        assert row["difference"] is None

    def test_estimates_are_there_when_they_were_asked_for(self):
        assert response(estimates={"occupancy": 100}).as_dict()["estimates"] == {"occupancy": 100}


class TestChecks:
    def test_a_report_is_as_good_as_its_worst_check(self):
        good, bad = Check("a", ok=True, words=""), Check("b", ok=False, words="")
        assert Report({}, [], [good]).ok
        assert not Report({}, [], [good, bad]).ok

    def test_responses(self):
        assert compaction._exact_check([response(), response()]).ok
        assert not compaction._exact_check([response(), response(99)]).ok
        assert not compaction._exact_check([response(None)]).ok
        assert not compaction._exact_check([]).ok

    def test_turns(self):
        assert ended_well([]).ok
        failed = ended_well(["turn 2: overloaded"])
        assert not failed.ok
        assert "turn 2: overloaded" in failed.words

    def test_compaction(self):
        assert compaction._compaction_check([compacted(100, 100)]).ok
        assert not compaction._compaction_check([compacted(100, 100, trigger="manual")]).ok
        assert not compaction._compaction_check([]).ok

    @pytest.mark.parametrize(
        ("estimate", "held", "ok"),
        [
            (105, 100, True),
            (95, 100, True),
            (106, 100, False),
            (94, 100, False),
            (None, 100, False),
            (100, None, False),
        ],
    )
    def test_estimate(self, estimate, held, ok):
        assert compaction._estimate_check([compacted(100, 100), compacted(estimate, held)]).ok is ok

    def test_no_compaction_is_no_estimate(self):
        assert not compaction._estimate_check([]).ok

    def test_no_archive(self):
        assert by_name(compaction._archive_checks(None)) == {"archive_written": False}


class TestFormulaErrors:
    def test_without_estimates(self):
        assert compaction.formula_errors([response()]) == {}

    def test_median_and_worst_by_size(self):
        rows = [response(estimates={"characters": value, "total_tokens": None}) for value in (50, 99, 101)]
        assert compaction.formula_errors(rows) == {
            "characters": {"median_error_percent": 1.0, "worst_error_percent": 50.0},
            "total_tokens": {"median_error_percent": None, "worst_error_percent": None},
        }


@given(st.lists(st.sampled_from([b"a\n", b"b\n", b"\xe2\x80\xa8\r\n"])), st.binary(max_size=6))
def test_rows_that_are_held(rows, more):
    expected = b"".join(rows)
    assert common_rows(expected, expected + more) == len(rows)
    for count in range(len(rows)):
        held = b"".join(rows[:count]) + b"x\n" + b"".join(rows[count:])
        assert common_rows(expected, held) == count


class TestExamine:
    @pytest.fixture
    def transcript(self, tmp_path):
        return tmp_path / f"{SESSION}.jsonl"

    @pytest.fixture
    def archive(self, tmp_path):
        return TranscriptArchive(tmp_path / "archives")

    def test_a_session_archived_before_its_compaction_and_at_its_end(self, archive, transcript):
        transcript.write_bytes(ROW * 3)
        archive.archive(transcript, SESSION, trigger="auto")
        transcript.write_bytes(ROW * 4 + BOUNDARY + ROW)
        archive.archive(transcript, SESSION, trigger="session_end", final=True)
        found = examine(archive, SESSION, transcript.read_bytes())
        assert found.private
        assert found.whole_transcript
        assert (found.rows_before_compaction, found.rows_held, found.rows_held_before_it_began) == (4, 4, 3)
        assert [piece["mode"] for piece in asdict(found)["pieces"]] == ["0600", "0600"]
        assert asdict(found)["directory_mode"] == "0700"
        assert all(by_name(compaction._archive_checks(found)).values())

    def test_an_archive_that_others_can_read(self, archive, transcript):
        transcript.write_bytes(ROW + BOUNDARY)
        piece = archive.archive(transcript, SESSION, trigger="auto").path
        os.chmod(piece, 0o644)
        checks = by_name(compaction._archive_checks(examine(archive, SESSION, transcript.read_bytes())))
        assert checks == {"archive_private": False, "archive_holds_all_rows": True, "archive_whole": True}

    def test_an_archive_that_lacks_a_row(self, archive, transcript):
        transcript.write_bytes(ROW)
        archive.archive(transcript, SESSION, trigger="auto")
        transcript.write_bytes(ROW * 2 + BOUNDARY)
        found = examine(archive, SESSION, transcript.read_bytes())
        assert (found.rows_before_compaction, found.rows_held) == (2, 1)
        checks = by_name(compaction._archive_checks(found))
        assert checks == {"archive_private": True, "archive_holds_all_rows": False, "archive_whole": False}

    def test_a_subagents_transcript_is_not_the_sessions(self, archive, transcript, tmp_path):
        transcript.write_bytes(ROW + BOUNDARY)
        other = tmp_path / "agent-a1.jsonl"
        other.write_bytes(ROW)
        archive.archive(transcript, SESSION, trigger="auto")
        archive.archive(other, SESSION, trigger="subagent_end", subagent="a1", final=True)
        assert len(examine(archive, SESSION, transcript.read_bytes()).pieces) == 1

    def test_nothing_archived(self, archive, transcript):
        found = examine(archive, SESSION, ROW + BOUNDARY)
        assert found.pieces == ()
        assert by_name(compaction._archive_checks(found)) == {"archive_written": False}


def test_a_stage_makes_private_places(tmp_path):
    stage = Stage(os.fspath(tmp_path), 3)
    place = stage.place("home")
    assert os.stat(place).st_mode & 0o777 == 0o700
    assert stage.place("home") == place
    stage.on_turn(1)
    stage.on_snapshot(None)


def test_a_variable_is_put_back(monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    for before in (None, "/somewhere"):
        if before:
            monkeypatch.setenv("CLAUDE_CONFIG_DIR", before)
        with environment("CLAUDE_CONFIG_DIR", "/elsewhere"):
            assert os.environ["CLAUDE_CONFIG_DIR"] == "/elsewhere"
        assert os.environ.get("CLAUDE_CONFIG_DIR") == before


@pytest.mark.long
async def test_the_main_job_with_every_formula(tmp_path):
    """On the real CLI; `test_cli_demo.py` plays it as a command."""
    turns = []
    stage = Stage(str(tmp_path), turns=8, estimators=True, on_turn=turns.append)
    report = await compaction.play(stage)
    assert report.ok, [check.words for check in report.checks if not check.ok]
    assert turns == list(range(1, 9))
    assert len(report.data["compactions"]) == 1
    assert set(report.data["estimators"]) >= {"occupancy", "cumulative", "max_cache_read"}
    assert report.data["archive"]["pieces"]
