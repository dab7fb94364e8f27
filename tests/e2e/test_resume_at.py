"""Sessions that are resumed at an earlier row: what came after it is no part of the conversation any more."""

import json

import pytest

from mala_context.agent.baseline import measure_baseline
from tests.helpers.variants import variants

from .driving import check_whole, prose, transcript, turn
from .test_guard_actions import SMALL, Worker, check_done, check_restarted, config, drive


@pytest.fixture
async def old(agent, mala_home):
    """Return a played session's id, the uuids of its second answer and third prompt, and the second answer's tokens."""
    runtime, watch = agent([prose(800), prose(800), prose(30_000)])
    async with runtime.session() as session:
        for prompt in ("one", "two", "three"):
            await turn(session, prompt)
        watch.check(3)
        session_id = session.context.session_id
    rows = [json.loads(line) for line in transcript(mala_home, session_id).read_text().splitlines()]
    answers = [row["uuid"] for row in rows if row["type"] == "assistant"]
    prompts = [row["uuid"] for row in rows if row["type"] == "user"]
    return session_id, answers[1], prompts[2], watch.answered[1].tokens


def at(old, way, *, drops=False):
    """Return the options that resume the session after its second answer."""
    session_id, second, third, _ = old
    place = {"resume_session_at": second} | ({"resume_drops_turn": third} if drops else {})
    if way == "flags":  # of an SDK that has no such fields
        place = {"extra_args": {name.replace("_", "-"): value for name, value in place.items()}}
    return {"resume": session_id, **place}


@pytest.mark.parametrize("way", variants(["fields", "flags"]))
@pytest.mark.parametrize("fork", [False, True], ids=["resume", "fork"])
async def test_it_is_known_as_it_was_there_before_the_first_prompt(agent, old, mala_home, fork, way):
    runtime, watch = agent(["Again.", "More."], options={**at(old, way), "fork_session": fork})
    async with runtime.session() as session:
        assert (session.context.tokens, session.context.exact) == (old[-1], True)
        projected = session.context.projected
        await turn(session, "three, otherwise")
        await turn(session, "four")
        session_id = session.context.session_id
    watch.check(2)
    assert abs(projected - watch.answered[0].tokens) <= 0.02 * watch.answered[0].tokens
    check_whole(runtime.archive, mala_home, session_id)


async def test_what_was_dropped_reaches_no_threshold(agent, old, caplog):
    """The size of the whole session is above it, the size at the row is not."""
    ratio = (old[-1] + 2_000) / 200_000
    runtime, watch = agent(
        ["Again."], options=at(old, "fields"), config=f"context: {{warn_at: null, compact_at: {ratio}}}"
    )
    async with runtime.session() as session:
        await turn(session, "three, otherwise")
    watch.check(1)
    assert watch.api.of_kind("compaction") == []
    assert [message for message in caplog.messages if "is reached" in message] == []


@pytest.mark.parametrize("way", variants(["fields", "flags"]))
async def test_it_is_restarted(agent, old, way):
    """The CLI does not start where an option names a place in a session, and no session."""
    options = {**at(old, way, drops=True), "fork_session": True, **SMALL["options"]}
    runtime, watch = agent(Worker(11), config=config(restart_at=0.8), **{**SMALL, "options": options})
    messages = await drive(runtime, "Do the whole work.")
    check_done(messages)
    check_restarted(messages, "threshold", checkpoint=True)
    assert watch.api.last.contains("the task, and what is left")


@pytest.mark.parametrize("way", variants(["fields", "flags"]))
async def test_its_baseline_is_measured(old, mala_api, mala_options, way):
    options = mala_options(mala_api(["never said"]), **at(old, way, drops=True))
    baseline = await measure_baseline(options)
    assert 0 < baseline.tokens < old[-1]
