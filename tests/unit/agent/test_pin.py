"""What goes back to the agent after a compaction, hook by hook."""

from concurrent.futures import Future

import anyio
import pytest

from mala_context.agent import pin as pin_module
from mala_context.agent.pin import Pin
from mala_context.transcripts.loss.report import PIN_TOKENS, safe_tokens

BASE = {"session_id": "s1", "transcript_path": "/t.jsonl"}
PRE = {**BASE, "hook_event_name": "PreCompact", "trigger": "auto"}
WRITER = {
    **BASE,
    "hook_event_name": "SubagentStop",
    "agent_id": "a9",
    "agent_type": "",
    "last_assistant_message": "sum",
}
START = {**BASE, "hook_event_name": "SessionStart", "source": "compact"}
POST = {**BASE, "hook_event_name": "PostCompact", "compact_summary": "sum"}
PROMPT = {**BASE, "hook_event_name": "UserPromptSubmit", "prompt": "go on"}
BATCH = {**BASE, "hook_event_name": "PostToolBatch"}


class Lost:
    """Measures at once, and knows what it was asked."""

    def __init__(self, words="what was lost"):
        self.words, self.asked = words, []

    def __call__(self, session_id, summary):
        self.asked.append((session_id, summary))
        future = Future()
        if self.words is not None:
            future.set_result(self.words)
        return future


def auto(words="what was lost"):
    lost = Lost(words)
    return Pin("auto", "/repo", lost), lost


def said(answer):
    return None if answer is None else answer["hookSpecificOutput"]


async def run(pin, *hooks):
    """Send hooks to the pin as the table does, and return the answers that say something."""
    methods = {
        "PreCompact": pin.before_compaction,
        "SubagentStop": pin.agent_stopped,
        "SessionStart": pin.session_started,
        "PostCompact": pin.after_compaction,
        "UserPromptSubmit": pin.next_chance,
        "PostToolBatch": pin.next_chance,
    }
    answers = [said(await methods[hook["hook_event_name"]](hook)) for hook in hooks]
    return [answer for answer in answers if answer is not None]


def answered(event, words="what was lost"):
    return [{"hookEventName": event, "additionalContext": words}]


async def test_the_start_of_the_compacted_conversation_is_answered():
    pin, lost = auto()
    assert await run(pin, PRE, WRITER, START, POST, PROMPT, BATCH) == answered("SessionStart")
    assert lost.asked == [("s1", "sum")]


@pytest.mark.parametrize("chance", [PROMPT, BATCH])
async def test_without_the_writer_the_next_chance_is_taken_once(chance):
    pin, _ = auto()
    assert await run(pin, PRE, START, POST, chance, chance) == answered(chance["hook_event_name"])


@pytest.mark.parametrize(
    "other",
    [
        {**WRITER, "agent_type": "general-purpose"},
        {**WRITER, "last_assistant_message": ""},
        {**WRITER, "last_assistant_message": None},
    ],
)
async def test_another_agent_that_stops_is_not_the_writer(other):
    pin, _ = auto()
    assert await run(pin, PRE, other, START, POST, PROMPT) == answered("UserPromptSubmit")


async def test_two_compactions_at_once_are_told_apart_later():
    pin, lost = auto()
    sub = {"agent_id": "sub"}
    hooks = [
        PRE,
        {**PRE, **sub},
        WRITER,
        {**START, **sub},
        START,
        {**POST, **sub, "compact_summary": "x"},
        POST,
        PROMPT,
    ]
    assert await run(pin, *hooks) == answered("UserPromptSubmit")
    assert lost.asked == [("s1", "sum")]


async def test_a_subagents_compaction_and_other_starts_get_no_answer():
    pin, lost = auto()
    sub = {"agent_id": "sub"}
    assert await run(pin, {**PRE, **sub}, WRITER, {**START, **sub}, {**POST, **sub}, PROMPT) == []
    assert await run(pin, {**START, "source": "clear"}, POST, PROMPT, BATCH) == []
    assert lost.asked == []


async def test_a_failed_compactions_summary_is_not_kept():
    pin, lost = auto()
    assert await run(pin, PRE, WRITER, PRE, START, POST, PROMPT) == answered("UserPromptSubmit")
    assert lost.asked == [("s1", "sum")]


async def test_nothing_lost_nothing_said():
    pin, _ = auto("")
    assert await run(pin, PRE, WRITER, START, POST, PROMPT) == []
    assert await run(pin, PRE, START, POST, PROMPT) == []


async def test_a_measure_that_takes_too_long(monkeypatch, caplog):
    monkeypatch.setattr(pin_module, "SECONDS", 0.01)
    pin, _ = auto(None)
    assert await run(pin, PRE, WRITER, START, PROMPT) == []
    assert "was not known within" in caplog.text


async def test_odd_input():
    pin, _ = auto()
    assert await run(pin, PRE, WRITER, {**START, "session_id": None}) == []
    assert await run(Pin("auto", "/repo"), PRE, WRITER, START) == []


def test_on_trio():
    pin, _ = auto()
    assert anyio.run(run, pin, PRE, WRITER, START, backend="trio") == answered("SessionStart")


async def test_a_file(tmp_path):
    (tmp_path / "RULES.md").write_text("be kind\n")
    pin = Pin("RULES.md", str(tmp_path))
    assert await run(pin, PRE, START, POST, PROMPT, PRE, WRITER, START) == answered("SessionStart", "be kind") * 2
    (tmp_path / "RULES.md").write_text("be brief\n")
    assert await run(pin, START) == answered("SessionStart", "be brief")


async def test_a_long_file_is_cut(tmp_path):
    path = tmp_path / "RULES.md"
    path.write_text("ä rule\n" * 20_000)
    (answer,) = await run(Pin(str(path), "/elsewhere"), START)
    assert PIN_TOKENS - 10 <= safe_tokens(answer["additionalContext"]) <= PIN_TOKENS
    assert f"full text: {path}" in answer["additionalContext"]


async def test_a_file_that_is_not_there_or_empty(tmp_path, caplog):
    assert await run(Pin("RULES.md", str(tmp_path)), START) == []
    assert "RULES.md cannot be read" in caplog.text
    (tmp_path / "RULES.md").write_text("  \n")
    assert await run(Pin("RULES.md", str(tmp_path)), START) == []
