"""How a compaction ended, written down; and one whose hook did not run."""

import json

import pytest

from mala_context.archive.store import TranscriptArchive
from mala_context.errors import TranscriptError

SID = "s1"


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(directory=tmp_path / "archives")


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"type": "user"}) + "\n")
    return str(path)


def outcomes(archive):
    return archive.manifest(SID).of_kind("outcome")


class TestNote:
    def test_it_is_that_of_the_newest_piece_that_waits_for_one(self, archive, transcript):
        archive.archive(transcript, SID, trigger="auto")
        archive.record_outcome(SID, "compacted", trigger="auto", summary="Done.")
        (row,) = outcomes(archive)
        (piece,) = archive.pieces(SID)
        assert (row["outcome"], row["piece"], row["summary"]) == ("compacted", piece.name, "Done.")

    def test_without_such_a_piece_it_is_of_none(self, archive):
        archive.record_outcome(SID, "failed", error="no")
        (row,) = outcomes(archive)
        assert (row["outcome"], row.get("piece")) == ("failed", None)

    def test_one_that_there_is_not_is_refused_with_those_that_there_are(self, archive):
        with pytest.raises(ValueError, match=r"must be one of .*compacted"):
            archive.record_outcome(SID, "vanished")


class TestSeen:
    def test_behind_a_hook_that_ran_only_the_outcome_is_new(self, archive, transcript):
        archive.archive(transcript, SID, trigger="auto")
        result = archive.compaction_seen(transcript, SID, trigger="auto", measure=lambda: {"files": 1})
        assert result is None
        assert [(row["outcome"], row["lost"]) for row in outcomes(archive)] == [("compacted", {"files": 1})]

    def test_one_without_its_hook_is_archived_now_and_named(self, archive, transcript):
        result = archive.compaction_seen(transcript, SID, trigger="auto", measure=lambda: {"files": 2})
        (row,) = outcomes(archive)
        (piece,) = archive.pieces(SID)
        assert (row["outcome"], row["piece"], row["lost"]) == ("hook_skipped", piece.name, {"files": 2})
        assert result.path.endswith(piece.name)

    def test_nothing_is_said_of_a_loss_that_nobody_measures(self, archive, transcript):
        archive.compaction_seen(transcript, SID, trigger="auto")
        assert "lost" not in outcomes(archive)[0]

    def test_where_nothing_can_be_archived_that_is_written_down_and_raised(self, archive, tmp_path):
        with pytest.raises(TranscriptError):
            archive.compaction_seen(str(tmp_path / "gone.jsonl"), SID, trigger="auto")
        (row,) = outcomes(archive)
        assert row["outcome"] == "hook_skipped"
        assert "gone.jsonl" in row["error"]
