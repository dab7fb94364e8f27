"""The scripted API over plain HTTP, without the CLI."""

import contextlib
import http.client
import json
import os
import pathlib
import threading
import time

import anyio
import anyio.to_thread
import pytest

from mala_context.testing import ScriptedMessagesAPI, ScriptError, api_error, refuse, summary, text, too_long, tool
from mala_context.testing.api import ANOTHER_ACCOUNT, claude_env

SUMMARY_PROMPT = "Your task is to create a detailed summary of the conversation so far."


@contextlib.contextmanager
def client(api):
    connection = http.client.HTTPConnection(api.url.removeprefix("http://"), timeout=10)
    try:
        yield connection
    finally:
        connection.close()


def ask(api, prompt="hello", *, path="/v1/messages", headers=None, **fields):
    """Send one request and return the status and the parsed answer."""
    body = {"model": "m", "tools": [{"name": "T"}], "messages": [{"role": "user", "content": prompt}], **fields}
    with client(api) as connection:
        connection.request("POST", path, json.dumps(body), headers or {})
        response = connection.getresponse()
        data = response.read()
        if response.getheader("content-type").startswith("text/event-stream"):
            return response.status, [json.loads(part.split(b"data: ")[1]) for part in data.strip().split(b"\n\n")]
        return response.status, json.loads(data)


def test_replies_come_in_order_and_are_logged():
    with ScriptedMessagesAPI(["one", [text("two"), tool("Bash", command="ls")]]) as api:
        _, first = ask(api)
        _, second = ask(api, "more")
        assert [block["type"] for block in first["content"] + second["content"]] == ["text", "text", "tool_use"]
        assert [request.number for request in api.main_requests] == [1, 2]
        assert api.last.message_id == second["id"]
        assert api.last.usage == second["usage"]
        assert api.last.prompt == "more"
        assert api.last.answer == text("two") + tool("Bash", command="ls")
        assert api.last.state == "answered"
        assert api.texts == ['{"name":"T"}\nhello', '{"name":"T"}\nmore']
        assert api.by_message(first["id"]) is api.requests[0]
        assert time.time() - 60 < api.last.time <= time.time()
    assert api.problems == []


def test_usage_is_exactly_the_count():
    with ScriptedMessagesAPI(["a"], chars_per_token=1.0) as api:
        _, message = ask(api, "x" * 100)
        usage = message["usage"]
        total = sum(usage[f"{name}input_tokens"] for name in ("", "cache_creation_", "cache_read_"))
        assert total == 112 == api.last.tokens == api.last.received_tokens


def test_streams_have_the_same_usage_and_a_request_id():
    with ScriptedMessagesAPI(["hi"]) as api:
        status, events = ask(api, stream=True)
        assert status == api.last.status == 200
        assert events[0]["message"]["usage"]["input_tokens"] == api.last.tokens
        assert events[-2]["usage"] == api.last.usage
        assert api.last.id.startswith("req_")


def test_usage_in_the_delta_alone():
    with ScriptedMessagesAPI(["hi"], usage_in="delta") as api:
        _, events = ask(api, stream=True)
        assert events[0]["message"]["usage"]["input_tokens"] == 0
        assert events[-2]["usage"]["input_tokens"] == api.last.tokens > 0


@pytest.mark.parametrize(
    ("failure", "status", "kind", "message"),
    [
        (too_long(12, 10), 400, "invalid_request_error", "prompt is too long: 12 tokens > 10 maximum"),
        (refuse("no"), 400, "invalid_request_error", "no"),
        (api_error(429), 429, "rate_limit_error", "scripted error"),
        (api_error(500, "down"), 500, "api_error", "down"),
        (api_error(529), 529, "overloaded_error", "scripted error"),
    ],
)
def test_failures_are_answered_as_the_api_does(failure, status, kind, message):
    with ScriptedMessagesAPI([failure, "fine"]) as api:
        got, body = ask(api, stream=True)
        assert (got, body["error"]) == (status, {"type": kind, "message": message})
        assert body["request_id"] == api.last.id
        assert (api.last.status, api.last.usage, api.last.message_id) == (status, None, None)
        assert ask(api)[1]["content"][0]["text"] == "fine"


def test_a_window_refuses_what_is_larger_and_takes_no_line_of_the_script():
    with ScriptedMessagesAPI(["a", "b"], window=20, chars_per_token=1.0) as api:
        assert ask(api, "x" * 8)[0] == 200
        status, body = ask(api, "x" * 9)
        assert (status, body["error"]["message"]) == (400, "prompt is too long: 21 tokens > 20 maximum")
        assert ask(api, "x")[1]["content"][0]["text"] == "b"


def test_a_refused_request_writes_no_cache():
    block = [{"type": "text", "text": "x" * 50, "cache_control": {"type": "ephemeral"}}]
    with ScriptedMessagesAPI([refuse("no"), "a"]) as api:
        ask(api, block)
        assert ask(api, block)[1]["usage"]["cache_read_input_tokens"] == 0


def test_every_kind_is_answered_and_only_main_eats_the_script():
    with ScriptedMessagesAPI(["main"], subagents=["sub"], compactions=[summary("short")]) as api:
        assert ask(api, "q", tools=[], max_tokens=1)[1]["content"][0]["text"] == "ok"
        assert ask(api, SUMMARY_PROMPT)[1]["content"] == list(summary("short").content)
        assert "<summary>" in ask(api, SUMMARY_PROMPT)[1]["content"][0]["text"]
        assert ask(api, headers={"X-Claude-Code-Agent-Id": "a1"})[1]["content"][0]["text"] == "sub"
        assert ask(api, path="/v1/messages/count_tokens")[1] == {"input_tokens": 5}
        assert ask(api)[1]["content"][0]["text"] == "main"
        kinds = [request.kind for request in api.requests]
        assert kinds == ["side", "compaction", "compaction", "subagent", "count_tokens", "main"]
        assert api.of_kind("subagent")[0].agent_id == "a1"
        assert len(api.of_kind("side", "compaction")) == 3


def test_other_paths_are_not_found_and_not_logged():
    with ScriptedMessagesAPI() as api:
        status, body = ask(api, path="/v1/complete")
        assert (status, body["error"]["type"]) == (404, "not_found_error")
        assert api.requests == []


def test_running_out_ends_the_turn_and_raises_when_the_block_ends():
    api = ScriptedMessagesAPI([])
    with pytest.raises(ScriptError) as caught, api:
        ask(api, "more please")
    assert (api.last.status, api.last.answer.stop_reason) == (200, None)
    assert caught.value.problems == tuple(api.problems)
    assert "asked after 'more please'" in str(caught.value)


def test_problems_are_only_listed_when_not_strict():
    with ScriptedMessagesAPI([], strict=False) as api:
        ask(api)
    assert len(api.problems) == 1


def test_problems_are_a_note_on_an_error_that_is_on_its_way():
    api = ScriptedMessagesAPI([])
    with pytest.raises(TimeoutError) as caught, api:
        api.wait(1 + len(ask(api)[1]["content"]), timeout=0.01)
    assert "no further reply" in caught.value.__notes__[0]


def test_a_script_that_raises_is_a_problem_and_an_answer():
    def script(request):
        raise KeyError("oops")

    with ScriptedMessagesAPI(script, strict=False) as api:
        status, body = ask(api)
    assert status == 500
    assert "KeyError('oops')" in body["error"]["message"]
    assert api.problems == ["request 1: the script raised KeyError('oops')"]


def test_a_wrong_line_is_a_problem_too():
    with ScriptedMessagesAPI([42], strict=False) as api:
        assert ask(api)[0] == 500
    assert "not int" in api.problems[0]


def test_a_held_answer_waits_for_its_event():
    hold = threading.Event()
    with ScriptedMessagesAPI([text("partial").but(hold=hold)]) as api, client(api) as connection:
        connection.request("POST", "/v1/messages", json.dumps({"stream": True, "messages": []}))
        response = connection.getresponse()
        request = api.wait(1, state="holding")
        assert b"partial" in response.read1()
        assert request.state == "holding"
        hold.set()
        assert b"message_stop" in response.read()
        assert api.wait(1, state="answered") is request


@pytest.mark.parametrize("answer", [text("x"), api_error(500)])
def test_answers_that_are_not_streamed_wait_as_a_whole(answer):
    hold = threading.Event()
    with ScriptedMessagesAPI([answer.but(hold=hold, headers={"x-mark": "1"})]) as api, client(api) as connection:
        connection.request("POST", "/v1/messages", json.dumps({"messages": []}))
        api.wait(1, state="holding")
        hold.set()
        response = connection.getresponse()
        response.read()
        assert response.getheader("x-mark") == "1"


def test_a_stream_can_break_off_with_an_error():
    broken = text("half of it").but(breaks_with=api_error(529))
    with ScriptedMessagesAPI([broken, broken]) as api:
        status, events = ask(api, stream=True)
        assert status == 200
        assert [event["type"] for event in events[-2:]] == ["content_block_delta", "error"]
        assert events[-1]["error"]["type"] == "overloaded_error"
        assert ask(api)[0] == 529


def test_a_client_that_gives_up_is_noted():
    with ScriptedMessagesAPI([text("x").but(hold=threading.Event()), "y"]) as api:
        with client(api) as connection:
            connection.request("POST", "/v1/messages", json.dumps({"stream": True, "messages": []}))
            connection.getresponse().read1()
            api.wait(1, state="holding")
        assert api.wait(1, state="abandoned").status == 200
        assert ask(api)[0] == 200


def test_closing_ends_an_open_answer():
    with ScriptedMessagesAPI([text("x").but(hold=threading.Event())]) as api, client(api) as connection:
        connection.request("POST", "/v1/messages", json.dumps({"stream": True, "messages": []}))
        api.wait(1, state="holding")
        api.close()
    assert api.requests[0].state == "abandoned"


def test_a_delay_is_kept():
    with ScriptedMessagesAPI([text("x").but(delay=0.05)]) as api:
        start = time.monotonic()
        ask(api)
        assert time.monotonic() - start >= 0.05


def test_waiting_for_what_never_comes_times_out():
    with ScriptedMessagesAPI() as api, pytest.raises(TimeoutError, match="no main request 2"):
        api.wait(2, timeout=0.01)


def test_what_is_not_there_is_a_lookup_error():
    with ScriptedMessagesAPI() as api:
        with pytest.raises(LookupError):
            api.by_message("msg_other")
        with pytest.raises(LookupError):
            _ = api.last


def test_an_api_is_started_once():
    api = ScriptedMessagesAPI()
    with pytest.raises(RuntimeError, match="with statement"):
        _ = api.url
    api.close()
    with api, pytest.raises(RuntimeError, match="started already"):
        api.start()
    api.close()


def test_ids_differ_between_apis():
    with ScriptedMessagesAPI(["a"]) as one, ScriptedMessagesAPI(["a"]) as two:
        assert ask(one)[1]["id"] != ask(two)[1]["id"]


def test_many_clients_at_once_are_all_counted():
    with ScriptedMessagesAPI(lambda request: request.prompt) as api:
        threads = [threading.Thread(target=ask, args=(api, f"p{n}")) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(request.number for request in api.requests) == list(range(1, 17))
        assert len({request.message_id for request in api.requests}) == 16


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_serves_beside_an_event_loop(backend):
    async def main():
        with ScriptedMessagesAPI(["a"]) as api:
            status, _ = await anyio.to_thread.run_sync(ask, api)
            return status

    assert anyio.run(main, backend=backend) == 200


def test_options_are_ready_for_the_cli(tmp_path):
    with ScriptedMessagesAPI() as api:
        options = api.options(cwd=tmp_path, env={"EXTRA": "1"}, max_turns=3)
        assert (options.cwd, options.max_turns, options.permission_mode) == (str(tmp_path), 3, "bypassPermissions")
        assert options.env["ANTHROPIC_BASE_URL"] == api.url
        assert options.env["EXTRA"] == "1"
        assert api.options(permission_mode="plan").permission_mode == "plan"


def test_temporary_directories_go_with_the_api(tmp_path):
    with ScriptedMessagesAPI() as api:
        options = api.options()
        assert os.path.isdir(options.cwd)
        assert options.env["HOME"] == api.env()["HOME"]
        assert api.env(tmp_path)["HOME"] == str(tmp_path)
    assert not os.path.exists(options.cwd)
    assert not os.path.exists(options.env["HOME"])


# -- the environment: the user's own account must not show through ---------------------------------------------------


def test_everything_the_cli_keeps_is_below_the_home():
    env = claude_env("http://127.0.0.1:1", pathlib.Path("/h"))
    assert env["HOME"] == "/h"
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR"):
        assert env[name].startswith("/h/")


def test_the_cli_talks_to_the_given_server_alone():
    env = claude_env("http://127.0.0.1:1", "/h")
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert env["ANTHROPIC_API_KEY"]
    assert "127.0.0.1" in env["NO_PROXY"]


def test_variables_of_another_account_are_emptied():
    env = claude_env("http://127.0.0.1:1", "/h")
    assert {env[name] for name in ANOTHER_ACCOUNT} == {""}


def test_all_values_are_text():
    assert {type(value) for value in claude_env("u", pathlib.Path("/h")).values()} == {str}


def test_commands_are_found_where_this_process_has_no_path(monkeypatch):
    monkeypatch.setenv("PATH", "/mine")
    assert "PATH" not in claude_env("u", "/h")
    monkeypatch.delenv("PATH")
    assert claude_env("u", "/h")["PATH"]
