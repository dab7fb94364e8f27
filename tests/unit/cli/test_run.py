"""A prompt run on the real CLI, with a scripted API in the place of the user's account."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, StreamEvent, TextBlock
from click.testing import CliRunner

from mala_context.agent.builder import instrument
from mala_context.cli import live_gauge
from mala_context.cli import run as module
from mala_context.testing import ScriptedMessagesAPI, api_error, text, tool

RUN = (sys.executable, "-m", "mala_context.cli", "run")


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def run(tmp_path, project):
    """Run a prompt in the project, with the API's environment in the place of the user's own."""

    def call(api, *args, prompt="Look around.", stdin=None):
        env = {**os.environ, **api.env(tmp_path / "home"), "MALA_RUNS_DIR": os.fspath(tmp_path / "runs")}
        return subprocess.run(
            [*RUN, prompt, *args], cwd=project, env=env, input=stdin, capture_output=True, text=True, timeout=100
        )

    return call


def test_text_on_stdout_gauge_on_stderr_archive_on_disk(run, tmp_path, project):
    script = [text("I look first.") + tool("Bash", command="pwd", description="Where am I"), "It is\nempty."]
    with ScriptedMessagesAPI(script) as api:
        done = run(api, "--permission-mode", "bypassPermissions")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout == "I look first.\nIt is\nempty.\n"
        assert f"({api.last.tokens:,} of " in done.stderr
        assert api.last.contains(os.fspath(project))
    (piece,) = (tmp_path / "runs").glob("*/archives/*_transcript.jsonl")
    assert piece.stat().st_mode & 0o777 == 0o600
    assert "I look first." in piece.read_text()


@pytest.mark.long
def test_the_prompt_from_standard_input(run):
    with ScriptedMessagesAPI(["Fine."]) as api:
        done = run(api, prompt="-", stdin="Words from\na pipe.\n")
        assert done.returncode == 0, done.stderr
        assert api.last.contains("Words from\na pipe.")


def test_for_machines(run):
    with ScriptedMessagesAPI(["All well."]) as api:
        done = run(api, "--json", "--model", "claude-haiku-4-5")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert api.last.model.startswith("claude-haiku-4-5")
        assert set(result) == {
            *("ok", "result", "error", "session_id", "num_turns", "total_cost_usd", "duration_ms"),
            *("context", "compactions", "archive"),
        }
        assert result["ok"] is True
        assert result["result"] == "All well."
        assert result["error"] is None
        assert result["context"]["tokens"] == api.last.tokens
        assert result["context"]["exact"] is True
        assert os.path.isdir(result["archive"])


@pytest.mark.long
def test_a_session_goes_on(run):
    with ScriptedMessagesAPI(["Noted.", "It was 41."]) as api:
        first = json.loads(run(api, "--json", prompt="Remember 41.").stdout)
        done = run(api, "--resume", first["session_id"], prompt="Which?")
        assert done.stdout == "It was 41.\n"
        assert api.last.contains("Remember 41.")


def refused(_request):
    return api_error(400, "this will not do", retry=False)


def test_an_error_is_exit_status_1(run):
    with ScriptedMessagesAPI(refused) as api:
        done = run(api)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "this will not do" in done.stderr.splitlines()[-1]
        assert done.stderr.splitlines()[-1].startswith("mala-context: the run ended with an error: ")


@pytest.mark.long
def test_an_error_for_machines(run):
    with ScriptedMessagesAPI(refused) as api:
        done = run(api, "--json")
        assert done.returncode == 1
        result = json.loads(done.stdout)
        assert result["ok"] is False
        assert "this will not do" in result["error"]


@pytest.mark.long
def test_no_login_is_said(tmp_path, project):
    with ScriptedMessagesAPI() as api:
        env = {**os.environ, **api.env(tmp_path / "home"), "MALA_RUNS_DIR": os.fspath(tmp_path / "runs")}
        env["ANTHROPIC_API_KEY"] = ""
        done = subprocess.run([*RUN, "hello"], cwd=project, env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 3, done.stderr
        assert done.stdout == ""
        last = done.stderr.splitlines()[-1]
        assert last.startswith("mala-context: Claude Code has no login or key that works; run `claude` and log in")
        assert api.requests == []


@pytest.mark.long
def test_a_session_that_is_not_there(run):
    with ScriptedMessagesAPI() as api:
        done = run(api, "--resume", "11111111-2222-3333-4444-555555555555")
        assert done.returncode in {1, 3}
        assert done.stderr.splitlines()[-1].startswith("mala-context: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "Missing argument 'PROMPT'"),
        (["  "], "it is empty"),
        (["hello", "--permission-mode", "never"], "is not one of"),
        (["hello", "--modle", "x"], "--model"),
    ],
)
def test_wrong_usage(args, words):
    done = subprocess.run([*RUN, *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_a_directory_that_is_not_there():
    done = subprocess.run([*RUN, "hello", "--cwd", "not/there"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "mala-context: not/there: No such file or directory\n"


class Session:
    """A session that says what the test gives it."""

    context = None

    def __init__(self, messages):
        self.messages = messages

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def send(self, prompt):
        for message in self.messages:
            yield message


def result(**fields):
    known = {"subtype": "success", "duration_ms": 5, "duration_api_ms": 4, "is_error": False, "num_turns": 1}
    return ResultMessage(**{**known, "session_id": "s1", "result": "Done.", **fields})


def said(words, **fields):
    return AssistantMessage(content=[TextBlock(words)], model="m", **fields)


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Run the command in this process, with messages in the CLI's place."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr(live_gauge, "gauge_lines", lambda: nullcontext(lambda snapshot: None))

    def call(messages, *arguments):
        runtime = instrument(ClaudeAgentOptions(cwd=tmp_path), tmp_path)
        monkeypatch.setattr(runtime, "session", lambda: Session(messages))
        monkeypatch.setattr(module, "_runtime", lambda *_: runtime)
        return CliRunner().invoke(module.run, ["Hello.", *arguments], standalone_mode=False)

    return call


def test_what_comes_in_pieces_is_printed_once_and_what_does_not_as_well(play):
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Str"}}
    events = [
        {"type": "message_start", "message": {"id": "m1"}},
        delta,
        {**delta, "delta": {"text": "eamed."}},
        {"type": "content_block_stop"},
    ]
    streamed = [StreamEvent(uuid="u", session_id="s1", event=event) for event in events]
    rest = [said("Streamed.", message_id="m1"), said("Of a subagent.", parent_tool_use_id="t"), said("Whole.")]
    done = play([*streamed, *rest, result()])
    assert (done.return_value, done.stdout) == (0, "Streamed.\nWhole.\n")


def test_for_machines_the_summary_is_all_that_is_printed(play, tmp_path):
    done = play([said("Whole."), result()], "--json")
    summary = json.loads(done.stdout)
    assert (summary["ok"], summary["result"], summary["error"], summary["num_turns"]) == (True, "Done.", None, 1)
    assert summary["archive"].startswith(str(tmp_path / "runs"))


def test_an_error_of_the_run_is_a_line_and_exit_status_1(play):
    done = play([result(is_error=True, result="API Error: 500\nmore")])
    assert done.return_value == 1
    assert done.stderr.startswith("mala-context: the run ended with an error: ")


def test_a_cli_that_ends_without_an_answer_is_said(play):
    done = play([])
    assert done.return_value == 1
    assert "the CLI ended before it had answered" in done.stderr


def test_without_a_login_it_is_said_how_to_get_one(play):
    done = play([said("x", error="authentication_failed"), result(is_error=True, result="Invalid API key")])
    assert "log in, or set ANTHROPIC_API_KEY (it says: " in str(done.exception)
