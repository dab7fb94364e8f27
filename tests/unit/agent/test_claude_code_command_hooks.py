"""What the plugin's hooks do, asked in this process; `test_hooks.py` runs the script itself as Claude Code does."""

import json
import os
import sys

import pytest

from mala_context.agent.claude_code import command_hooks
from mala_context.agent.claude_code.command_hooks import answer_hook, answer_in_time
from mala_context.archive import catch_up, local_store
from mala_context.archive.store import TranscriptArchive
from tests.helpers.slow_input import Trickle

USAGE = {"input_tokens": 150_000, "output_tokens": 1}
ROW = {"type": "assistant", "message": {"model": "claude-sonnet-4-5", "usage": USAGE, "content": []}}
BOUNDARY = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"trigger": "auto"}}


class Place:
    """A repository, a transcript, a runs directory, and hooks that are asked by descriptor 0."""

    def __init__(self, path):
        self.path = path
        self.repo = path / "repo"
        self.runs = path / "runs"
        self.transcript = path / "s.jsonl"
        self.repo.mkdir()
        self.add(ROW)
        self.env = {"MALA_RUNS_DIR": str(self.runs), "HOME": str(path)}

    def add(self, *rows):
        with self.transcript.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def say(self, data, *arguments, **env):
        """Return the answer and the words, with these bytes on standard input."""
        given = self.path / "input"
        given.write_bytes(data)
        before = os.dup(0)
        with given.open("rb") as file:
            os.dup2(file.fileno(), 0)
        try:
            answer, words = answer_hook(arguments, {**self.env, **env})
        finally:
            os.dup2(before, 0)
            os.close(before)
        return (json.loads(answer) if answer.startswith(b"{") else answer.decode()), words

    def ask(self, event, *arguments, env=None, **fields):
        found = {"hook_event_name": event, "session_id": "s", "transcript_path": str(self.transcript)}
        return self.say(json.dumps({**found, "cwd": str(self.repo), **fields}).encode(), *arguments, **(env or {}))

    @property
    def archive(self):
        return TranscriptArchive(repo_path=self.repo)

    def pieces(self, session_id="s"):
        return [piece.name for piece in self.archive.pieces(session_id)]

    def outcomes(self):
        rows = [row for row in self.archive.manifest("s").rows if row["row"] == "outcome"]
        return [(row["outcome"], row.get("agent"), row.get("summary")) for row in rows]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr("site.main", lambda: None)  # this process has what the script leaves out
    return Place(tmp_path)


UNDO = "archived; undo with mala-context archives restore s"
"""What the user is told after a compaction: Claude Code shows text of PostCompact as it is."""


class TestCompactions:
    def test_the_transcript_is_archived_before_one_and_its_end_is_told_behind_it(self, place):
        assert place.ask("PreCompact", trigger="auto") == ({}, "")
        assert len(place.pieces()) == 1
        place.add(BOUNDARY)
        assert place.ask("PostCompact", trigger="auto", compact_summary="We did it.") == (UNDO, "")
        assert place.outcomes() == [("compacted", "main", "We did it.")]

    @pytest.mark.parametrize("when", ["before PostCompact", "before the next PreCompact", "before the end"])
    @pytest.mark.parametrize("new", [True, False], ids=["new", "nothing new"])
    def test_its_sizes_are_those_that_the_boundary_states_whenever_that_is_written(self, place, when, new):
        meta = {"trigger": "auto", "preTokens": 230_607, "postTokens": 89_279}
        if not new:
            place.ask("SessionEnd")
        place.ask("PreCompact", trigger="auto")
        if when == "before PostCompact":
            place.add({**BOUNDARY, "compactMetadata": meta})
        place.ask("PostCompact", trigger="auto", compact_summary="We did it.")
        if when != "before PostCompact":
            place.add({**BOUNDARY, "compactMetadata": meta})
        place.ask("PreCompact" if when == "before the next PreCompact" else "SessionEnd", trigger="auto")
        (row,) = place.archive.manifest("s").of_kind("outcome")
        assert (row["tokens_before"], row["tokens_after"]) == (230_607, 89_279)

    @pytest.mark.parametrize("when", ["between", "before", "after"])
    @pytest.mark.parametrize("new", [True, False], ids=["new", "nothing new"])
    def test_hooks_that_are_installed_twice_tell_it_once(self, place, caplog, when, new):
        """By the plugin and by `init`, wherever the boundary is written."""
        meta = {"trigger": "auto", "preTokens": 230_607, "postTokens": 89_279}
        for number in range(3):
            place.add({"type": "user", "message": {"content": f"turn {number}"}})
            if not new:
                place.ask("SessionEnd")  # a session that is resumed for the compaction has nothing new
            for _ in range(2):
                assert place.ask("PreCompact", trigger="auto") == ({}, "")
            for moment in ("before", "between", "after"):
                if moment == when:
                    place.add({**BOUNDARY, "uuid": f"b{number}", "compactMetadata": meta})
                if moment != "after":
                    told = place.ask("PostCompact", trigger="auto", compact_summary=f"We did {number}.")
                    assert told == (UNDO, "")
        place.ask("SessionEnd")
        assert place.outcomes() == [("compacted", "main", f"We did {number}.") for number in range(3)]
        assert "without PreCompact" not in caplog.text
        if new:
            assert [row["trigger"] for row in place.archive.manifest("s").of_kind("piece")][:3] == ["auto"] * 3
        for _ in range(2):
            place.ask("PostCompact", trigger="auto", agent_id="a1", compact_summary="Sub.")
        assert place.outcomes()[3:] == [("compacted", "a1", "Sub.")]

    def test_one_that_its_hooks_told_is_not_told_again_at_the_next_start(self, place, caplog):
        """The CLI was killed a turn later: the next session's start archives the rest, and reads the boundary there."""
        meta = {"trigger": "auto", "preTokens": 14_413, "postTokens": 2_682}
        place.ask("PreCompact", trigger="auto")
        place.ask("PostCompact", trigger="auto", compact_summary="We did it.")
        place.add({**BOUNDARY, "compactMetadata": meta}, {"type": "user", "message": {"content": "one more turn"}})
        assert (
            place.ask("SessionStart", source="startup", session_id="next", transcript_path="/nowhere/next.jsonl")[1]
            == ""
        )
        (row,) = place.archive.manifest("s").of_kind("outcome")
        assert (row["outcome"], row["tokens_before"], row["tokens_after"]) == ("compacted", 14_413, 2_682)
        assert "without PreCompact" not in caplog.text
        assert len(place.pieces()) == 2

    def test_one_whose_hook_did_not_run_is_archived_behind_it(self, place, caplog):
        assert place.ask("PostCompact", trigger="auto", compact_summary="Done.")[0] == UNDO
        assert "Compaction without PreCompact" in caplog.text
        assert place.outcomes() == [("hook_skipped", "main", "Done.")]
        assert len(place.pieces()) == 1

    def test_a_summary_that_is_not_told_is_one_all_the_same(self, place):
        place.ask("PreCompact", trigger="auto")
        assert place.ask("PostCompact", trigger="auto") == (UNDO, "")
        assert place.outcomes() == [("compacted", "main", None)]

    def test_in_the_plugin_its_slash_command_undoes_it(self, place):
        place.ask("PreCompact", trigger="auto")
        told = place.ask("PostCompact", trigger="auto", env={"CLAUDE_PLUGIN_ROOT": "/plugin"})
        assert told == ("archived; undo with /mala-context:undo", "")

    def test_a_subagents_is_told_as_its_own(self, place):
        assert place.ask("PostCompact", trigger="auto", agent_id="a1", compact_summary="Sub.") == ({}, "")
        assert place.outcomes() == [("compacted", "a1", "Sub.")]
        assert place.pieces() == []


class TestBesideAnOwner:
    @pytest.fixture
    def archive(self, place):
        place.archive.register_session("s", str(place.transcript), pid=os.getpid())
        return place.archive

    def test_what_it_archived_for_this_compaction_is_not_archived_again(self, place, archive):
        archive.archive(str(place.transcript), "s", trigger="auto")
        place.add({"type": "system"})
        assert place.ask("PreCompact", trigger="auto") == ({}, "")
        assert place.ask("PostCompact", trigger="auto", compact_summary="x") == ({}, "")
        assert len(place.pieces()) == 1
        assert place.outcomes() == []

    def test_where_it_found_nothing_new_there_is_nothing_to_do(self, place, archive):
        archive.archive(str(place.transcript), "s", trigger="auto")
        archive.record_outcome("s", "compacted", trigger="auto")
        assert place.ask("PreCompact", trigger="auto") == ({}, "")
        assert len(place.pieces()) == 1

    def test_one_that_hangs_is_waited_for_no_longer_than_said(self, place, archive, monkeypatch):
        times = iter(range(1000))
        monkeypatch.setattr("time.monotonic", lambda: next(times))
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        assert place.ask("PreCompact", trigger="auto") == ({}, "")
        assert len(place.pieces()) == 1
        assert next(times) < 20

    def test_a_transcript_that_is_gone_is_said_by_the_archive(self, place, archive, caplog):
        place.transcript.unlink()
        assert place.ask("PreCompact", trigger="auto")[0] == {}
        assert str(place.transcript) in caplog.text


class TestSessions:
    def test_a_start_notes_where_the_transcript_is_and_archives_what_another_left(self, place):
        other = place.path / "o.jsonl"
        other.write_bytes(place.transcript.read_bytes())
        place.ask("SessionStart", source="startup", session_id="o", transcript_path=str(other))
        assert place.pieces("o") == []
        assert place.ask("SessionStart", source="startup") == ({}, "")
        assert len(place.pieces("o")) == 1

    def test_a_start_is_not_held_up_by_many_that_were_left(self, place, monkeypatch):
        for name in ("o1", "o2", "o3"):
            other = place.path / f"{name}.jsonl"
            other.write_bytes(place.transcript.read_bytes())
            place.archive.register_session(name, str(other))
        times = iter(range(0, 10_000, 10))
        monkeypatch.setattr("time.monotonic", lambda: next(times))
        place.ask("SessionStart", source="startup")
        assert sum(len(place.pieces(name)) for name in ("o1", "o2", "o3")) == 1

    def test_a_start_is_not_held_up_by_many_of_which_nothing_was_left(self, place, monkeypatch):
        """Each of them is read to see that, so the clock is looked at after each."""
        for number in range(9):
            other = place.path / f"o{number}.jsonl"
            other.write_bytes(place.transcript.read_bytes())
            place.archive.archive_session(str(other), f"o{number}")
        looked = []
        real = catch_up.catch_up
        monkeypatch.setattr(
            catch_up, "catch_up", lambda archive, ids, *more: looked.extend(ids) or real(archive, ids, *more)
        )
        times = iter(range(0, 10_000, 10))
        monkeypatch.setattr("time.monotonic", lambda: next(times))
        place.ask("SessionStart", source="startup")
        assert len(looked) == 1

    def test_a_start_does_not_look_for_what_was_left_longer_than_it_may(self, place, monkeypatch):
        other = place.path / "o.jsonl"
        other.write_bytes(place.transcript.read_bytes())
        place.archive.register_session("o", str(other))
        monkeypatch.setattr(local_store, "_BETWEEN_LOOKS", 1)
        times = iter(range(0, 10_000, 10))
        monkeypatch.setattr("time.monotonic", lambda: next(times))
        assert place.ask("SessionStart", source="startup") == ({}, "")
        assert place.pieces("o") == []

    @pytest.mark.parametrize("event", ["PreCompact", "SessionStart", "SessionEnd"])
    def test_how_often_the_directory_is_listed_does_not_depend_on_how_many_there_are(self, place, monkeypatch, event):
        made = []
        real = os.scandir
        monkeypatch.setattr("os.scandir", lambda *where: made.append(where) or real(*where))
        monkeypatch.setattr("mala_context.archive.directory_cache.SHARE", 1_000_000)
        for many in (1, 12):
            for number in range(many):
                other = place.path / f"o{number}.jsonl"
                other.write_bytes(place.transcript.read_bytes())
                place.archive.archive_session(str(other), f"o{number}")
            place.add(ROW)
            made.clear()
            assert place.ask(event, source="startup", trigger="auto") == ({}, "")
            assert 1 <= len(made) <= 4

    def test_the_start_behind_a_compaction_is_none(self, place):
        assert place.ask("SessionStart", source="compact") == ({}, "")
        assert not place.runs.exists()

    def test_an_end_archives_the_rest(self, place):
        place.ask("PreCompact", trigger="auto")
        place.add({"type": "user", "message": {"content": "bye"}})
        assert place.ask("SessionEnd", reason="other") == ({}, "")
        assert len(place.pieces()) == 2

    def test_a_session_in_which_nothing_was_said_leaves_nothing(self, place):
        assert place.ask("SessionEnd", transcript_path=str(place.path / "none.jsonl")) == ({}, "")
        assert not place.runs.exists()


class TestWarning:
    def told(self, place, share="0.7"):
        answer, words = place.ask("UserPromptSubmit", "warn", env={"MALA_WARN_AT": share})
        assert words == ""
        return answer.get("hookSpecificOutput", {}).get("additionalContext", "")

    def test_once_and_once_more_behind_a_compaction(self, place):
        words = self.told(place)
        assert "75% full (150,000 of 200,000 tokens)" in words
        place.add({"type": "attachment", "attachment": {"type": "hook_additional_context", "content": [words]}})
        assert self.told(place) == ""
        place.add(BOUNDARY, ROW)
        assert self.told(place) == words

    def test_a_guessed_window_is_marked(self, place):
        place.add({**ROW, "message": {**ROW["message"], "model": "some-other-model"}})
        assert "75% full (150,000 of 200,000 (a guess) tokens)" in self.told(place)

    def test_not_below_nor_without_being_asked_nor_in_a_subagent(self, place):
        assert self.told(place, "0.8") == ""
        assert place.ask("UserPromptSubmit", "warn", env={"CLAUDE_PROJECT_DIR": str(place.repo)}) == ({}, "")
        assert place.ask("UserPromptSubmit", agent_id="a1", env={"MALA_WARN_AT": "0.7"}) == ({}, "")

    @pytest.mark.parametrize("share", ["70", "0", "often", "nan"])
    def test_a_share_that_is_none_is_said(self, place, share):
        answer, words = place.ask("UserPromptSubmit", "warn", env={"MALA_WARN_AT": share})
        assert answer == {}
        assert words == f"MALA_WARN_AT is {share!r}; a number above 0 and at most 1 would be right"


class TestConfiguration:
    def write(self, place, text):
        (place.repo / "mala.yaml").write_text(text)
        return {"CLAUDE_PROJECT_DIR": str(place.repo)}

    @pytest.mark.parametrize("value", ["0", "no", "OFF"])
    def test_switched_off_by_the_variable(self, place, value):
        for event in ("PreCompact", "PostCompact", "SessionStart", "SessionEnd"):
            assert place.ask(event, trigger="auto", source="startup", env={"MALA_ARCHIVE": value}) == ({}, "")
        assert not place.runs.exists()

    def test_switched_off_by_the_file(self, place):
        env = self.write(place, "context:\n  archive:\n    enabled: false\n")
        assert place.ask("PreCompact", trigger="auto", env=env) == ({}, "")
        assert not place.runs.exists()

    def test_a_place_below_the_repository_is_the_archives(self, place):
        env = self.write(place, "context:\n  archive:\n    directory: kept\n")
        place.ask("PreCompact", trigger="auto", env=env)
        assert [path.suffix for path in (place.repo / "kept").rglob("*_transcript.jsonl")] == [".jsonl"]

    def test_what_goes_to_an_object_store_waits_here(self, place):
        env = self.write(place, "context:\n  archive:\n    directory: s3://bucket/archives\n")
        assert place.ask("PreCompact", trigger="auto", env=env) == ({}, "")
        assert len(list(place.runs.rglob("*_transcript.jsonl"))) == 1

    def test_it_asks_for_warnings_in_a_window_of_its_own(self, place):
        env = self.write(place, "context:\n  warn_at: 0.5\n  window: 1000000\n")
        assert place.ask("UserPromptSubmit", "warn", env=env) == ({}, "")
        env = self.write(place, "context:\n  warn_at: 0.1\n  window: 1000000\n")
        answer, _ = place.ask("UserPromptSubmit", "warn", env=env)
        assert "15% full (150,000 of 1,000,000 tokens)" in answer["hookSpecificOutput"]["additionalContext"]

    def test_a_broken_one_is_said_and_the_defaults_hold(self, place):
        env = self.write(place, "context:\n  archives: 1\n")
        answer, words = place.ask("PreCompact", trigger="auto", env=env)
        assert answer == {}
        assert "mala.yaml" in words
        assert words.endswith("environment and defaults are used")
        assert len(place.pieces()) == 1

    def test_without_pyyaml_that_is_said_and_the_defaults_hold(self, place, monkeypatch):
        env = self.write(place, "context:\n  archive:\n    enabled: false\n")
        monkeypatch.setitem(sys.modules, "yaml", None)
        _, words = place.ask("PreCompact", trigger="auto", env=env)
        assert "no PyYAML" in words
        assert len(place.pieces()) == 1


class TestNothingDisturbs:
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "the hook's input is no JSON: nothing archived"),
            (b"[" * 100_000, "the hook's input is no JSON: nothing archived"),
            (b"[]", "the hook's input is no JSON object: nothing archived"),
            (b'{"hook_event_name": "Notification"}', ""),
            (b"{}", ""),
        ],
        ids=["empty", "deep", "list", "another event", "no event"],
    )
    def test_input_that_is_none_of_ours(self, place, data, words):
        assert place.say(data) == ({}, words)

    def test_a_closed_input(self, place):
        before = os.dup(0)
        os.close(0)
        try:
            answer, words = answer_hook([], place.env)
        finally:
            os.dup2(before, 0)
            os.close(before)
        assert (answer, words) == (b"{}", "no input: Bad file descriptor")

    def test_an_endless_input_in_small_pieces_holds_nobody_up(self, place, monkeypatch):
        with Trickle(65_536) as endless:
            endless.standard_input(monkeypatch)
            answer, words = answer_hook([], place.env)
        assert (answer, words) == (b"{}", "the hook's input is no JSON: nothing archived")
        assert endless.taken < 4 * endless.given

    def test_what_nobody_foresaw_is_a_line_and_standard_error_is_given_back(self, place, monkeypatch):
        def fail(*_, **__):
            raise LookupError("odd\nlines")

        monkeypatch.setattr("mala_context.archive.increment.archive_from_hook", fail)
        before = sys.stderr
        answer, words = place.ask("PreCompact", trigger="auto")
        assert (answer, words) == ({}, r"LookupError('odd\nlines')")
        assert sys.stderr is before


class TestInTime:
    def ask(self, place, *arguments):
        return answer_in_time(arguments, place.env)

    @pytest.fixture
    def does(self, monkeypatch):
        """Have the work be done by a function instead; it runs in the process that the work is done in."""
        return lambda work: monkeypatch.setattr(command_hooks, "answer_hook", work)

    def test_the_answer_is_that_of_the_process_that_does_the_work(self, place, does):
        does(lambda arguments, env: (b'{"a": 1}', f"{arguments} {env['HOME']}\nsaid"))
        assert self.ask(place, "warn") == (b'{"a": 1}', f"('warn',) {place.path}\nsaid")

    def test_a_disk_that_hangs_holds_nothing_up_and_the_work_goes_on(self, place, does, monkeypatch):
        monkeypatch.setattr(command_hooks, "ANSWER_SECONDS", 0.2)
        release, released = os.pipe()
        done, told = os.pipe()

        def work(*_):
            os.read(release, 1)
            os.write(told, b"archived")
            return b"{}", ""

        does(work)
        answer, words = self.ask(place)
        assert answer == b"{}"
        assert "no answer of the disk within 0.2 s" in words
        os.write(released, b"x")
        assert os.read(done, 100) == b"archived"
        for each in (release, released, done, told):
            os.close(each)

    def test_work_that_is_killed_is_said(self, place, does):
        does(lambda *_: os.kill(os.getpid(), 9))
        assert self.ask(place) == (b"{}", "the hook's work was killed")

    def test_where_no_process_can_be_made_the_work_is_done_all_the_same(self, place, does, monkeypatch):
        def refuse():
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(os, "fork", refuse)
        does(lambda *_: (b"{}", "here"))
        assert self.ask(place) == (b"{}", "here")


COLD = {
    "source": "resume",
    "context_tokens": 126_812,
    "prompt_cache_likely_expired": True,
    "seconds_since_last_response": 4_260,
    "estimated_cache_write_usd": 0.4755,
}


class TestResume:
    def test_a_cold_cache_is_said_with_its_cost(self, place):
        answer, _ = place.ask("SessionStart", **COLD)
        assert answer == {
            "systemMessage": "mala-context: the prompt cache has lapsed (71 min idle); the next request writes 126,812 "
            "tokens again, about $0.48 by the CLI's estimate"
        }

    def test_it_is_said_where_nothing_is_archived_too(self, place):
        answer, _ = place.ask("SessionStart", env={"MALA_ARCHIVE": "off"}, **COLD)
        assert "126,812" in answer["systemMessage"]

    @pytest.mark.parametrize("missing", ["seconds_since_last_response", "estimated_cache_write_usd"])
    def test_what_the_cli_does_not_tell_is_left_out(self, place, missing):
        told = {name: value for name, value in COLD.items() if name != missing}
        words = place.ask("SessionStart", **told)[0]["systemMessage"]
        assert ("min idle" in words) == (missing != "seconds_since_last_response")
        assert ("$" in words) == (missing != "estimated_cache_write_usd")

    @pytest.mark.parametrize(
        "given",
        [
            {"prompt_cache_likely_expired": False},
            {"prompt_cache_likely_expired": None},
            {"context_tokens": 0},
            {"context_tokens": "many"},
            {"context_tokens": None},
        ],
        ids=repr,
    )
    def test_a_warm_cache_or_an_unknown_size_is_not_said(self, place, given):
        assert place.ask("SessionStart", **{**COLD, **given})[0] == {}
