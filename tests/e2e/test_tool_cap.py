"""The cap on tool results on the real CLI: every tool's own shape, parallel calls, reading back."""

import http.server
import json
import logging
import os
import re
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mala_context import instrument
from mala_context.agent.telemetry.records import GuardActed
from mala_context.config import parse
from mala_context.testing import text, tool

from .driving import turn

CAP = 2_000
CONFIG = f"context:\n  guard:\n    tool_output_tokens: {CAP}\n"
AUTO = "context:\n  guard:\n    tool_output_tokens: auto\n"
LEFT_OUT = re.compile(r"\[… ([\d,]+) characters left out; full text: ([^;\]]+?\.txt)")
SERVER = {"m": {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_stdio.py"))]}}


def lines(number):
    return "".join(f"line {n} of a long file\n" for n in range(1, number + 1))


def shown(request):
    """Return the tool results of a request's last message as the model gets them, reminders left out."""
    found = []
    for block in request.body["messages"][-1]["content"]:
        if block["type"] == "tool_result":
            content = block["content"]
            parts = [content] if isinstance(content, str) else [one["text"] for one in content if one["type"] == "text"]
            found.append(re.sub(r"<system-reminder>.*?</system-reminder>", "", "\n".join(parts), flags=re.DOTALL))
    return found


def content(path):
    return Path(path).read_text()


def real(path):
    return os.path.realpath(path)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def spills(runs):
    return sorted(path for path in runs.rglob("spills/*/*.txt"))


async def play(agent, script, *, config=CONFIG, options=None, prompts=("go",), **api):
    runtime, watch = agent([*script, "done"], config=config, options=options, **api)
    async with runtime.session() as session:
        for prompt in prompts:
            await turn(session, prompt)
    return runtime, watch


@pytest.fixture
def big(mala_project):
    path = mala_project / "big.txt"
    path.write_text(lines(1_000))
    return path


def check_spill(result, full, runs):
    """Assert that a result is capped and names a private file that holds all of it, outside of the project."""
    assert len(result) <= 4 * CAP + 200  # and the CLI's own few words
    match = LEFT_OUT.search(result)
    assert match, result
    path = Path(match[2])
    assert path.read_text().rstrip("\n") == full.rstrip("\n")
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert path.is_relative_to(os.path.realpath(runs))
    return path


async def test_bash(agent, big, mala_runs):
    _, watch = await play(agent, [tool("Bash", command=f"cat {big}")])
    (result,) = shown(watch.api.main_requests[1])
    check_spill(result, big.read_text(), mala_runs)
    assert result.startswith("line 1 of")
    assert "line 1000 of a long file" in result


async def test_a_capped_result_is_told(agent, big):
    runtime, _ = agent([tool("Bash", command=f"cat {big}"), "done"], config=CONFIG)
    told = []
    runtime.observers.append(told.append)
    async with runtime.session() as session:
        await turn(session, "go")
    (acted,) = [record for record in told if isinstance(record, GuardActed)]
    assert (acted.session_id, acted.action, acted.tool) == (runtime.tracker.session_id, "capped", "Bash")


async def test_what_the_cli_cuts_itself_costs_no_more_and_keeps_its_end(agent, big, mala_runs):
    big.write_text(lines(20_000))
    _, watch = await play(agent, [tool("Bash", command=f"cat {big}")])
    (result,) = shown(watch.api.main_requests[1])
    check_spill(result, big.read_text(), mala_runs)
    assert len(result) < 2_400
    assert "line 20000 of a long file" in result
    assert "persisted-output" not in result


async def test_read_counts_the_numbers_of_lines(agent, big, mala_runs):
    _, watch = await play(agent, [tool("Read", file_path=str(big)), tool("Read", file_path=str(big), limit=100)])
    (whole,), (part,) = shown(watch.api.main_requests[1]), shown(watch.api.main_requests[2])
    check_spill(whole, big.read_text(), mala_runs)
    assert len(whole) <= 4 * CAP + 10
    assert whole.startswith("1\tline 1 of")
    assert "left out" not in part
    assert "100\tline 100 of a long file" in part


async def test_a_notebook(agent, mala_project, mala_runs):
    cell = {
        "cell_type": "code",
        "id": "abc",
        "metadata": {},
        "execution_count": 1,
        "source": ["print(1)"],
        "outputs": [{"output_type": "stream", "name": "stdout", "text": [lines(350)]}],
    }
    book = {"cells": [cell], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    path = mala_project / "book.ipynb"
    path.write_text(json.dumps(book))
    _, watch = await play(agent, [tool("Read", file_path=str(path))])
    (result,) = shown(watch.api.main_requests[1])
    match = LEFT_OUT.search(result)
    assert match, result
    assert "line 350 of a long file" in content(match[2])
    assert len(result) <= 4 * CAP + 10


async def test_a_subagents_report(agent, mala_runs):
    call = tool("Agent", description="d", prompt="do", subagent_type="general-purpose", run_in_background=False)
    _, watch = await play(agent, [call], subagents=[lines(1_000)])
    (result,) = shown(watch.api.main_requests[1])
    path = Path(LEFT_OUT.search(result)[2])
    assert content(path).rstrip() == lines(1_000).rstrip()
    assert len(result) <= 4 * CAP + 1_500  # the CLI frames a report with words of its own


async def test_a_subagents_own_tools(agent, big, mala_runs):
    call = tool("Agent", description="d", prompt="do", subagent_type="general-purpose", run_in_background=False)
    _, watch = await play(agent, [call], subagents=[tool("Bash", command=f"cat {big}"), "short"])
    (result,) = shown(watch.api.of_kind("subagent")[1])
    check_spill(result, big.read_text(), mala_runs)


async def test_mcp_texts_keep_the_image(agent, mala_runs):
    _, watch = await play(agent, [tool("mcp__m__mixed", characters=40_000)], options={"mcp_servers": SERVER})
    request = watch.api.main_requests[1]
    (result,) = shown(request)
    match = LEFT_OUT.search(result)
    assert match, result
    assert len(result) <= 4 * CAP + 200
    kept = content(match[2])
    assert kept.startswith("data data")
    assert kept.endswith("the last words")
    (block,) = [one for one in request.body["messages"][-1]["content"] if one["type"] == "tool_result"]
    assert [one["type"] for one in block["content"]].count("image") == 1


@pytest.mark.parametrize("characters", [40_000, 400_000])
async def test_mcp_structured_content(agent, mala_runs, characters):
    script = [tool("mcp__m__structured", characters=characters)]
    _, watch = await play(agent, script, options={"mcp_servers": SERVER})
    (result,) = shown(watch.api.main_requests[1])
    assert len(result) <= 4 * CAP + 200
    if characters == 40_000:
        path = Path(LEFT_OUT.search(result)[2])
        assert json.loads(content(path)) == {"data": "data " * 8_000}
    else:  # the CLI keeps it itself, and says where
        path = re.search(r"saved to (\S+\.txt)", result)[1]
        assert len(content(path)) > 400_000


@pytest.fixture
def site(tmp_path):
    """Return the address of a page on the loopback, and the options for a CLI that may read it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/", certificate
    server.shutdown()
    thread.join()
    server.server_close()


class Page(http.server.BaseHTTPRequestHandler):
    """A page of a few words."""

    def do_GET(self):
        body = b"<html><body><p>hello</p></body></html>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("name", ["WebFetch", "WebSearch"])
async def test_the_web(mala_api, mala_options, mala_runs, site, name):
    """What the model that reads the page says is the tool's result; here it says a lot."""
    address, certificate = site
    calls = {"WebFetch": {"url": address, "prompt": "what"}, "WebSearch": {"query": "two words"}}
    api = mala_api([tool(name, **calls[name]), text(lines(1_000)), "done"])
    env = {"NODE_TLS_REJECT_UNAUTHORIZED": "0", "NODE_EXTRA_CA_CERTS": str(certificate)}
    options = mala_options(api, env=env, settings=json.dumps({"skipWebFetchPreflight": True}))
    runtime = instrument(options, config=parse(CONFIG))
    async with runtime.session() as session:
        await turn(session, "go")
    (result,) = shown(api.main_requests[-1])
    path = Path(LEFT_OUT.search(result)[2])
    assert content(path).rstrip() == lines(1_000).rstrip()
    assert len(result) <= 4 * CAP + 300


async def test_small_results_and_edits_are_left_alone(agent, big, mala_runs):
    edit = tool("Edit", file_path=str(big), old_string="line 5 of", new_string="LINE 5 of")
    write = tool("Write", file_path=str(big.with_name("new.txt")), content=lines(1_000))
    script = [tool("Bash", command="echo hello"), tool("Read", file_path=str(big), limit=5), edit, write]
    _, watch = await play(agent, script)
    results = [shown(request)[0] for request in watch.api.main_requests[1:]]
    assert results[0].strip() == "hello"
    assert "has been updated" in results[2]
    assert "File created" in results[3]
    assert spills(mala_runs) == []


async def test_a_failed_command_is_the_clis_to_cut(agent, big, mala_runs):
    big.write_text(lines(5_000))
    _, watch = await play(agent, [tool("Bash", command=f"cat {big}; exit 3")])
    (result,) = shown(watch.api.main_requests[1])
    assert len(result) < 11_000
    assert spills(mala_runs) == []


async def test_reading_a_spill_back_makes_no_other(agent, mala_project, mala_runs, big):
    """Whole it is capped with words on how to page; in parts it passes; through a link and with cat likewise."""
    big.write_text(lines(5_000))
    seen = []
    link = mala_project / "link.txt"

    def script(request):
        seen.append(shown(request)[0] if len(seen) else "")
        step = len(seen)
        if step == 1:
            return tool("Bash", command=f"cat {big}")
        path = spills(mala_runs)[0]
        if not link.is_symlink():
            link.symlink_to(path)
        steps = {
            2: tool("Read", file_path=str(path)),
            3: tool("Read", file_path=str(path), offset=3_000, limit=200),
            4: tool("Bash", command=f"cat '{path}'"),
            5: tool("Read", file_path=str(link)),
            6: tool("Bash", command="cat link.txt | head -c 20000"),
            7: tool("Bash", command=f"head -c 4000 {path}"),
        }
        return steps.get(step, text("done"))

    runtime, _ = agent(script, config=CONFIG)
    async with runtime.session() as session:
        await turn(session, "go")
    first, whole, part, cat, linked, cut, head = seen[1:8]
    assert len(spills(mala_runs)) == 1
    path = real(spills(mala_runs)[0])
    for result in (first, whole, cat, linked, cut):
        assert len(result) <= 4 * CAP + 200
        assert f"full text: {path}; read it in parts: Read with offset and limit" in result
    assert "left out" not in part
    assert "3199\tline 3199 of a long file" in part
    assert "left out" not in head
    assert content(path).rstrip("\n") == content(big).rstrip("\n")


async def test_one_result_cannot_jump_past_the_limit(agent, mala_project, mala_runs):
    """At 60 % of the window results of 95,000 tokens: the CLI cuts a command's to a preview, a file's to a part."""
    path = mala_project / "jump.txt"
    path.write_text("".join(f"{n:07d} {'w' * 91}\n" for n in range(2_500)))
    script = [tool("Read", file_path=str(path), allow_large=True), tool("Bash", command=f"cat {path}"), "done"]
    runtime, watch = agent(script, config=AUTO + "  window: 200000\n", window=200_000)
    async with runtime.session() as session:
        await turn(session, "x" * 4 * 105_000)
    for request, room in zip(watch.api.main_requests[1:3], (4 * 7_500 + 10, 2_400), strict=True):
        (result,) = shown(request)
        assert len(result) <= room
        kept = Path(LEFT_OUT.search(result)[2])
        assert content(path).startswith(content(kept))
        assert mode(kept) == 0o600
    assert content(kept) == content(path)
    assert all(request.status == 200 for request in watch.api.main_requests)


async def test_parallel_results_share_what_is_left(agent, mala_project, mala_runs, caplog):
    """Each would fit alone; together they may take no more than there is, and none is lost."""
    caplog.set_level(logging.INFO, "mala_context")
    for number in range(12):
        (mala_project / f"{number}.txt").write_text("".join(f"{number}:{n} some words\n" for n in range(1_200)))
    calls = tool("Bash", command="cat 0.txt")
    for number in range(1, 12):
        calls = calls + tool("Bash", command=f"cat {number}.txt")
    _, watch = await play(agent, [calls], config=AUTO + "  window: 40000\n", window=40_000)
    before, after = watch.api.main_requests[:2]
    results = shown(after)
    assert len(results) == 12
    assert after.tokens <= 40_000
    full = sum(len((mala_project / f"{n}.txt").read_text()) for n in range(12))
    assert before.tokens + full / 4 > 40_000
    kept = {path.read_text().rstrip() for path in spills(mala_runs)}
    whole = {(mala_project / f"{number}.txt").read_text().rstrip() for number in range(12)}
    for result in results:  # in the order in which they ended
        assert (result.strip() in whole) != bool(re.search(r"full text: \S+\.txt", result))
    assert {result.strip() for result in results if result.strip() in whole} | kept == whole
    assert sum("no room for Bash's" in record.getMessage() for record in caplog.records) <= 1


async def test_without_the_key_nothing_is_capped(agent, big, mala_runs):
    _, watch = await play(agent, [tool("Bash", command=f"cat {big}")], config="")
    assert len(shown(watch.api.main_requests[1])[0]) > 4 * CAP
    assert spills(mala_runs) == []
