"""What fills a live session's context, and the alarm when a request is not what was projected: on the real CLI."""

import sys
from pathlib import Path

import anyio
import pytest

from mala_context import SilentChange
from mala_context.testing import text, tool
from mala_context.tracking.events import WindowReport
from tests.helpers.variants import variants

from .driving import prose, turn

MODELS = [
    "claude-sonnet-4-5",
    "claude-opus-4-8",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-haiku-4-5",
    "claude-fable-5",
]
MCP = {"files": {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_stdio.py"))]}}


def groups(snapshot):
    sums = {}
    for part in snapshot.parts:
        sums[part.group] = sums.get(part.group, 0) + part.tokens
    return sums


def told(runtime):
    """Return an event that is set when the CLI has said what fills the context."""
    event = anyio.Event()
    runtime.processor.observe(lambda _, __: event.set(), WindowReport)
    return event


@pytest.fixture
def project(tmp_path):
    (tmp_path / "CLAUDE.md").write_text(prose(40_000))
    (tmp_path / "long.txt").write_text(prose(20_000))
    agents = tmp_path / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "helper.md").write_text(f"---\nname: helper\ndescription: helps with {prose(2_000)}\n---\nYou help.\n")
    return tmp_path


def options(project, model, **more):
    preset = {"type": "preset", "preset": "claude_code"}
    return {"cwd": str(project), "model": model, "setting_sources": ["project"], "system_prompt": preset, **more}


@pytest.mark.parametrize("model", variants(MODELS))
async def test_the_parts_sum_up_to_the_request(agent, project, model):
    """With each model; what stands before the conversation is within 1 % of the window of what the server got."""
    read = tool("Read", file_path=str(project / "long.txt"))
    runtime, watch = agent([read, "Done.", prose(4_000)], options=options(project, model, mcp_servers=MCP), window=None)
    said = told(runtime)
    async with runtime.session() as session:
        with anyio.fail_after(20):
            await said.wait()
        assert session.context.parts == ()
        await turn(session, prose(8_000))
        now = session.context
        assert sum(part.tokens for part in now.parts) == now.tokens == watch.answered[-1].tokens
        sums = groups(now)
        assert {"system", "tools", "memory", "skills", "agents", "prompts", "results"} <= set(sums)
        assert sums.get("other", 0) <= 0.01 * now.tokens
        (memory,) = [part for part in now.parts if part.group == "memory"]
        assert memory.path == str(project / "CLAUDE.md")
        (result,) = [part for part in now.parts if part.group == "results"]
        assert (result.name, result.path) == ("Read", str(project / "long.txt"))
        # the server counts four characters a token, whatever the model
        assert result.tokens == pytest.approx(20_000 / 4, rel=0.25)
        assert sums["memory"] == pytest.approx(40_000 / 4, rel=0.25)
    assert len(watch.api.requests) == len(watch.answered), "no request but the turns' own"


async def test_a_compaction_leaves_what_stands_before_the_conversation(agent, project):
    script = [prose(24_000), "After."]
    given = options(project, "claude-sonnet-4-5")
    runtime, watch = agent(script, options=given, compactions=["In short."], window=None)
    async with runtime.session() as session:
        await turn(session, "Go on.")
        before = groups(session.context)
        said = told(runtime)
        await turn(session, "/compact")
        with anyio.fail_after(20):
            await said.wait()
        assert groups(session.context)["memory"] == pytest.approx(before["memory"], rel=0.05)
        await turn(session, "And now?")
        now = session.context
        assert sum(part.tokens for part in now.parts) == now.tokens == watch.answered[-1].tokens
        assert groups(now)["memory"] == pytest.approx(before["memory"], rel=0.05)


def counted(words, tokens, read=0):
    return text(words).but(
        usage={"input_tokens": 0, "cache_creation_input_tokens": tokens, "cache_read_input_tokens": read}
    )


async def test_a_silent_change_is_said_once_with_its_cause(agent, caplog):
    """Counts that the scripted API changes; the same session without the changes has no alarm."""
    heard = []
    script = [counted("One.", 60_000), counted("Two.", 100, 60_000), counted("Three.", 100, 42_000)]
    script += [counted("Four.", 30_000, 42_100), counted("Five.", 72_400, 0), counted("Six.", 90_000, 0)]
    runtime, _ = agent(script)
    runtime.observers.append(lambda record: heard.append(record) if isinstance(record, SilentChange) else None)
    async with runtime.session() as session:
        for number in range(6):
            await turn(session, f"Go on, {number}.")
    assert [(each.cause, each.tokens) for each in heard] == [
        ("unexplained", 42_100),
        ("unexplained", 72_100),
        ("prefix", 90_000),
    ]
    assert {each.session_id for each in heard} == {runtime.tracker.session_id}
    lines = [record for record in caplog.records if "than projected" in record.getMessage()]
    assert [(line.levelname, line.cause) for line in lines] == [("WARNING", each.cause) for each in heard]
    assert "18,0" in lines[0].getMessage()


async def test_a_long_session_of_tools_has_no_alarm(agent, project):
    heard = []
    work = [tool("Read", file_path=str(project / "long.txt")), tool("Bash", command="seq 400"), "Done."]
    runtime, _ = agent([*work, *work, *work], compactions=["In short."], chars_per_token=4.5)
    runtime.observers.append(lambda record: heard.append(record) if isinstance(record, SilentChange) else None)
    async with runtime.session() as session:
        for _ in range(2):
            await turn(session, "Go on.")
        await turn(session, "/compact")
        await turn(session, "Go on.")
    assert heard == []


@pytest.mark.parametrize("fork", [False, True], ids=["resume", "fork"])
async def test_a_resume_with_another_memory_file_has_no_alarm(agent, project, caplog, fork):
    """Another process sends the first request, with memory and tools of its own; the next one is compared again."""
    given = options(project, "claude-sonnet-4-5")
    runtime, _ = agent(["One.", "Two."], options=given)
    async with runtime.session() as session:
        await turn(session, "Go on.")
        await turn(session, "Go on.")
        before = session.context
    (project / "CLAUDE.md").write_text(prose(120_000))
    script = ["Three.", "Four.", counted("Five.", 120_000)]
    runtime, watch = agent(script, options={**given, "resume": before.session_id, "fork_session": fork})
    async with runtime.session() as session:
        assert session.context.tokens == before.tokens
        await turn(session, "And now?")
        assert session.context.tokens > before.tokens + 10_000, "the change is real"
        await turn(session, "Go on.")
        assert "than projected" not in caplog.text
        await turn(session, "Go on.")
    assert len(watch.answered) == 3
    assert caplog.text.count("than projected") == 1


async def test_null_switches_the_alarm_off(agent, caplog):
    script = [counted("One.", 60_000), counted("Two.", 20_000)]
    runtime, _ = agent(script, config="context: {alarm_at: null}")
    async with runtime.session() as session:
        for number in range(2):
            await turn(session, f"Go on, {number}.")
        assert session.context.parts
    assert "than projected" not in caplog.text
