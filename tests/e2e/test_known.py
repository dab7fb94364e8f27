"""Nothing that today's SDK and CLI send is new to us: the tables of what is known are whole."""

import json
import logging

import pytest

from mala_context.testing import text, thinking, tool
from mala_context.tracking.readers.unfamiliar import unfamiliar

from .driving import transcript, turn

SCRIPT = [
    thinking("Let me see.") + text("I look.") + tool("Bash", command="echo one", description="x"),
    tool("Bash", command="echo two", description="x") + tool("Bash", command="seq 20", description="y"),
    "Done.",
    "Again.",
]
PROMPTS = ("Do it.", "And again.", "/compact", "Go on.", "/clear", "A new one.")


@pytest.mark.long
async def test_what_a_session_brings(agent, mala_home, caplog):
    caplog.set_level(logging.DEBUG, "mala_context")
    runtime, _ = agent(SCRIPT, options={"include_partial_messages": True}, strict=False)
    async with runtime.session() as session:
        ids = {(await turn(session, prompt))[-1].session_id for prompt in PROMPTS}
    assert [record.message for record in caplog.records if "not known" in record.message] == []
    assert runtime.tracker.snapshot().session_id in ids
    rows = [row for each in ids for row in map(json.loads, transcript(mala_home, each).read_text().split("\n")[:-1])]
    assert {row["type"] for row in rows} >= {"assistant", "user", "system", "attachment"}
    assert {kind for row in rows for kind in unfamiliar(row)} == set()
