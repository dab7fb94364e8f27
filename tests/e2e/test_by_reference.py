"""Compactions by reference on the real CLI, each figure against the server's log."""

import json
import logging
import os
import re

import pytest
from claude_agent_sdk import ClaudeSDKClient

from mala_context import instrument
from mala_context.agent.reference import compactor
from mala_context.agent.reference.compactor import FULL_NAME, SERVER
from mala_context.archive.full_outputs import Spills
from mala_context.archive.search import search_session
from mala_context.config import parse
from mala_context.testing import summary, thinking, too_long, tool
from mala_context.testing.scripts import fill_until_compaction
from tests.helpers.variants import variants

from .driving import Watch, check_private, check_whole, outcomes, results, rows_of, turn

CONFIG = "context:\n  compaction: reference\n"
RULE = "Never use tabs in this project; the limit is 4,711 lines."


def said(request):
    """Return all text of a request's messages."""
    return "\n".join(each["text"] for each in _blocks(request) if each.get("type") == "text")


def _blocks(request):
    for message in request.body["messages"]:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def lines_of(path, first, last):
    """Return what a pointer leads to, byte for byte."""
    with open(path, "rb") as file:
        return b"\n".join(file.read().split(b"\n")[first - 1 : last])


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def check_estimate(watch, number, request, within=0.05):
    """Assert that a compaction's estimate is near what the request after it held."""
    snapshot, _ = watch.compactions[number]
    assert (snapshot.accuracy, snapshot.exact) == ("estimate", False)
    assert abs(snapshot.tokens - request.tokens) <= within * request.tokens, (snapshot.tokens, request.tokens)


async def play(runtime, *prompts):
    async with runtime.session() as session:
        turns = [await turn(session, prompt) for prompt in prompts]
        return turns, session.context.session_id


async def test_a_compaction_in_mid_turn(agent, mala_home, mala_runs, mala_project, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    script = [
        "Noted.",
        tool("Bash", command="seq 4000", description="x"),
        too_long(250_000, 200_000),
        "Done.",
        "After.",
    ]
    runtime, watch = agent(script, config=CONFIG, chars_per_token=3.0)
    turns, session_id = await play(runtime, RULE, "count", "go on")
    assert [request.kind for request in watch.api.requests] == ["main"] * 5
    assert [len(results(messages)) for messages in turns] == [1, 1, 1]
    assert not any(each.is_error for messages in turns for each in results(messages))
    after = watch.api.requests[3]
    assert said(after).count(RULE) == 1
    assert "The turn goes on where it stood." in said(after)
    watch.check(4)
    check_estimate(watch, 0, after)
    assert outcomes(runtime.archive, session_id) == [("auto", "by_reference", 0)]
    (row,) = rows_of(runtime.archive, session_id, "outcome")
    assert row["kept"]["calls"] == 1
    assert row["lost"]["instruction"] == {"total": 2, "named": 2, "missing": []}
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)
    assert not any("reference" in line for line in warnings_of(caplog))
    (line,) = (each.getMessage() for each in caplog.records if each.getMessage().startswith("Compaction:"))
    assert line.endswith(", by reference; kept text names 0 of 0 files, 2 of 2 instructions")
    # the pointer leads to the call's whole result
    path = re.search(r'file="([^"]+)"', said(after))[1]
    first, last = map(int, re.search(r"#1 Bash seq 4000 → [\d,]+ characters \[(\d+)-(\d+)\]", said(after)).groups())
    assert b"\n".join(b"%d" % n for n in range(1, 4001)) in lines_of(path, first, last)
    assert Spills(mala_project).owner(path) == path
    assert not watch.api.requests[0].contains(SERVER)


async def test_a_manual_compaction(agent, mala_home):
    runtime, watch = agent(
        ["Noted.", tool("Bash", command="seq 3000", description="x"), "Counted.", "After."], config=CONFIG
    )
    _, session_id = await play(runtime, RULE, "count", "/compact keep the limit in mind", "go on")
    assert [request.kind for request in watch.api.requests] == ["main"] * 4
    after = said(watch.api.requests[3])
    assert after.count(RULE) == 1
    assert "The user asked that this compaction keep in mind: keep the limit in mind" in after
    watch.check(4)
    watch.check_estimate()
    assert outcomes(runtime.archive, session_id) == [("manual", "by_reference", 0)]
    check_whole(runtime.archive, mala_home, session_id)


@pytest.mark.parametrize("rounds", variants([5, 20]))
async def test_many_compactions_wear_nothing_down(agent, mala_home, rounds):
    script = []
    for number in range(rounds):
        script += [tool("Bash", command=f"seq {number} 500", description="x"), f"Round {number} is counted."]
    runtime, watch = agent([*script, "After."], config=CONFIG, chars_per_token=3.0)
    rules = [f"Rule {number}: at most {number * 7919} lines in module {number}." for number in range(rounds)]
    prompts = [prompt for rule in rules for prompt in (rule, "/compact")]
    _, session_id = await play(runtime, *prompts, "go on")
    assert not watch.api.of_kind("compaction")
    last = said(watch.api.main_requests[-1])
    for number, rule in enumerate(rules):
        assert last.count(rule) == 1
        assert last.count(f"Round {number} is counted.") == 1
    for number in range(rounds):
        watch.check_estimate(number, appended=0, within=0.05)
    assert [outcome for _, outcome, _ in outcomes(runtime.archive, session_id)] == ["by_reference"] * rounds
    paths = re.findall(r'file="([^"]+)"', last)
    assert len(set(paths)) == rounds
    pointers = re.findall(r"#\d+ Bash seq (\d+) 500 → [\d,]+ characters \[(\d+)-(\d+)\]", last)
    for path, (number, first, end) in zip(paths, pointers, strict=True):
        whole = b"\n".join(b"%d" % n for n in range(int(number), 501))
        assert whole in lines_of(path, int(first), int(end))
    check_whole(runtime.archive, mala_home, session_id)


async def test_a_window_that_fills_again_and_again(mala_api, mala_options, mala_project, mala_home):
    scenario = fill_until_compaction(mala_project, window=60_000, turns=9)
    api = mala_api(scenario.script, **scenario.settings)
    runtime = instrument(mala_options(api, env=scenario.env), config=parse(CONFIG))
    watch = Watch(runtime, api)
    turns, session_id = await play(runtime, *scenario.prompts)
    assert not any(result.is_error for messages in turns for result in results(messages))
    assert not [request for request in api.requests if request.kind == "compaction"]
    watch.check()
    assert watch.compactions
    refused = [number for number, request in enumerate(api.requests) if request.status == 400]
    assert len(watch.compactions) == len(refused)
    for number, place in enumerate(refused):
        check_estimate(watch, number, api.requests[place + 1])
    assert all(said(api.main_requests[-1]).count(prompt) == 1 for prompt in scenario.prompts)
    check_whole(runtime.archive, mala_home, session_id)


@pytest.mark.parametrize("fork", variants([False, True]), ids=["resume", "fork"])
async def test_a_session_that_is_resumed_after_it(agent, mala_home, fork):
    first, _ = agent(["Noted.", tool("Bash", command="seq 2000", description="x"), "Counted."], config=CONFIG)
    _, session_id = await play(first, RULE, "count", "/compact")
    options = {"resume": session_id, "fork_session": fork}
    runtime, watch = agent(["Going.", "After."], config=CONFIG, options=options, chars_per_token=3.0)
    _, now = await play(runtime, "go on", "/compact", "and on")
    assert (now == session_id) is not fork
    for request, rules in zip(watch.api.main_requests, (1, 1), strict=True):
        assert said(request).count(RULE) == rules
        assert "1999\n2000" not in said(request)
    assert {request.kind for request in watch.api.requests} == {"main"}
    assert said(watch.api.main_requests[-1]).count("go on") == 1
    check_whole(runtime.archive, mala_home, now)


async def test_an_image_of_a_prompt_stays(agent, mala_home):
    picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    source = {"type": "base64", "media_type": "image/png", "data": picture}
    prompt = [{"type": "text", "text": "The target looks so."}, {"type": "image", "source": source}]
    script = ["Noted.", "Seen.", tool("Bash", command="seq 2000", description="x"), "Counted.", "After.", "Still."]
    runtime, watch = agent(script, config=CONFIG)
    _, session_id = await play(runtime, RULE, prompt, "count", "/compact", "go on", "/compact", "on")
    for request in watch.api.main_requests[-2:]:
        images = [block for block in _blocks(request) if block.get("type") == "image"]
        assert [block["source"]["data"] for block in images] == [picture]
        assert said(request).count("The target looks so.") == 1
        assert said(request).count(RULE) == 1
    assert {request.kind for request in watch.api.requests} == {"main"}
    # resume loads what was compacted, and not what was there before
    resumed, again = agent(["Resumed."], config=CONFIG, options={"resume": session_id})
    await play(resumed, "more")
    (request,) = again.api.main_requests
    assert request.tokens < watch.api.main_requests[-1].tokens * 1.2
    assert said(request).count(RULE) == 1


async def test_thinking_and_parallel_tools(agent):
    both = tool("Bash", command="seq 900", description="x") + tool("Bash", command="false", description="y")
    script = [thinking("I wonder.") + both, too_long(250_000, 200_000), "Done.", "After."]
    runtime, watch = agent(script, config=CONFIG)
    await play(runtime, RULE, "go on")
    after = said(watch.api.requests[2])
    assert after.count(RULE) == 1
    assert re.search(r"#1 Bash seq 900 → [\d,]+ characters \[", after)
    assert re.search(r"#2 Bash false → [\d,]+ characters, failed \[", after)
    assert "I wonder." not in after
    assert watch.api.requests[-1].status == 200


async def test_a_subagents_own_compaction(agent):
    prompt = "Count for me, and never touch the lock."
    script = [
        tool("Agent", description="count", prompt=prompt, subagent_type="general-purpose", run_in_background=False)
    ]
    sub = [tool("Bash", command="seq 4000", description="x"), too_long(250_000, 200_000), "It is counted."]
    runtime, watch = agent([*script, "Done."], subagents=sub, config=CONFIG)
    (messages,), session_id = await play(runtime, RULE)
    assert results(messages)[-1].result == "Done."
    assert not watch.api.of_kind("compaction")
    asked = watch.api.of_kind("subagent")
    assert said(asked[-1]).count(prompt) == 1
    assert re.search(r"#1 Bash seq 4000 → [\d,]+ characters \[", said(asked[-1]))
    (row,) = rows_of(runtime.archive, session_id, "outcome")
    assert (row["outcome"], row["agent"]) == ("by_reference", asked[0].agent_id)


async def test_what_was_dropped_is_found_by_search(agent):
    script = ["Noted.", tool("Bash", command="echo the launch code is heliotrope", description="x"), "Done.", "After."]
    runtime, watch = agent(script, config=CONFIG)
    _, session_id = await play(runtime, RULE, "look", "/compact", "go on")
    assert "search_history finds words" in said(watch.api.main_requests[-1])
    assert any(
        "heliotrope" in hit.text and hit.role == "tool"
        for hit in search_session(runtime.archive, session_id, "heliotrope")
    )


@pytest.mark.parametrize("pin", ["auto", "pinned.md"])
async def test_pin_has_nothing_to_put_back_but_its_own_file(agent, mala_project, pin):
    (mala_project / "pinned.md").write_text("PINNED WORDS")
    runtime, watch = agent(["Noted.", "After."], config=CONFIG + f"  pin: {pin}\n")
    await play(runtime, RULE, "/compact", "go on")
    after = watch.api.main_requests[-1]
    assert not after.contains("does not mention")
    assert after.contains("PINNED WORDS") == (pin != "auto")


async def test_undoing_it(agent, mala_options, mala_api):
    runtime, _ = agent(["Noted.", tool("Bash", command="seq 2000", description="x"), "Counted."], config=CONFIG)
    _, session_id = await play(runtime, RULE, "count", "/compact")
    api = mala_api(["Back."])
    async with ClaudeSDKClient(mala_options(api, **runtime.archive.restore_options(session_id))) as client:
        await client.query("go on")
        async for _ in client.receive_response():
            pass
    (request,) = api.main_requests
    assert "1999\\n2000" in json.dumps(request.body)
    assert "<kept-conversation" not in said(request)


async def test_a_failed_tools_result_is_capped_too(agent, mala_project):
    config = CONFIG + "  guard: {tool_output_tokens: 300}\n"
    fails = tool("Bash", command="seq 1 1500; exit 3", description="x")
    runtime, watch = agent([fails, "It failed.", "After."], config=config)
    await play(runtime, "go", "/compact", "on")
    (seen,) = [block for block in _blocks(watch.api.main_requests[1]) if block.get("type") == "tool_result"]
    content = json.dumps(seen["content"])
    assert seen["is_error"] is True
    assert "characters left out; full text: " in content
    assert "1500" in content
    path = re.search(r"full text: ([^;]+\.txt)", content)[1]
    assert b"\n749\n750\n" in lines_of(path, 1, 2_000)
    assert re.search(r"#1 Bash seq 1 1500; exit 3 → [\d,]+ characters, failed", said(watch.api.main_requests[-1]))


def foreign(folder, words):
    """Make a mod of somebody else that answers every compaction."""
    (folder / "hooks").mkdir(parents=True)
    (folder / ".claude-plugin").mkdir()
    (folder / ".claude-plugin/plugin.json").write_text('{"name": "foreign", "version": "1.0.0"}')
    (folder / "hooks/hooks.json").write_text('{"modules": ["./register.ts"]}')
    (folder / "hooks/register.ts").write_text(
        f"""export const register = on => {{
  on('session.compact', async () => ({{ messages: [{{ role: 'user', text: '{words}', toolUses: [] }}] }}))
}}
"""
    )
    return {"type": "local", "path": str(folder)}


async def test_another_mod_answers_before_us(agent, mala_home, tmp_path):
    options = {"plugins": [foreign(tmp_path / "foreign", "Theirs.")]}
    runtime, watch = agent(["Noted.", "After."], config=CONFIG, options=options)
    assert runtime.options.plugins[0]["path"] == str(tmp_path / "foreign")
    _, session_id = await play(runtime, RULE, "/compact", "go on")
    assert "Theirs." in said(watch.api.main_requests[-1])
    assert "<kept-conversation" not in said(watch.api.main_requests[-1])
    check_whole(runtime.archive, mala_home, session_id)


@pytest.mark.parametrize("off", [{"settings": '{"disableAllHooks": true}'}, {"extra_args": {"bare": None}}])
async def test_a_cli_that_does_not_load_the_mod_compacts_as_ever(agent, caplog, off):
    runtime, watch = agent(["Noted.", "After."], config=CONFIG, options=off, compactions=[summary("So far.")])
    await play(runtime, RULE, "/compact", "go on")
    assert [request.kind for request in watch.api.requests] == ["main", "compaction", "main"]
    assert sum("the CLI has not loaded its mod" in line for line in warnings_of(caplog)) == 1


@pytest.fixture
def older_cli(monkeypatch, tmp_path):
    """Have the mod find what it finds before 2.1.326: no `$.session.info`."""
    with open(compactor._SOURCE, encoding="utf-8") as file:
        (tmp_path / "register.ts").write_text(file.read().replace("$.session.info()", "$.session.inform()"))
    monkeypatch.setattr(compactor, "_SOURCE", str(tmp_path / "register.ts"))


@pytest.mark.usefixtures("older_cli")
async def test_an_older_cli_compacts_as_ever(agent, caplog):
    runtime, watch = agent(["Noted.", "After."], config=CONFIG, compactions=[summary("So far.")])
    await play(runtime, RULE, "/compact", "go on")
    assert [request.kind for request in watch.api.requests] == ["main", "compaction", "main"]
    (line,) = (line for line in warnings_of(caplog) if "by reference" in line)
    assert "the CLI has not loaded its mod (Claude Code 2.1.326 or later does" in line


def test_wiring_again_adds_it_once(mala_options, mala_api):
    given = mala_options(mala_api([]), disallowed_tools=["Agent"], mcp_servers={"other": {"command": "true"}})
    once = instrument(given, config=parse(CONFIG)).options
    twice = instrument(once, config=parse(CONFIG)).options
    for options in (once, twice):
        (plugin,) = options.plugins
        assert os.path.dirname(plugin["path"]).endswith("/.mods")
        assert options.disallowed_tools[:2] == ["Agent", FULL_NAME]
        assert set(options.mcp_servers) == {"other", SERVER, "mala_context"}
    assert given.plugins == []


@pytest.mark.parametrize(
    ("config", "servers", "why"),
    [
        ("  archive: {enabled: false}\n", {}, "the archive is off"),
        ("", "servers.json", "the MCP servers are in a file"),
    ],
)
def test_where_it_is_impossible_one_warning_says_so(mala_options, mala_api, caplog, config, servers, why):
    runtime = instrument(mala_options(mala_api([]), mcp_servers=servers), config=parse(CONFIG + config))
    assert runtime.options.plugins == []
    assert sum("compaction: reference is without effect" in line and why in line for line in warnings_of(caplog)) == 1
