"""Notes and final turns of one agent, and of subagents by their own windows."""

import json
import logging

import pytest

from mala_context import ContextTracker, MessageStreamProcessor, Usage
from mala_context.agent.actions import NEVER, Actions
from mala_context.agent.guarded import Guarded, Subagents
from mala_context.agent.telemetry import Hub
from mala_context.agent.telemetry.records import FinalTurn, GuardActed, ThresholdCrossed
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Caution, Compact, Restart, Thresholds
from mala_context.tracking.events import Compaction, Response, SessionStart

WINDOW = 1_000
MODEL = "claude-sonnet-4-5"


class Bench:
    """A main agent without thresholds, and subagents with some."""

    def __init__(self, window=WINDOW, **thresholds):
        self.processor = MessageStreamProcessor(ContextTracker(window=window))
        self.actions = Actions(
            Policy(NEVER),
            self.processor,
            finishing_tools=("Write",),
            subagents=Thresholds(**{"warn_at": None, **thresholds}),
        )
        self.told = []
        self.actions.observers.append(self.told.append)
        self.processor.take(SessionStart("s1", "init", MODEL))
        self.number = 0

    def responds(self, tokens, agent="a1"):
        self.number += 1
        self.processor.take(Response(agent, "s1", f"m{self.number}", MODEL, Usage(tokens, 0, 0, 1)))

    async def asks(self, tool="Bash", agent="a1"):
        self.number += 1
        answer = await self.actions.before_tool({"tool_name": tool, "tool_input": {}, "agent_id": agent})
        if not answer:
            return "allow"
        return "stop" if answer.get("continue_") is False else answer["hookSpecificOutput"]["permissionDecision"]

    async def note(self, agent="a1"):
        answer = await self.actions.after_tools({"agent_id": agent})
        return answer["hookSpecificOutput"]["additionalContext"] if answer else None


async def test_a_subagent_is_warned_once_by_its_own_window(caplog):
    bench = Bench(warn_at=0.7)
    bench.responds(990, agent=None)
    bench.responds(600)
    assert await bench.note() is None
    bench.responds(710)
    assert "about 700 of 1,000 tokens" in await bench.note()
    assert await bench.note() is None
    assert await bench.note(agent=None) is None
    assert bench.told == [
        ThresholdCrossed("s1", "warn_at", 0.7, 0.71, 710, WINDOW, MODEL, "a1"),
        GuardActed("s1", "told", None, "a1"),
    ]
    assert [line for line in caplog.messages if line.startswith("Context: 71.0% (710 of 1,000 tokens), a1")]
    bench.processor.take(Compaction("a1", "s1", "auto", None, 10))
    bench.responds(300)
    await bench.note()
    bench.responds(720)
    assert await bench.note() is not None, "a compaction arms it again"


async def test_each_subagent_has_its_own_final_turn():
    bench = Bench(final_at=0.9)
    bench.responds(950, agent="a1")
    bench.responds(100, agent="a2")
    assert await bench.asks("Bash", agent="a1") == "deny"
    assert await bench.asks("Write", agent="a1") == "allow"
    assert await bench.asks("Bash", agent="a2") == "allow"
    assert await bench.asks("Bash", agent=None) == "allow"
    assert "This is the final turn" in await bench.note()
    await bench.actions.agent_stopped({"agent_id": "a2"})
    assert [record for record in bench.told if isinstance(record, FinalTurn)] == []
    await bench.actions.agent_stopped({"agent_id": "a1"})
    await bench.actions.agent_stopped({"agent_id": "a1"})
    await bench.actions.agent_stopped({})
    right = FinalTurn("s1", "context", bench.told[0].ratio, stopped=False, denials=1, missing=(), agent="a1")
    assert [record for record in bench.told if isinstance(record, FinalTurn)] == [right]
    assert bench.actions.final_turn is None


async def test_a_subagent_that_goes_on_asking_is_stopped(caplog):
    bench = Bench(final_at=0.9, tell_agent=False)
    bench.responds(950)
    answers = []
    for _ in range(4):
        bench.responds(950)
        answers.append(await bench.asks())
    assert answers == ["deny", "deny", "deny", "stop"]
    assert await bench.note() is None
    (final,) = [record for record in bench.told if isinstance(record, FinalTurn)]
    assert (final.stopped, final.agent) == (True, "a1")
    assert caplog.messages[-1].endswith("missing: saved work, final answer, in a subagent")


async def test_a_drop_lifts_a_subagents_final_turn():
    bench = Bench(final_at=0.9)
    bench.responds(950)
    assert await bench.asks() == "deny"
    bench.responds(300)
    assert await bench.asks() == "allow"


async def test_no_tool_is_denied_on_a_guess(caplog):
    bench = Bench(window=None, final_at=0.5)
    bench.processor.take(Response("a1", "s1", "m1", "some-other-model", Usage(110_000, 0, 0, 1)))
    assert await bench.asks() == "allow"
    assert [record.action for record in bench.told] == ["guess"]
    assert caplog.messages[-1].endswith("is a guess: no tool is denied, in a subagent")


async def test_each_line_and_note_of_a_guessed_window_says_so(caplog):
    """A request near the guess confirms it, and a final turn begins: its lines have the mark all the same."""
    bench = Bench(window=None, warn_at=0.9, final_at=0.95)
    bench.processor.take(Response("a1", "s1", "m1", "some-other-model", Usage(196_000, 0, 0, 1)))
    assert await bench.asks() == "deny"
    warned, final = (line for line in caplog.messages if "is reached" in line)
    assert "of 200,000 (a guess) tokens" in warned
    assert "of 200,000 (a guess) tokens" in final
    assert (await bench.note()).count("of 200,000 (a guess) tokens") == 2
    await bench.actions.agent_stopped({"agent_id": "a1"})
    assert caplog.messages[-1].endswith("in a subagent, the window is a guess")
    told = [each.window_state for each in bench.told if isinstance(each, ThresholdCrossed | FinalTurn)]
    assert told == ["guess"] * 3


@pytest.mark.parametrize(("threshold", "step"), [("compact_at", Compact), ("restart_at", Restart)])
@pytest.mark.parametrize("window", [None, 200_000])
def test_a_compaction_or_a_restart_on_a_guess_says_so(caplog, threshold, step, window):
    processor = MessageStreamProcessor(ContextTracker(window=window))
    actions = Actions(Policy(Thresholds(**{"warn_at": None, threshold: 0.8})), processor)
    processor.take(SessionStart("s1", "init", "some-other-model"))
    processor.take(Response(None, "s1", "m1", "some-other-model", Usage(170_000, 0, 0, 1)))
    assert isinstance(actions.next_step(), step)
    said = [line for line in caplog.messages if line.endswith(f"; {threshold} 80.0% is reached")]
    assert ["(a guess)" in line for line in said] == [True] * (window is None)


@pytest.mark.parametrize("thresholds", [{}, {"warn_at": None, "final_at": None}])
async def test_without_thresholds_a_subagent_is_left_alone(thresholds, caplog):
    caplog.set_level(logging.INFO)
    bench = Bench(**thresholds)
    bench.responds(999)
    assert await bench.asks() == "allow"
    assert await bench.note() is None
    assert await bench.actions.tell({"agent_id": "a1"}) is None
    assert bench.told == []


def test_so_many_subagents_are_remembered_and_no_more():
    made = []
    tracker = ContextTracker(window=WINDOW)

    def make(policy, agent):
        made.append(agent)
        return Guarded(policy, Hub(), (), name=agent, agent=agent)

    subagents = Subagents(Thresholds(warn_at=0.5), tracker, make)
    for number in range(100):
        assert subagents.look(f"a{number}", 0.0) is subagents.look(f"a{number}", 0.0)
    assert len(made) == 100
    subagents.look("a99", 0.0)
    subagents.look("a0", 0.0)
    assert len(made) == 101


def test_an_overflow_has_a_record_of_its_own(caplog):
    told = []
    guarded = Guarded(Policy(NEVER), Hub([told.append]), (), name="main")
    guarded.carry_out(
        (Caution("overflow", "it is full"), Caution("breaker", "it is open")), ContextTracker().snapshot()
    )
    assert caplog.messages == ["it is full", "it is open"]
    assert [record.action for record in told] == ["breaker"]


@pytest.mark.parametrize("value", ["true", None])
async def test_a_runtime_prints_its_topics_by_itself(monkeypatch, capsys, value):
    monkeypatch.setenv("CONTEXT_DEBUG", value) if value else monkeypatch.delenv("CONTEXT_DEBUG", raising=False)
    bench = Bench(final_at=0.9)
    bench.responds(100, agent=None)
    bench.responds(950)
    await bench.asks()
    lines = [line.split(" ", 1) for line in capsys.readouterr().err.splitlines()]
    if value is None:
        assert lines == []
        return
    main, *of_subagent = [(topic, json.loads(fields)) for topic, fields in lines]
    assert main[0] == "[context-guard/provider-eval]"
    assert (main[1]["current"], main[1]["agent"], main[1]["outcomes"]) == (100, None, ["ok"])
    assert [topic for topic, _ in of_subagent] == ["[context-guard/provider-eval]", "[context-guard/enforce]"]
    fields = of_subagent[0][1]
    assert (fields["limit"], fields["remaining"]) == (900, 900 - fields["projected"])
    assert fields["outcomes"] == ["finish", "tell"]
