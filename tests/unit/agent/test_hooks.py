"""Hook callbacks: `{}` whatever happens, and soon."""

import json
import logging
import os
import stat
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from mala_context import make_precompact_hook
from mala_context.agent.hook_io import add_context, replace_output, stop
from mala_context.agent.hooks import HOOKS, as_mapping, is_ours, merge

BOTH = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "session-1.jsonl"
    path.write_text('{"type":"user"}\n' * 100)
    return path


def archives(tmp_path):
    return sorted(tmp_path.glob("runs/*/archives/*_transcript*"))


def given(path, **fields):
    return {"session_id": "session-1", "transcript_path": path, "trigger": "auto", "cwd": "/x", **fields}


@BOTH
def test_a_transcript_is_archived_privately_and_the_answer_is_empty(tmp_path, repo, transcript, caplog, backend):
    caplog.set_level(logging.INFO)
    hook = make_precompact_hook(repo)
    old = os.umask(0)
    try:
        assert anyio.run(hook, given(str(transcript)), backend=backend) == {}
    finally:
        os.umask(old)
    (piece,) = archives(tmp_path)
    assert piece.read_bytes() == transcript.read_bytes()
    assert stat.S_IMODE(piece.stat().st_mode) == 0o600
    assert stat.S_IMODE(piece.parent.stat().st_mode) == 0o700
    assert f"PreCompact: archived transcript (trigger=auto) to {piece} (1.6 KB)" in caplog.messages


async def test_the_input_may_be_an_object_and_more_arguments_may_follow(tmp_path, repo, transcript):
    hook = make_precompact_hook(repo)
    assert await hook(SimpleNamespace(**given(str(transcript))), "tool-use-id", {"signal": None}, extra=1) == {}
    assert len(archives(tmp_path)) == 1


BAD_PATHS = [None, "", 7, "/nonexistent/x.jsonl", b"bytes", ["list"], "nul\0byte", "x" * 5000]


@pytest.mark.parametrize("path", BAD_PATHS, ids=repr)
async def test_a_path_that_leads_nowhere_is_one_warning(tmp_path, repo, caplog, path):
    assert await make_precompact_hook(repo)(given(path)) == {}
    assert archives(tmp_path) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "empty", "device"])
async def test_what_is_no_transcript_is_one_warning_at_once(tmp_path, repo, transcript, caplog, kind):
    path = tmp_path / "odd.jsonl"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(transcript)
    elif kind == "device":
        path = "/dev/zero"
    else:
        path.touch()
    with anyio.fail_after(5):
        assert await make_precompact_hook(repo)(given(str(path))) == {}
    assert archives(tmp_path) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


HOSTILE_IDS = ["../../outside", "a/b", "..", "x\0y", "n" * 300, ".hidden", "con\n", "é" * 200]


@pytest.mark.parametrize("session_id", HOSTILE_IDS, ids=repr)
async def test_a_session_id_is_never_a_path(tmp_path, repo, transcript, caplog, session_id):
    before = {path for path in tmp_path.rglob("*") if "runs" not in path.parts}
    assert await make_precompact_hook(repo)(given(str(transcript), session_id=session_id)) == {}
    assert {path for path in tmp_path.rglob("*") if "runs" not in path.parts} == before
    assert archives(tmp_path) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "\n" not in caplog.messages[0]


@pytest.mark.parametrize("hook_input", [None, 7, "text", [], {}, object()])
async def test_no_input_raises(repo, hook_input):
    assert await make_precompact_hook(repo)(hook_input) == {}


async def test_a_transcript_elsewhere_is_found_by_its_name(tmp_path, repo, transcript, caplog):
    caplog.set_level(logging.INFO)
    project = tmp_path / "claude" / "projects" / "-main-checkout"
    project.mkdir(parents=True)
    moved = transcript.rename(project / "session-1.jsonl")
    missing = "/nonexistent/session-1.jsonl"
    assert await make_precompact_hook(repo)(given(missing)) == {}
    (piece,) = archives(tmp_path)
    assert piece.read_bytes() == moved.read_bytes()
    assert any(missing in line and str(moved) in line for line in caplog.messages)


async def test_a_write_that_fails_is_an_error_line(tmp_path, repo, transcript, caplog, monkeypatch):
    (tmp_path / "runs").write_text("a file where a directory should be")
    assert await make_precompact_hook(repo)(given(str(transcript))) == {}
    assert [record.levelname for record in caplog.records] in (["ERROR"], ["WARNING"])


def test_our_callbacks_know_themselves(repo):
    assert is_ours(make_precompact_hook(repo))
    assert not is_ours(print)


def test_a_factory_gives_no_callback_where_nobody_listens():
    assert [event for event, factory in HOOKS.items() if factory({}) is not None] == []


def test_an_object_is_read_by_its_fields():
    assert as_mapping(SimpleNamespace(session_id="s", other=1)) == {"session_id": "s"}


class Speaker:
    """A part that answers every hook with what it was given."""

    def __init__(self, answer):
        self.answer = answer

    async def tell(self, hook_input):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    after_tools = before_tool = tell


def note(text, event="PostToolBatch"):
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


async def test_an_action_may_answer():
    hook = HOOKS["PreToolUse"]({"gate": Speaker(note("words", "PreToolUse"))})
    assert await hook({}, None, None) == note("words", "PreToolUse")


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1), type("Odd", (BaseException,), {})()])
async def test_a_part_that_raises_is_one_warning(caplog, error):
    hook = HOOKS["UserPromptSubmit"]({"notes": Speaker(error)})
    assert await hook({}, None, None) == {}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@BOTH
def test_a_caller_that_is_cancelled_is_cancelled(backend):
    class Waiting:
        async def tell(self, hook_input):
            await anyio.sleep_forever()

    async def ask():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await HOOKS["UserPromptSubmit"]({"notes": Waiting()})({}, None, None)
        return scope.cancelled_caught

    assert anyio.run(ask, backend=backend)


class Odd:
    """An input whose fields cannot be asked for."""

    def __getattr__(self, name):
        raise RuntimeError("broken")


async def test_an_input_that_cannot_be_read_is_one_warning_and_the_parts_are_asked(caplog):
    hook = HOOKS["UserPromptSubmit"]({"notes": Speaker(note("words"))})
    assert await hook(Odd()) == note("words")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def words(*texts):
    return add_context("PostToolUse", "\n\n".join(texts))


WORDS = st.text(min_size=1, max_size=10)


def test_nothing_to_say_is_an_empty_answer():
    assert merge([]) == merge([None, {}, None]) == {}


def test_a_result_and_words_go_together():
    both = merge([words("one"), replace_output([1])])["hookSpecificOutput"]
    assert both == {"hookEventName": "PostToolUse", "additionalContext": "one", "updatedToolOutput": [1]}
    assert merge([stop("why"), words("one")]) == {**stop("why"), **words("one")}


@examples(st.lists(st.one_of(st.none(), WORDS)))
def test_no_words_are_lost_and_none_of_the_answers_is_changed(said):
    answers = [None if text is None else words(text) for text in said]
    before = json.dumps(answers)
    texts = [text for text in said if text is not None]
    assert merge(answers) == (words(*texts) if texts else {})
    assert json.dumps(answers) == before


@pytest.mark.parametrize("odd", [None, "", 7, ["x"], {"a": 1}])
def test_a_text_of_an_input_is_one_or_nothing(odd):
    found = as_mapping({"session_id": odd, "transcript_path": "/t/5e55.jsonl", "cwd": odd, "agent_id": odd, "x": odd})
    assert found == {"session_id": "5e55", "transcript_path": "/t/5e55.jsonl", "x": odd}
    assert as_mapping({"transcript_path": odd}) == {"session_id": "unknown"}
    assert as_mapping(SimpleNamespace(session_id="s", cwd=odd))["session_id"] == "s"
