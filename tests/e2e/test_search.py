"""An agent that searches its own history, on the real CLI."""

import json

import pytest

from mala_context import AgentRuntimeBuilder
from mala_context.agent.search_tool import FULL_NAME
from mala_context.archive.search import search_session
from mala_context.testing import summary, tool

from .driving import turn

CONFIG = "context:\n  search_tool: true\n"
SECRET = "The launch code name is Heliotrope."


def asks(query):
    return tool(FULL_NAME, query=query)


def result(request):
    (block,) = [one for one in request.body["messages"][-1]["content"] if one["type"] == "tool_result"]
    return json.dumps(block["content"])


async def play(runtime, *prompts):
    async with runtime.session() as session:
        for prompt in prompts:
            await turn(session, prompt)
        return session.context.session_id


async def test_what_was_dropped_is_found(agent):
    script = ["Noted.", asks("heliotrope code"), asks("absent words"), "Done."]
    options = {"permission_mode": "default"}
    runtime, watch = agent(script, compactions=[summary("A name was told.")], config=CONFIG, options=options)
    await play(runtime, SECRET, "/compact", "what was it?")
    found, nothing = watch.api.main_requests[2:4]
    assert SECRET in result(found)
    assert not found.contains("needs permission")
    assert "Nothing was found in what was dropped" in result(nothing)
    names = [one["name"] for one in watch.api.main_requests[0].body["tools"]]
    assert FULL_NAME in names  # and not behind a search for tools


async def test_before_a_compaction_and_in_another_session_there_is_nothing(agent):
    first, _ = agent(["Noted."], compactions=[summary("A name was told.")], config=CONFIG)
    old = await play(first, SECRET, "/compact")
    assert search_session(first.archive, old, "heliotrope")
    second, watch = agent([asks("heliotrope"), "Done."], config=CONFIG)
    await play(second, "look for heliotrope")
    assert "Nothing was found" in result(watch.api.main_requests[1])


@pytest.mark.parametrize("servers", [{}, {"other": {"command": "true"}}])
def test_the_builder_keeps_other_servers_and_offers_it_once(mala_project, servers):
    (mala_project / "mala.yaml").write_text(CONFIG)
    builder = AgentRuntimeBuilder(mala_project).with_mcp(servers).with_options(allowed_tools=["Read"])
    for runtime in (builder.build(), builder.build()):
        assert set(runtime.options.mcp_servers) == {*servers, "mala_context"}
        assert runtime.options.allowed_tools == ["Read", FULL_NAME]


def test_off_by_default(mala_project):
    runtime = AgentRuntimeBuilder(mala_project).build()
    assert runtime.options.mcp_servers == {}
    assert runtime.options.allowed_tools == []


@pytest.mark.parametrize(("config", "servers"), [("  archive: {enabled: false}\n", {}), ("", "servers.json")])
def test_where_it_cannot_be_offered_one_warning_says_so(mala_project, caplog, config, servers):
    (mala_project / "mala.yaml").write_text(CONFIG + config)
    runtime = AgentRuntimeBuilder(mala_project).with_mcp(servers).build()
    assert runtime.options.mcp_servers == servers
    assert caplog.text.count("search_tool is without effect") == 1
