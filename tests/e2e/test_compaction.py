"""Compactions on the real CLI: archive, outcome, and the estimate of what is left."""

import asyncio
import json
import logging
import os

import anyio
import pytest
from claude_agent_sdk import HookMatcher

from mala_context import instrument
from mala_context.testing import refuse, summary, text, too_long, tool
from mala_context.testing.scripts import fill_until_compaction
from mala_context.tracking.events import Compaction
from tests.helpers.variants import variants

from .driving import (
    Watch,
    check_private,
    check_whole,
    named,
    outcomes,
    prose,
    results,
    row_types,
    rows_of,
    transcript,
    triggers,
    turn,
)

SUMMARY = summary(prose(6_000))
FULL = "context:\n  archive:\n    mode: full\n"
BOTH = pytest.mark.parametrize("config", ["", FULL], ids=["incremental", "full"])


def warnings_of(caplog, but=("Compaction: it grew the context", "Context: the request held")):
    """Return the warnings but for those that come of the scripted API's own way to count."""
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line for line in said if not line.startswith(but)]


async def play(runtime, *prompts):
    """Send the prompts; return the messages of each turn, and the session's id."""
    async with runtime.session() as session:
        turns = [await turn(session, prompt) for prompt in prompts]
        return turns, session.context.session_id


@BOTH
async def test_a_compaction_on_refusal(mala_api, mala_options, mala_project, mala_home, mala_runs, caplog, config):
    caplog.set_level(logging.INFO, "mala_context")
    (mala_project / "mala.yaml").write_text(config)
    scenario = fill_until_compaction(mala_project, window=60_000, turns=6)
    api = mala_api(scenario.script, **scenario.settings)
    runtime = instrument(mala_options(api, env=scenario.env))
    watch = Watch(runtime, api)
    _, session_id = await play(runtime, *scenario.prompts)
    watch.check()
    snapshot = runtime.tracker.snapshot()
    assert snapshot.compactions == len(watch.compactions) >= 1
    assert snapshot.compaction_helped is True
    watch.check_estimate()
    assert snapshot.window_source != "guess"
    before = len(triggers(runtime.archive, session_id)) - 1
    assert triggers(runtime.archive, session_id) == ["auto"] * before + ["session_end"]
    assert outcomes(runtime.archive, session_id) == [("auto", "compacted", n) for n in range(before)]
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("PreCompact: archived transcript (trigger=auto) to ") for line in lines) == before
    assert sum(line.startswith("Compaction: ") for line in lines) == before


async def test_a_proactive_compaction(mala_api, mala_options, mala_project, mala_home):
    scenario = fill_until_compaction(mala_project, window=100_000, turns=4, proactive=True)
    api = mala_api(scenario.script, **scenario.settings)
    runtime = instrument(mala_options(api, env=scenario.env))
    watch = Watch(runtime, api)
    _, session_id = await play(runtime, *scenario.prompts)
    watch.check()
    assert runtime.tracker.snapshot().auto_compact_threshold == 67_000
    assert not any(request.status == 400 for request in api.requests)
    assert len(watch.compactions) >= 1
    watch.check_estimate()
    outcome = outcomes(runtime.archive, session_id)
    assert outcome == [("auto", "compacted", n) for n in range(len(watch.compactions))]
    check_whole(runtime.archive, mala_home, session_id)


@BOTH
async def test_compact_as_a_prompt(agent, mala_home, mala_runs, config):
    runtime, watch = agent(
        [prose(9_000), tool("Bash", command="seq 3000", description="x"), prose(3_000), "After."],
        compactions=[SUMMARY],
        chars_per_token=3.2,
        config=config,
    )
    (_, _, compacted, _), session_id = await play(runtime, prose(6_000), "do it", "/compact", "go on")
    watch.check(4)
    watch.check_estimate()
    assert results(compacted)[-1].subtype == "success"
    assert triggers(runtime.archive, session_id) == ["manual", "session_end"]
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0)]
    (row,) = rows_of(runtime.archive, session_id, "outcome")
    assert prose(5_000) in row["summary"]
    assert row["tokens_after"] == watch.compactions[0][0].tokens
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)
    first = os.path.join(runtime.archive.location, runtime.archive.pieces(session_id)[0].name)
    assert ("system", "compact_boundary") not in row_types(first)
    assert ("system", "compact_boundary") in row_types(transcript(mala_home, session_id))


async def test_the_line_of_a_compaction_comes_before_the_gauges(agent, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    runtime, _ = agent([prose(9_000), "After."], compactions=[SUMMARY])
    await play(runtime, prose(6_000), "/compact", "go on")
    lines = [line for line in caplog.messages if line.startswith(("Context: ", "Compaction: "))]
    kinds = [" ".join(line.split()[:2]) if "about" in line else line.split()[0] for line in lines if "grew" not in line]
    assert kinds == ["Context:", "Compaction:", "Context: about", "Context:"]


async def test_two_compactions(agent, mala_home):
    runtime, watch = agent(
        [prose(9_000), prose(6_000), prose(5_000), "After."], compactions=[SUMMARY, SUMMARY], chars_per_token=3.0
    )
    _, session_id = await play(runtime, "one", "/compact", "two", prose(4_000), "/compact", "go on")
    watch.check(4)
    watch.check_estimate(0)
    watch.check_estimate(1)
    assert triggers(runtime.archive, session_id) == ["manual", "manual", "session_end"]
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0), ("manual", "compacted", 1)]
    check_whole(runtime.archive, mala_home, session_id)


@pytest.mark.parametrize(
    ("answers", "error"),
    [([refuse("no")] * 12, "API Error: 400 no"), ([text("")] * 3, "empty response")],
    ids=["api error", "empty summary"],
)
async def test_a_manual_compaction_that_fails(agent, mala_home, answers, error):
    runtime, watch = agent([prose(3_000), "After."], compactions=answers)
    (_, failed, _), session_id = await play(runtime, "one", "/compact", "go on")
    watch.check(2)
    assert error in named(failed, "status")[-1].data["compact_error"]
    assert runtime.tracker.snapshot().compactions == 0
    assert triggers(runtime.archive, session_id) == ["manual", "session_end"]
    assert outcomes(runtime.archive, session_id) == [("manual", "failed", 0)]
    (row,) = rows_of(runtime.archive, session_id, "outcome")
    assert error in row["error"]
    check_whole(runtime.archive, mala_home, session_id)


async def test_an_automatic_compaction_that_fails_and_overflow_as_success(agent, mala_home, caplog):
    runtime, watch = agent([prose(3_000), too_long(250_000, 180_000), "After."], compactions=[refuse("no")] * 12)
    (_, failed, _), session_id = await play(runtime, "one", "two", "three")
    watch.check(2)
    (result,) = results(failed)
    assert (result.subtype, result.is_error, result.terminal_reason) == ("success", True, "prompt_too_long")
    snapshot = runtime.tracker.snapshot()
    assert snapshot.overflows >= 1
    assert (snapshot.window, snapshot.window_source) == (180_000, "api_error")
    assert triggers(runtime.archive, session_id) == ["auto", "session_end"]
    assert outcomes(runtime.archive, session_id) == [("auto", "failed", 0)]
    assert sum("the window is full" in line for line in warnings_of(caplog)) == 1
    check_whole(runtime.archive, mala_home, session_id)


async def block(*_):
    return {"decision": "block", "reason": "not now"}


@pytest.mark.parametrize("trigger", ["manual", "auto"])
async def test_a_compaction_that_a_users_hook_blocks(agent, mala_home, trigger):
    refused = [too_long(250_000, 200_000)] if trigger == "auto" else []
    runtime, watch = agent(
        [prose(3_000), *refused, "After."], options={"hooks": {"PreCompact": [HookMatcher(hooks=[block])]}}
    )
    _, session_id = await play(runtime, "one", "/compact" if trigger == "manual" else "two", "three")
    watch.check(2)
    assert not watch.compactions
    assert triggers(runtime.archive, session_id) == [trigger, "session_end"]
    assert outcomes(runtime.archive, session_id) == [(trigger, "blocked", 0)]
    check_whole(runtime.archive, mala_home, session_id)


@BOTH
async def test_a_compaction_that_skips_precompact(agent, mala_home, mala_runs, caplog, config):
    runtime, watch = agent(
        [prose(6_000), tool("Bash", command="echo", description="x"), "Done.", "After."],
        compactions=[SUMMARY],
        config=config,
    )
    del runtime.options.hooks["PreCompact"]
    (_, compacted, *_), session_id = await play(runtime, "one", "/compact", "two", "three")
    watch.check(4)
    watch.check_estimate()
    assert named(compacted, "compact_boundary")
    assert triggers(runtime.archive, session_id)[0] == "boundary"
    assert outcomes(runtime.archive, session_id) == [("manual", "hook_skipped", 0)]
    assert [line for line in warnings_of(caplog) if "without PreCompact" in line] == warnings_of(caplog)
    assert len(warnings_of(caplog)) == 1
    check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


async def test_a_cli_that_runs_no_hooks(agent, mala_home, caplog):
    runtime, watch = agent([prose(6_000), "After."], compactions=[SUMMARY], options={"extra_args": {"bare": None}})
    _, session_id = await play(runtime, "one", "/compact", "two")
    watch.check(2)
    assert watch.compactions[0][0].tokens is not None
    assert outcomes(runtime.archive, session_id) == [("manual", "hook_skipped", 0)]
    assert len(warnings_of(caplog)) == 1
    check_whole(runtime.archive, mala_home, session_id)


async def test_an_archive_that_is_switched_off(agent, mala_runs):
    runtime, watch = agent([prose(3_000), "After."], config="context:\n  archive:\n    enabled: false\n")
    await play(runtime, "one", "/compact", "two")
    watch.check(2)
    assert runtime.archive is None
    assert not mala_runs.exists()


async def test_compactions_of_two_clients_at_once(agent, mala_home):
    pairs = [agent([prose(2_000 * number), "After."]) for number in (2, 4)]
    played = await asyncio.gather(*(play(runtime, "one", "/compact", "two") for runtime, _ in pairs))
    for (runtime, watch), (_, session_id) in zip(pairs, played, strict=True):
        watch.check(2)
        assert outcomes(runtime.archive, session_id) == [("manual", "compacted", 0)]
        check_whole(runtime.archive, mala_home, session_id)


def test_a_compaction_on_trio(agent, mala_home, mala_runs):
    runtime, watch = agent([prose(9_000), "After.", "Anew."], compactions=[SUMMARY], chars_per_token=3.2)

    async def main():
        async with runtime.session() as session:
            for prompt in ("one", "/compact", "two"):
                await turn(session, prompt)
            first = session.context.session_id
            await turn(session, "/clear")
            await turn(session, "three")
            return first, session.context.session_id

    first, second = anyio.run(main, backend="trio")
    watch.check(3)
    watch.check_estimate()
    assert triggers(runtime.archive, first)[:2] == ["manual", "session_end"]
    assert outcomes(runtime.archive, first) == [("manual", "compacted", 0)]
    for session_id in (first, second):
        check_whole(runtime.archive, mala_home, session_id)
    check_private(mala_runs)


async def test_the_estimate_counts_where_the_prompt_was_long(agent):
    """The first request's prompt is no part of what every request holds."""
    runtime, watch = agent([prose(3_000), "After."], compactions=[SUMMARY], chars_per_token=3.0)
    await play(runtime, prose(60_000), "/compact", "go on")
    watch.check(2)
    watch.check_estimate()
    assert runtime.tracker.snapshot().compaction_helped is True


async def test_a_compaction_that_does_not_help_is_marked(agent):
    runtime, watch = agent(["One.", "After."], compactions=[summary(prose(30_000))])
    await play(runtime, "one", "/compact", "go on")
    watch.check(2)
    assert runtime.tracker.snapshot().compaction_helped is False


@pytest.mark.parametrize(
    ("value", "threshold"),
    variants([("110k", 77_000), ("garbage", None), ("110,000", 77_000), ("50000", 67_000), ("", None)], default=2),
)
async def test_the_cli_compacts_where_its_variable_is_read_to_say(agent, value, threshold):
    await compacts_at(agent, threshold, CLAUDE_CODE_AUTO_COMPACT_WINDOW=value)


@pytest.mark.long
@pytest.mark.parametrize("name", ["DISABLE_AUTO_COMPACT", "DISABLE_COMPACT"])
@pytest.mark.parametrize(
    ("value", "threshold"), [(" 1", None), ("True", None), ("on", None), ("0", 77_000), ("off", 77_000)]
)
async def test_the_cli_does_not_where_a_variable_forbids_it(agent, name, value, threshold):
    await compacts_at(agent, threshold, **{"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "110k", name: value})


OFF, AT_110K = {"autoCompactEnabled": False}, {"autoCompactWindow": 110_000}
FORBIDDEN = {"env": {"DISABLE_AUTO_COMPACT": "1"}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "settings", "sources", "window", "threshold"),
    [
        (".claude.json", OFF, [], "110k", None),
        ("settings.json", OFF, [], "110k", 77_000),
        ("settings.json", OFF, None, "110k", None),
        ("settings.json", OFF, ["user"], "110k", None),
        ("settings.json", AT_110K, ["user"], "", 77_000),
        ("settings.json", AT_110K, [], "", None),
        ("settings.json", FORBIDDEN, ["user"], "110k", None),
        ("project", OFF, ["project"], "110k", None),
        ("project", OFF, ["user"], "110k", 77_000),
        ("local", AT_110K, ["local"], "", 77_000),
        ("options", AT_110K, [], "", 77_000),
        ("options", OFF, [], "110k", None),
        ("options as a file", OFF, [], "110k", None),
    ],
)
async def test_the_cli_goes_by_its_files_of_settings(
    agent, mala_home, mala_project, file, settings, sources, window, threshold
):
    names = {"project": mala_project / ".claude/settings.json", "local": mala_project / ".claude/settings.local.json"}
    path = names.get(file, mala_home / ".claude" / file)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings))
    more = {"setting_sources": sources}
    if file.startswith("options"):
        more["settings"] = json.dumps(settings) if file == "options" else str(path)
    await compacts_at(agent, threshold, more, CLAUDE_CODE_AUTO_COMPACT_WINDOW=window)


async def compacts_at(agent, threshold, more=None, **env):
    """Prompts of 5,000 tokens on top of 57,000: the CLI does not compact before the threshold, and does at it."""
    options = {"model": "claude-sonnet-4-5", "env": env, **(more or {})}
    runtime, watch = agent(["ok"] * 8, chars_per_token=1.0, window=None, options=options)
    seen, last = [], 0
    runtime.processor.observe(lambda event, snapshot: seen.append(event.pre_tokens), Compaction)
    async with runtime.session() as session:
        for _ in range(8):
            await turn(session, prose(4_800))
            assert session.context.auto_compact_threshold == threshold
            if seen:
                break
            last = watch.api.main_requests[-1].tokens
    if threshold is None:
        assert not seen
        assert last > 90_000
    else:
        assert last - 5_000 < threshold <= seen[0]
