"""What a compaction lost, on the real CLI: the line, the manifest's row, and what goes back to the agent."""

import logging
import re

import pytest

from mala_context.testing import summary, text, too_long, tool

from .driving import named, rows_of, turn

INSTRUCTION = "Never touch the file vendor.lock, whatever the tests say."
LINE = re.compile(
    r"Compaction: [\d,]+ → [\d,]+ tokens \(trigger=(auto|manual), [\d.]+ s\)(?:, [\d,]+ by the CLI's own count)?; "
    r"summary names (\d+) of (\d+) files, (\d+) of (\d+) instructions"
)
NOTE = "The summary above does not mention the following, from before the compaction."


@pytest.fixture
def files(mala_project):
    for name in ("parser.py", "lexer.py", "unused.py"):
        (mala_project / name).write_text(f"# {name}\n")
    return mala_project


def work(folder):
    """Read three files, and run a command that fails."""
    names = ("parser.py", "lexer.py", "unused.py")
    reads = [tool("Read", file_path=str(folder / name)) for name in names]
    return [*reads, tool("Bash", command="make release"), "I have looked at all of it."]


SUMMARY = summary("The parser in parser.py was read. Work goes on with lexer.py.")


async def compact(runtime, *prompts):
    async with runtime.session() as session:
        turns = [await turn(session, prompt) for prompt in prompts]
        return turns, session.context.session_id


def lines(caplog):
    """Return the lines about what was compacted, without the WARNING that a small context grew."""
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    return [line for line in said if line.startswith("Compaction: ")]


async def test_the_line_and_the_row(agent, files, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    runtime, watch = agent([*work(files), "After."], compactions=[SUMMARY])
    _, session_id = await compact(runtime, INSTRUCTION, "/compact", "go on")
    (line,) = lines(caplog)
    assert LINE.fullmatch(line).groups() == ("manual", "2", "3", "0", "1")
    (row,) = rows_of(runtime.archive, session_id, "outcome")
    lost = row["lost"]
    assert lost["read"] == {"total": 3, "named": 2, "missing": [str(files / "unused.py")]}
    assert lost["instruction"]["missing"] == [INSTRUCTION]
    assert lost["command"]["missing"] == ["make release"]
    assert not any(request.contains(NOTE) for request in watch.api.main_requests)


@pytest.mark.parametrize("bare", [True, False], ids=["no hooks", "no PreCompact"])
async def test_a_compaction_without_its_hook_is_measured_too(agent, files, caplog, bare):
    caplog.set_level(logging.INFO, "mala_context")
    options = {"extra_args": {"bare": None}} if bare else {}
    runtime, _ = agent([*work(files), "After."], compactions=[SUMMARY], options=options)
    runtime.options.hooks.pop("PreCompact")
    _, session_id = await compact(runtime, INSTRUCTION, "/compact", "go on")
    (row,) = rows_of(runtime.archive, session_id, "outcome")
    assert row["outcome"] == "hook_skipped"
    (line,) = lines(caplog)
    assert LINE.fullmatch(line).groups() == ("manual", "2", "3", "0", "1")
    assert row["lost"]["command"]["missing"] == ["make release"]


@pytest.mark.parametrize("tracked", [True, False])
async def test_without_an_archive_the_line_is_shorter_and_there_is_one(agent, files, caplog, tracked):
    caplog.set_level(logging.INFO, "mala_context")
    config = f"context:\n  enabled: {str(tracked).lower()}\n  archive:\n    enabled: false\n"
    runtime, _ = agent([*work(files), "After."], compactions=[SUMMARY], config=config)
    await compact(runtime, INSTRUCTION, "/compact", "go on")
    assert len(lines(caplog)) == tracked
    assert not any("summary names" in line for line in lines(caplog))


PIN = "context:\n  pin: auto\n"


async def test_pin_stands_in_the_first_request_after_an_automatic_compaction(agent, files, caplog):
    """The API refuses the request behind the tools; what comes next is the compacted one, with no hook in between."""
    caplog.set_level(logging.INFO, "mala_context")
    script = [*work(files)[:4], too_long(210_000, 200_000), "After.", "Still there."]
    slowly = SUMMARY.but(delay=0.3)  # a model takes longer; meanwhile the CLI writes the last tools' rows
    runtime, watch = agent(script, compactions=[slowly], config=PIN)
    (first, _), session_id = await compact(runtime, INSTRUCTION, "go on")
    assert named(first, "compact_boundary")
    after = watch.api.main_requests[5]
    assert after.contains(NOTE)
    shown = after.text[after.text.index(NOTE) :]
    assert f"- {INSTRUCTION}" in shown
    assert f"- {files / 'unused.py'}" in shown
    assert "- make release" in shown
    assert f"- {files / 'lexer.py'}" not in shown
    assert f"{runtime.archive.location}/{session_id}_*" in shown
    assert [request.text.count(NOTE) for request in watch.api.main_requests] == [0, 0, 0, 0, 0, 1, 1]
    assert LINE.fullmatch(lines(caplog)[0])[1] == "auto"


async def test_pin_after_a_compaction_by_hand(agent, files):
    runtime, watch = agent([*work(files), "After."], compactions=[SUMMARY], config=PIN)
    await compact(runtime, INSTRUCTION, "/compact", "go on")
    assert watch.api.main_requests[-1].text.count(NOTE) == 1


async def test_a_summary_that_names_everything_needs_no_pin(agent, files):
    words = f"{INSTRUCTION} parser.py, lexer.py and unused.py were read, and make release fails."
    runtime, watch = agent([*work(files), "After."], compactions=[summary(words)], config=PIN)
    _, session_id = await compact(runtime, INSTRUCTION, "/compact", "go on")
    assert not watch.api.main_requests[-1].contains(NOTE)
    assert all(not entry["missing"] for entry in rows_of(runtime.archive, session_id, "outcome")[0]["lost"].values())


async def test_a_file_is_put_back_after_every_compaction(agent, files):
    (files / "RULES.md").write_text("Rule one: never touch vendor.lock.\n" + "more rules\n" * 5_000)
    config = "context:\n  pin: RULES.md\n"
    runtime, watch = agent([*work(files), "After.", "Again."], compactions=[SUMMARY, SUMMARY], config=config)
    await compact(runtime, INSTRUCTION, "/compact", "go on", "/compact", "go on")
    first, second = watch.api.main_requests[-2:]
    for request in (first, second):
        assert request.text.count("Rule one: never touch vendor.lock.") == 1
        assert request.text.count("more rules") * 11 / 3 <= 2_000
        assert f"full text: {files / 'RULES.md'}" in request.text
    assert not watch.api.main_requests[0].contains("Rule one")


async def test_a_subagents_compaction_is_measured_and_not_answered(agent, files):
    call = tool("Agent", description="d", prompt="sub", subagent_type="general-purpose", run_in_background=False)
    script = [call, "After."]
    slowly = summary("Nothing of it.").but(delay=0.3)  # meanwhile the CLI writes the subagent's rows
    sub = [tool("Read", file_path=str(files / "parser.py")), too_long(210_000, 200_000), text("sub done")]
    runtime, watch = agent(script, subagents=sub, compactions=[slowly], config=PIN)
    _, session_id = await compact(runtime, INSTRUCTION)
    (row,) = [row for row in rows_of(runtime.archive, session_id, "outcome") if row.get("agent") != "main"]
    assert row["lost"]["read"] == {"total": 1, "named": 0, "missing": [str(files / "parser.py")]}
    assert not any(request.contains(NOTE) for request in watch.api.requests)
