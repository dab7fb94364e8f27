"""What happens to an archive while a session runs."""

import json
import logging
import os
import subprocess
import sys
import threading

import anyio
import pytest

from mala_context import MessageStreamProcessor, TranscriptArchive
from mala_context._util.background import wait_for
from mala_context.agent.archiving import SessionArchiver, compactions, sessions
from mala_context.agent.archiving.compactions import ArchiveWork
from mala_context.archive.catch_up import has_live_owner
from mala_context.archive.layout import ArchiveResult
from mala_context.config import ArchiveConfig
from mala_context.tracking.events import Compaction, CompactionStatus, SessionStart, TurnEnd


class Bench:
    """An archivist over real files, and what its manifest says."""

    def __init__(self, folder):
        self.archive = TranscriptArchive(folder / "archives")
        self.archivist = SessionArchiver(self.archive)
        self.transcript = folder / "s1.jsonl"

    def write(self, rows=1):
        with self.transcript.open("a") as file:
            file.write('{"type":"user"}\n' * rows)

    def hook(self, **fields):
        return {"session_id": "s1", "transcript_path": str(self.transcript), "trigger": "auto", **fields}

    async def settle(self):
        """Wait until the archivist's thread has done all that was asked of it."""
        with anyio.fail_after(30):
            await self.archivist._work.finish(30)

    def pieces(self):
        return self.archive.pieces("s1")

    def outcomes(self):
        return [row for row in self.archive.manifest("s1").rows if row.get("row") == "outcome"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(compactions, "SETTLE_SECONDS", 0.02)
    return Bench(tmp_path)


def boundary(**fields):
    values = {"trigger": "auto", "pre_tokens": 180_000, "post_tokens": 9_000, "duration_ms": 3_200}
    return Compaction(None, "s1", **{**values, **fields})


async def test_a_compaction_is_a_piece_and_an_outcome(bench):
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    await bench.archivist.after_compaction(bench.hook(compact_summary="what was done"))
    bench.archivist.on_event(boundary(), None)
    await bench.settle()
    (piece,) = bench.pieces()
    (outcome,) = bench.outcomes()
    assert outcome["piece"] == piece.name
    assert (outcome["outcome"], outcome["agent"], outcome["trigger"]) == ("compacted", "main", "auto")
    assert (outcome["tokens_before"], outcome["duration_ms"], outcome["summary"]) == (180_000, 3_200, "what was done")


async def test_a_failed_compaction_keeps_its_piece_and_the_next_begins_where_it_ended(bench):
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    bench.archivist.on_event(CompactionStatus("s1", None, "failed", "API Error"), None)
    bench.write(2)
    await bench.archivist.before_compaction(bench.hook())
    await bench.settle()
    first, second = bench.pieces()
    (outcome,) = bench.outcomes()
    assert (outcome["outcome"], outcome["error"]) == ("failed", "API Error")
    assert second.offset == first.end


@pytest.mark.parametrize(
    "end",
    [
        CompactionStatus("s1", None, "failed", "skipped: Compaction blocked by a hook"),
        TurnEnd("s1", None, is_error=True),
    ],
    ids=["said", "not said"],
)
async def test_a_blocked_compaction_is_written_down(bench, end):
    bench.write()
    await bench.archivist.before_compaction(bench.hook())
    bench.archivist.on_event(end, None)
    await bench.settle()
    assert [outcome["outcome"] for outcome in bench.outcomes()] == ["blocked"]


async def test_a_turns_end_without_a_compaction_writes_nothing(bench):
    bench.write()
    await bench.archivist.saw_session(bench.hook())
    bench.archivist.on_event(TurnEnd("s1", None), None)
    bench.archivist.on_event(CompactionStatus("s1", "compacting"), None)
    await bench.settle()
    assert bench.pieces() == []


async def test_a_boundary_without_its_hook_is_archived_at_once(bench, caplog):
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    bench.archivist.on_event(boundary(), None)
    bench.write(2)
    bench.archivist.on_event(boundary(), None)
    await bench.settle()
    first, second = bench.pieces()
    assert second.offset == first.end
    assert [outcome["outcome"] for outcome in bench.outcomes()] == ["compacted", "hook_skipped"]
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def test_a_subagents_compaction_is_its_own(bench):
    bench.write()
    await bench.archivist.before_compaction(bench.hook(agent_id="a1"))
    await bench.archivist.after_compaction(bench.hook(agent_id="a1", compact_summary="sub"))
    bench.archivist.on_event(TurnEnd("s1", None), None)
    await bench.settle()
    (outcome,) = bench.outcomes()
    assert (outcome["outcome"], outcome["agent"], outcome["summary"]) == ("compacted", "a1", "sub")


async def test_a_subagents_own_transcript_is_archived_when_it_ends(bench, tmp_path):
    own = tmp_path / "agent-a1.jsonl"
    own.write_text('{"agentId":"a1"}\n')
    await bench.archivist.subagent_stopped(bench.hook(agent_id="a1", agent_transcript_path=str(own)))
    await bench.archivist.subagent_stopped(bench.hook(agent_id="a2", agent_transcript_path=str(tmp_path / "none")))
    await bench.settle()
    assert [piece.subagent for piece in bench.pieces()] == ["a1"]


async def test_closing_archives_the_rest_of_every_session_once(bench):
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    bench.write(2)
    await bench.archivist.close()
    await bench.archivist.close()
    assert [piece.length for piece in bench.pieces()] == [48, 32]


async def test_closing_ends_a_compaction_that_nobody_saw_the_end_of(bench):
    bench.write()
    await bench.archivist.before_compaction(bench.hook())
    await bench.archivist.after_compaction(bench.hook(compact_summary="done"))
    await bench.archivist.close()
    assert [outcome["outcome"] for outcome in bench.outcomes()] == ["compacted"]


async def test_a_cleared_session_is_archived_when_the_next_starts(bench):
    bench.write(2)
    await bench.archivist.saw_session(bench.hook())
    await bench.archivist.session_started(bench.hook(source="compact"))
    await bench.settle()
    assert bench.pieces() == []
    await bench.archivist.session_started(bench.hook(session_id="s2", source="clear"))
    await bench.settle()
    assert [piece.length for piece in bench.pieces()] == [32]


async def test_a_hook_answers_while_the_disk_hangs(bench, monkeypatch, caplog):
    gate = threading.Event()
    monkeypatch.setattr(sessions, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(sessions, "archive_from_hook", lambda *_, **__: gate.wait(30))
    with anyio.fail_after(5):
        await bench.archivist.before_compaction(bench.hook())
        await bench.archivist.before_compaction(bench.hook())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    gate.set()
    await bench.settle()


async def test_a_disk_that_refuses_is_said_at_each_compaction_and_the_hook_answers(bench, monkeypatch, caplog):
    def refuse(**_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(bench.archive, "store", refuse)
    for _ in range(2):
        await bench.archivist.before_compaction(bench.hook())
    said = [record.levelname for record in caplog.records if "could not be written" in record.getMessage()]
    assert said == ["ERROR", "ERROR"]


async def test_many_sessions_are_not_all_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "_MOST_SESSIONS", 3)
    bench = Bench(tmp_path)
    for number in range(10):
        await bench.archivist.saw_session({"session_id": f"s{number}", "transcript_path": str(bench.transcript)})
    assert len(bench.archivist._sessions) == 3


async def test_no_place_for_archives_is_said_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    archivist = SessionArchiver(TranscriptArchive(tmp_path / "file" / "archives"))
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text("{}\n")
    for number in range(3):
        hook = {"session_id": f"s{number}", "transcript_path": str(transcript), "source": "clear"}
        await archivist.session_started(hook)
    await archivist._work.finish(30)
    assert len(caplog.records) == 1


async def test_a_session_without_hooks_is_found_where_its_cli_keeps_it(tmp_path):
    folder = tmp_path / "projects" / "-repo"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_text('{"type":"user"}\n')
    archive = TranscriptArchive(tmp_path / "archives", projects_dirs=[str(tmp_path / "projects")])
    archivist = SessionArchiver(archive)
    archivist.on_event(SessionStart("s1", "init", cwd="/repo"), None)
    archivist.on_event(boundary(), None)
    (folder / "s1.jsonl").open("a").close()
    await archivist.close()
    rows = archive.manifest("s1").rows
    assert [row["outcome"] for row in rows if row.get("row") == "outcome"] == ["hook_skipped"]
    assert [row["trigger"] for row in rows if row.get("row") == "piece"] == ["boundary"]


async def test_a_session_that_nobody_can_find_is_let_go(tmp_path):
    archivist = SessionArchiver(TranscriptArchive(tmp_path / "archives", projects_dirs=[str(tmp_path)]))
    archivist.on_event(SessionStart("s1", "init"), None)
    await archivist.close()
    assert archivist.archive.sessions() == []


async def test_a_cleared_session_is_archived_at_once_and_again_at_the_close(bench, tmp_path):
    bench.write(3)
    await bench.archivist.saw_session(bench.hook())
    other = {"session_id": "s2", "transcript_path": str(tmp_path / "s2.jsonl")}
    for session in ("s2", "s2"):
        await bench.archivist.session_started({**other, "session_id": session, "source": "clear"})
    await bench.settle()
    assert len(bench.pieces()) == 1
    bench.write(2)
    await bench.archivist.close()
    assert [piece.length for piece in bench.pieces()] == [48, 32]


async def test_that_there_is_no_place_is_said_once_until_there_was_one(tmp_path, monkeypatch, caplog):
    runs = tmp_path / "runs"
    monkeypatch.setenv("MALA_RUNS_DIR", str(runs))
    bench = Bench(tmp_path)
    bench.archivist = SessionArchiver.for_repo(tmp_path)
    bench.write()
    for blocked, warnings in ((True, 1), (True, 1), (False, 1), (True, 2)):
        if blocked and not runs.is_file():
            runs.rename(tmp_path / "away") if runs.exists() else None
            runs.write_text("in the way")
        elif not blocked:
            runs.unlink()
        await bench.archivist.before_compaction(bench.hook())
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == warnings


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("Compaction: 1")]


def said(words):
    return json.dumps({"type": "user", "uuid": words, "message": {"role": "user", "content": words}}) + "\n"


async def test_the_line_says_what_was_lost_and_the_row_has_it(bench, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    bench.transcript.write_text(said("never touch the lexer") + said("always test the parser"))
    await bench.archivist.before_compaction(bench.hook())
    await bench.archivist.after_compaction(bench.hook(compact_summary="always test the parser"))
    event = boundary()
    assert bench.archivist.announces(event, None)
    bench.archivist.on_event(event, None)
    await bench.settle()
    assert lines(caplog) == [
        "Compaction: 180,000 → unknown tokens (trigger=auto, 3.2 s); summary names 0 of 0 files, 1 of 2 instructions"
    ]
    (outcome,) = bench.outcomes()
    assert outcome["lost"]["instruction"] == {"total": 2, "named": 1, "missing": ["never touch the lexer"]}


async def test_the_line_without_a_summary_or_a_transcript(bench, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    bench.archivist.on_event(boundary(), None)
    bench.write()
    await bench.archivist.before_compaction(bench.hook())
    bench.archivist.on_event(boundary(), None)
    await bench.settle()
    assert lines(caplog) == ["Compaction: 180,000 → unknown tokens (trigger=auto, 3.2 s)"] * 2


async def test_an_archive_that_cannot_be_read_leaves_the_line(bench, caplog, monkeypatch):
    def broken(*_, **__):
        raise OSError(5, "Input/output error")

    caplog.set_level(logging.INFO, "mala_context")
    bench.write()
    await bench.archivist.before_compaction(bench.hook())
    await bench.archivist.after_compaction(bench.hook(compact_summary="words"))
    monkeypatch.setattr(compactions, "read_loss", broken)
    bench.archivist.on_event(boundary(), None)
    await bench.settle()
    assert lines(caplog) == ["Compaction: 180,000 → unknown tokens (trigger=auto, 3.2 s)"]
    assert "what it lost is not known" in caplog.text
    assert "lost" not in bench.outcomes()[0]


def test_whose_line_it_is(bench):
    assert not bench.archivist.announces(boundary()._replace(agent="a1"), None)
    assert not bench.archivist.announces(boundary()._replace(session_id=None), None)


async def test_a_compaction_without_a_boundary_has_its_loss_too(bench):
    bench.transcript.write_text(said("never touch the lexer"))
    await bench.archivist.before_compaction(bench.hook())
    await bench.archivist.after_compaction(bench.hook(compact_summary="words"))
    bench.archivist.on_event(TurnEnd("s1", None), None)
    await bench.settle()
    assert bench.outcomes()[0]["lost"]["instruction"]["missing"] == ["never touch the lexer"]


async def test_the_note_to_the_agent(bench):
    bench.transcript.write_text(said("never touch the lexer"))
    await bench.archivist.before_compaction(bench.hook())
    note = await wait_for(bench.archivist.words_lost("s1", "words"), seconds=30)
    assert "- never touch the lexer" in note
    assert f"{bench.archive.location}/s1_*" in note
    assert await wait_for(bench.archivist.words_lost("s1", "never touch the lexer"), seconds=30) == ""


async def test_a_later_summary_is_held_against_what_was_said_before_earlier_ones_too(bench):
    bench.transcript.write_text(said("never touch the lexer"))
    for words, lost in (("words", True), ("Never touch the lexer.", False), ("words again", True)):
        await bench.archivist.before_compaction(bench.hook())
        note = await wait_for(bench.archivist.words_lost("s1", words), seconds=30)
        assert ("- never touch the lexer" in note) is lost
        bench.archivist.on_event(boundary(), None)
        with bench.transcript.open("a") as file:
            file.write(json.dumps({"type": "system", "subtype": "compact_boundary"}) + "\n" + said("go on, please do"))
    await bench.archivist.close()
    note = await wait_for(bench.archivist.words_lost("s1", "words"), seconds=30)
    assert "lexer" not in note


def rows(archive, kind, session_id="s1"):
    return [row for row in archive.manifest(session_id).rows if row.get("row") == kind]


async def test_a_session_is_written_down_when_it_is_first_seen(bench):
    for _ in range(3):
        await bench.archivist.saw_session(bench.hook(cwd="/repo"))
        bench.archivist.on_event(TurnEnd("s1", None), None)
    await bench.settle()
    (row,) = rows(bench.archive, "session")
    assert (row["transcript"], row["cwd"]) == (str(bench.transcript), "/repo")
    assert bench.pieces() == []


async def test_a_compaction_that_comes_first_writes_its_piece_and_no_more(bench):
    bench.write()
    await bench.archivist.before_compaction(bench.hook())
    assert rows(bench.archive, "session") == []
    assert len(bench.pieces()) == 1


async def test_a_session_without_hooks_is_written_down_once_its_transcript_is_there(tmp_path):
    folder = tmp_path / "projects" / "-repo"
    folder.mkdir(parents=True)
    archivist = SessionArchiver(TranscriptArchive(tmp_path / "archives", projects_dirs=[str(tmp_path / "projects")]))
    archivist.on_event(SessionStart("s1", "init", cwd="/repo"), None)
    for there in (False, True, True):
        if there:
            (folder / "s1.jsonl").write_text('{"type":"user"}\n')
        archivist.on_event(TurnEnd("s1", None), None)
        await archivist._work.finish(30)
    assert [row["transcript"] for row in rows(archivist.archive, "session")] == [str(folder / "s1.jsonl")]


def ended_process():
    """Return the id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_what_a_killed_process_left_is_archived_by_the_next(bench, tmp_path, monkeypatch):
    bench.write(3)
    dead = ended_process()
    with monkeypatch.context() as killed:
        killed.setattr(os, "getpid", lambda: dead)
        await bench.archivist.saw_session(bench.hook())
        await bench.settle()
    following = SessionArchiver(bench.archive)
    await following.saw_session({"session_id": "s2", "transcript_path": str(tmp_path / "s2.jsonl")})
    await following.close()
    assert [(piece.length, piece.row["trigger"]) for piece in bench.pieces()] == [(48, "catch_up")]


async def test_what_another_client_of_this_process_works_on_is_left_to_it(bench, tmp_path):
    bench.write(3)
    await bench.archivist.saw_session(bench.hook())
    await bench.settle()
    beside = SessionArchiver(bench.archive)
    await beside.saw_session({"session_id": "s2", "transcript_path": str(tmp_path / "s2.jsonl")})
    await beside.close()
    assert bench.pieces() == []


async def test_a_piece_never_waits_for_catching_up(bench, monkeypatch):
    gate, begun = threading.Event(), threading.Event()

    def catch_up(*_, **__):
        begun.set()
        gate.wait(30)

    bench.write()
    bench.archive.register_session("s0", str(bench.transcript))
    monkeypatch.setattr(bench.archive, "catch_up", catch_up)
    await bench.archivist.saw_session(bench.hook())
    assert begun.wait(30)
    with anyio.fail_after(5):
        await bench.archivist.before_compaction(bench.hook())
    assert len(bench.pieces()) == 1
    gate.set()


async def test_a_closed_session_is_packed_with_all_that_lies_beside_it(tmp_path):
    transcript, beside = tmp_path / "s1.jsonl", tmp_path / "s1" / "subagents"
    beside.mkdir(parents=True)
    transcript.write_text('{"type":"user"}')
    (beside / "agent-a1.jsonl").write_text('{"type":"user"}\n')
    bench = Bench(tmp_path)
    bench.archive.compress = "zstd"
    await bench.archivist.saw_session(bench.hook())
    await bench.archivist.close()
    assert [(piece.subagent, piece.packed, piece.length) for piece in bench.pieces()] == [
        (None, True, 15),
        ("a1", True, 16),
    ]


async def test_what_a_restart_names_stays_as_it_is_named_until_the_close(bench):
    bench.archive.compress = "zstd"
    bench.write()
    await bench.archivist.saw_session(bench.hook())
    (path,) = await bench.archivist.keep("s1")
    assert [path] == [bench.archive.location + "/" + piece.name for piece in bench.pieces()]
    await bench.archivist.close()
    assert bench.pieces()[0].packed


async def test_where_a_sessions_end_is_not_archived_nothing_is_caught_up(bench, tmp_path):
    bench.write()
    bench.archive.register_session("s1", str(bench.transcript))
    archivist = SessionArchiver.for_repo(
        tmp_path, ArchiveConfig(directory=str(tmp_path / "archives"), at_session_end=False)
    )
    await archivist.saw_session({"session_id": "s2", "transcript_path": str(tmp_path / "s2.jsonl")})
    await archivist.close()
    assert [each.session_id for each in archivist.archive.sessions()] == ["s1"]
    assert bench.pieces() == []


async def test_sessions_let_go_are_packed_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "_MOST_SESSIONS", 1)
    bench = Bench(tmp_path)
    bench.archive.compress = "zstd"
    bench.write()
    await bench.archivist.saw_session(bench.hook())
    await bench.archivist.saw_session({"session_id": "s2", "transcript_path": str(tmp_path / "s2.jsonl")})
    await bench.settle()
    await bench.archivist._upkeep.finish(30)
    assert bench.pieces()[0].packed


async def test_a_subagents_compaction(bench):
    folder = bench.transcript.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    row = {**json.loads(said("never touch the lexer")), "isSidechain": True}
    (folder / "agent-a1.jsonl").write_text(json.dumps(row) + "\n")
    for agent in ("a1", "a2", "../a1"):
        hook = bench.hook(agent_id=agent, compact_summary="words")
        await bench.archivist.after_compaction(hook)
    await bench.settle()
    first, *others = bench.outcomes()
    assert first["agent"] == "a1"
    assert first["lost"]["instruction"]["missing"] == ["never touch the lexer"]
    assert [(row["agent"], "lost" in row) for row in others] == [("a2", False), ("../a1", False)]


async def test_a_summary_that_the_cli_writes_a_moment_later(bench, caplog, monkeypatch):
    def then_write(_):
        with bench.transcript.open("a") as file:
            file.write(json.dumps({**json.loads(said("words")), "isCompactSummary": True}) + "\n")

    caplog.set_level(logging.INFO, "mala_context")
    monkeypatch.setattr(compactions, "SETTLE_SECONDS", 30.0)
    monkeypatch.setattr(compactions.time, "sleep", then_write)
    bench.transcript.write_text(said("never touch the lexer") + '{"type":"system","subtype":"compact_boundary"}\n')
    await bench.archivist.saw_session(bench.hook())
    bench.archivist.on_event(boundary(), None)
    await bench.settle()
    assert lines(caplog)[0].endswith("summary names 0 of 0 files, 0 of 1 instructions")


async def test_a_session_without_hooks_has_its_newest_rows_found_by_name(tmp_path, monkeypatch):
    """Nobody told where the transcript is; what is behind the piece is read all the same."""
    bench = Bench(tmp_path)
    bench.archive.projects_dirs = [str(tmp_path / "projects")]
    bench.transcript = tmp_path / "projects" / "p" / "s1.jsonl"
    bench.transcript.parent.mkdir(parents=True)
    bench.transcript.write_text(said("never touch the lexer"))
    bench.archive.archive(str(bench.transcript), "s1", trigger="auto", agent="main")
    with bench.transcript.open("a") as file:
        file.write(said("always test the parser"))
    note = await wait_for(bench.archivist.words_lost("s1", "words"), seconds=30)
    assert "- never touch the lexer\n- always test the parser" in note


# -- beside the hook of another process -----------------------------------------------------------------------------


async def test_what_another_hook_archived_for_this_compaction_is_not_archived_again(bench):
    bench.write(3)
    bench.archive.archive(str(bench.transcript), "s1", trigger="auto")
    bench.write()  # the CLI writes on between two hooks
    await bench.archivist.before_compaction(bench.hook())
    bench.archivist.on_event(boundary(), None)
    await bench.settle()
    (piece,) = bench.pieces()
    assert [(row["outcome"], row["piece"]) for row in bench.outcomes()] == [("compacted", piece.name)]


async def test_an_own_piece_without_an_outcome_is_no_other_hooks(bench):
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    bench.write()
    await bench.archivist.before_compaction(bench.hook())
    assert len(bench.pieces()) == 2


@pytest.mark.parametrize("lost", [False, True], ids=["never noted", "manifest lost"])
async def test_whoever_tells_of_outcomes_says_so_before_the_compaction(lost, bench):
    processor = MessageStreamProcessor()
    bench.archivist = SessionArchiver(bench.archive, at_session_end=lost)
    bench.archivist.listen(processor)
    bench.write(3)
    if lost:
        await bench.archivist.saw_session(bench.hook())
        await bench.settle()
        os.unlink(os.path.join(bench.archive.location, "s1.manifest.jsonl"))
    await bench.archivist.before_compaction(bench.hook())
    assert has_live_owner(bench.archive.manifest("s1"))


async def test_a_hook_alone_does_not_say_that_it_looks_after_the_session(bench):
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    assert not has_live_owner(bench.archive.manifest("s1"))


async def test_that_it_cannot_be_said_is_no_reason_to_fail(bench, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no room")

    bench.archivist.listen(MessageStreamProcessor())
    monkeypatch.setattr(bench.archive, "register_session", refuse)
    bench.write(3)
    await bench.archivist.before_compaction(bench.hook())
    assert len(bench.pieces()) == 1


# -- what is told of an archive ----------------------------------------------------------------------------------------


def kept(path, size=100):
    return ArchiveResult(session_id="s1", path=path, reason="archived", bytes=size)


NOTHING_NEW = ArchiveResult(session_id="s1", path=None, reason="nothing new")


def test_pieces_of_one_time_are_one_record():
    told = []
    results = [NOTHING_NEW, kept("/a"), None, kept("/b", 23)]
    assert ArchiveWork(told.append).archived("session_end", lambda: results) is results
    (record,) = told
    assert (record.session_id, record.trigger, record.pieces, record.bytes) == ("s1", "session_end", 2, 123)
    assert record.path == "/a"
    assert 0 <= record.seconds < 60


def test_of_an_archive_without_a_new_row_nothing_is_told():
    told = []
    ArchiveWork(told.append).archived("auto", lambda: [None, NOTHING_NEW])
    assert told == []
