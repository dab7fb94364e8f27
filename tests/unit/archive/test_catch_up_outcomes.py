"""How a compaction ended, written down; and one whose hook did not run."""

import json

import pytest

from mala_context.archive import layout
from mala_context.archive.catch_up import close_compactions
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


class TestNothingNew:
    """PreCompact of a session that was just resumed: the end of the run before has archived all."""

    @pytest.fixture
    def compacted(self, transcript, tmp_path):
        """Each hook in a process of its own: the end of a session, both sides of a compaction, the next end."""
        directory = tmp_path / "archives"
        TranscriptArchive(directory=directory).archive_session(transcript, SID, trigger="session_end")
        assert TranscriptArchive(directory=directory).archive(transcript, SID, trigger="manual").reason == "nothing new"
        with open(transcript, "a") as file:
            file.write(json.dumps({"type": "user", "content": "/compact"}) + "\n")
        return TranscriptArchive(directory=directory)

    def boundary(self, transcript):
        meta = {"trigger": "manual", "preTokens": 9_000, "postTokens": 3_000}
        row = {"type": "system", "subtype": "compact_boundary", "compactMetadata": meta}
        with open(transcript, "a") as file:
            file.write(json.dumps(row) + "\n")

    def test_its_outcome_is_that_of_a_compaction_whose_hook_ran(self, compacted, transcript, caplog):
        assert compacted.compaction_seen(transcript, SID, trigger="manual", summary="Done.", once=True) is None
        assert compacted.compaction_seen(transcript, SID, trigger="manual", summary="Done.", once=True) is None
        (piece,) = compacted.pieces(SID)
        assert [(row["outcome"], row["piece"]) for row in outcomes(compacted)] == [("compacted", piece.name)]
        assert [record for record in caplog.records if record.levelname == "WARNING"] == []

    @pytest.mark.parametrize("told", [True, False])
    def test_it_counts_once_and_gets_its_sizes(self, compacted, transcript, told):
        """Also where the process that would have told the outcome was killed."""
        if told:
            compacted.compaction_seen(transcript, SID, trigger="manual", summary="Done.")
        self.boundary(transcript)
        piece = compacted.archive(transcript, SID, trigger="catch_up").path
        close_compactions(compacted, SID, piece.rpartition("/")[2])
        (row,) = outcomes(compacted)
        assert (row["outcome"], row["tokens_before"], row["tokens_after"]) == ("compacted", 9_000, 3_000)

    def test_it_is_written_down_once(self, compacted, transcript):
        end = len(compacted.manifest(SID).rows)
        compacted.archive(transcript, SID, trigger="catch_up")
        for _ in range(3):
            compacted.archive(transcript, SID, trigger="manual")
        assert [row["row"] for row in compacted.manifest(SID).rows[end:]] == ["piece", "nothing_new"]


class TestCountedOnce:
    """Hooks of one compaction in any order, with a catch-up of another session's start between any two of them."""

    @pytest.fixture
    def session(self, archive, transcript):
        return Session(archive, transcript)

    @pytest.mark.parametrize("pre", [True, False])
    @pytest.mark.parametrize("at", ["", "pre", "boundary", "post"])
    @pytest.mark.parametrize("order", ["boundary first", "boundary last"])
    @pytest.mark.parametrize("end", ["session_end", "catch_up", "auto"])
    def test_with_its_sizes_and_its_summary(self, session, pre, at, order, end):
        steps = ["boundary", "post", "post"] if order == "boundary first" else ["post", "post", "boundary"]
        for step in ["pre"] * pre + steps:
            session.do(step, 1)
            session.do("say", 0)
            if step == at:
                session.do("catch_up", 0)
        session.do(end, 0)
        assert session.counted() == [(1000, 10, "Did 1.")]

    @pytest.mark.parametrize("end", ["session_end", "auto", "catch_up"])
    def test_where_no_postcompact_ran(self, session, end):
        for step in ("pre", "boundary", "say", end):
            session.do(step, 1)
        assert session.counted() == [(1000, 10, None)]

    def test_sizes_are_of_the_compaction_that_was_told_last_of_a_piece(self, session):
        for step, number in [("boundary", 1), ("post", 1), ("pre", 2), ("post", 2), ("boundary", 2)]:
            session.do(step, number)
        session.do("session_end", 0)
        assert session.counted() == [(1000, 10, "Did 1."), (2000, 20, "Did 2.")]
        assert len({row["piece"] for row in outcomes(session.archive)}) == 1  # the second had nothing new

    @pytest.mark.parametrize("end", ["catch_up", "session_end"])
    def test_where_the_transcript_is_rewritten(self, session, end):
        for step in ("pre", "boundary", "post", "catch_up", "rewrite", end):
            session.do(step, 1)
        assert {piece.chain for piece in session.archive.pieces(SID)} == {1, 2}
        assert session.counted() == [(1000, 10, "Did 1.")]

    @pytest.mark.parametrize("order", ["boundary first", "boundary last"])
    def test_sizes_of_one_before_the_hooks_were_there_are_not_taken_for_its_own(self, session, order):
        for step in ["boundary", "answer", *(["boundary", "post"] if order == "boundary first" else ["post"])]:
            session.do(step, 1 if step != "boundary" or session.answered == 0 else 2)
        (row,) = outcomes(session.archive)
        assert row.get("tokens_before") == (2000 if order == "boundary first" else None)

    def test_a_later_one_without_its_hook_is_another(self, session, monkeypatch):
        for step in ("pre", "boundary", "catch_up"):
            session.do(step, 1)
        now = layout.now()
        monkeypatch.setattr(layout, "now", lambda: now + 11_000_000)
        session.do("post", 2)
        assert [row["outcome"] for row in outcomes(session.archive)] == ["compacted", "hook_skipped"]


class Session:
    """What Claude Code and the plugin's hooks do, one step at a time."""

    def __init__(self, archive, transcript):
        self.archive, self.transcript, self.answered = archive, transcript, 0

    def write(self, row):
        with open(self.transcript, "a") as file:
            file.write(json.dumps(row) + "\n")

    def close(self, trigger):
        result = self.archive.archive(self.transcript, SID, trigger=trigger, agent="main")
        if result.path is not None:
            close_compactions(self.archive, SID, result.path.rpartition("/")[2], skipped=trigger == "catch_up")

    def do(self, step, number):
        if step == "say":
            self.write({"type": "user", "message": {"content": "go on"}})
        elif step == "answer":
            self.answered += 1
            self.write({"type": "assistant", "message": {"content": []}})
        elif step == "boundary":
            meta = {"trigger": "auto", "preTokens": 1000 * number, "postTokens": 10 * number}
            row = {"type": "system", "subtype": "compact_boundary", "uuid": f"b{number}", "compactMetadata": meta}
            self.write(row)
        elif step == "post":
            self.archive.compaction_seen(self.transcript, SID, trigger="auto", summary=f"Did {number}.", once=True)
        elif step == "rewrite":
            with open(self.transcript) as file:
                data = file.read()
            with open(self.transcript, "w") as file:
                file.write('{"type":"user","message":{"content":"changed"}}\n' + data)
        else:
            self.close("auto" if step == "pre" else step)

    def counted(self):
        return [(row["tokens_before"], row["tokens_after"], row.get("summary")) for row in outcomes(self.archive)]
