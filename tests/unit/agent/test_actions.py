"""What is done about a context that fills: events and hooks in, log lines, notes, answers and steps out."""

import json
import logging

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, SystemMessage, TextBlock
from hypothesis import given
from hypothesis import strategies as st

from mala_context import ContextTracker, MessageStreamProcessor
from mala_context.agent.actions import Actions
from mala_context.agent.telemetry.records import FinalTurn, GuardActed, ThresholdCrossed
from mala_context.guard.final_turn import MOST_AT_ONCE
from mala_context.guard.overflow import ContextOverflow
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Compact, Restart, Thresholds
from mala_context.tracking.events import Appended, Compaction, CompactionStatus, Reset, SessionStart, WindowReport
from tests.helpers import sdk_messages

WINDOW = 1_000


class Bench:
    """An agent of a window of 1,000 tokens, its clock, and what the guard did."""

    def __init__(self, finishing=("Write",), window=WINDOW, automatic=None, **thresholds):
        self.processor = MessageStreamProcessor(ContextTracker(window=window, auto_compact_window=automatic))
        self.scale = window // 1_000
        self.now = 0.0
        policy = Policy(Thresholds(**thresholds))
        self.actions = Actions(policy, self.processor, finishing_tools=finishing, clock=lambda: self.now)
        self.told = []
        self.actions.observers.append(self.told.append)
        self.number = 0
        self.processor.process(SystemMessage("init", {"session_id": "s1", "model": "claude-sonnet-4-5"}))

    @property
    def seen(self):
        """Records of turns and overflows; those of single steps have their own tests."""
        return [record for record in self.told if not isinstance(record, GuardActed | ThresholdCrossed)]

    @property
    def steps(self):
        """What was told of single steps: a threshold's name, or what was done."""
        steps = [record for record in self.told if isinstance(record, GuardActed | ThresholdCrossed)]
        return [getattr(record, "threshold", None) or record.action for record in steps]

    def responds(self, tokens, parts=1, parent=None, session_id="s1"):
        """Let the agent send a request of so many tokens and answer with one word."""
        self.number += 1
        for part in range(parts):
            usage = {"input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
            usage["cache_read_input_tokens"] = tokens * self.scale
            self.processor.process(
                sdk_messages.build(
                    AssistantMessage,
                    content=[TextBlock("x")],
                    model="claude-sonnet-4-5",
                    parent_tool_use_id=parent,
                    usage=usage,
                    message_id=f"m{self.number}",
                    session_id=session_id,
                    uuid=f"{self.number}-{part}",
                )
            )

    def does(self, action, value):
        """Let one of the things happen that a guard acts on, a size in thousandths of the window."""
        if action == "responds":
            self.responds(value, parts=2)
        elif action == "compacted":
            self.compacted(value * self.scale)
        elif action == "clears":
            self.processor.take(Reset("s1", None))
        elif action == "window":
            self.processor.take(WindowReport("s1", 50_000, None, "claude-sonnet-4-5", None))
        elif action == "comes_back":
            self.processor.take(SessionStart(f"s{self.number}", "resume"))
        else:
            {
                "ends": self.ends,
                "next_step": self.actions.next_step,
                "fails": self.actions.failed,
                "restarts": self.actions.restarted,
            }[action]()

    def ends(self, reason="completed", *, is_error=False, result=None):
        self.processor.process(sdk_messages.result(usage={}, is_error=is_error, terminal_reason=reason, result=result))

    def compacted(self, estimate=None):
        meta = {"trigger": "auto", "pre_tokens": 900, "post_tokens": estimate or 100}
        self.processor.process(SystemMessage("compact_boundary", {"session_id": "s1", "compact_metadata": meta}))

    async def prompt(self, **fields):
        return await self.actions.tell({"hook_event_name": "UserPromptSubmit", **fields})

    async def tools(self, **fields):
        return await self.actions.after_tools({"hook_event_name": "PostToolBatch", **fields})

    async def asks(self, tool="Bash", **tool_input):
        """Return `allow`, `deny` or `stop`, and the reason."""
        answer = await self.actions.before_tool({"tool_name": tool, "tool_input": tool_input})
        if not answer:
            return "allow", ""
        output = answer["hookSpecificOutput"]
        assert output["permissionDecision"] == "deny"
        return "stop" if answer.get("continue_") is False else "deny", output["permissionDecisionReason"]


def note(answer):
    return answer["hookSpecificOutput"]["additionalContext"]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# Warnings and notes


def test_a_warning_is_one_line_once_per_crossing(caplog):
    bench = Bench()
    for tokens in (690, 710, 750, 690, 720):
        bench.responds(tokens)
    assert warnings(caplog) == [
        "Context: 71.0% (710 of 1,000 tokens), main, claude-sonnet-4-5; warn_at 70.0% is reached"
    ]
    bench.compacted()
    bench.responds(120)
    bench.responds(710)
    assert len(warnings(caplog)) == 2


async def test_the_note_reaches_the_agent_once_with_the_next_hook():
    bench = Bench()
    assert await bench.prompt() is None
    bench.responds(710)
    answer = await bench.tools()
    assert answer["hookSpecificOutput"]["hookEventName"] == "PostToolBatch"
    assert note(answer).startswith("Context note: about 700 of 1,000 tokens are in use.")
    assert await bench.tools() is None
    assert await bench.prompt() is None


async def test_the_prompt_carries_it_too():
    bench = Bench()
    bench.responds(710)
    bench.ends()
    assert (await bench.prompt())["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"


async def test_tell_agent_false_keeps_quiet():
    bench = Bench(tell_agent=False)
    bench.responds(710)
    assert await bench.tools() is None


async def test_a_subagent_neither_counts_nor_hears():
    bench = Bench(final_at=0.9)
    bench.responds(950, parent="toolu_1")
    assert await bench.tools() is None
    bench.responds(710)
    assert await bench.tools(agent_id="a1") is None
    assert await bench.tools() is not None


def test_a_response_of_many_parts_is_asked_about_once():
    bench = Bench(compact_at=0.15)  # near enough to ask about every response
    asked = []
    decide = bench.actions.policy.decide
    bench.actions.policy.decide = lambda *args, **kwargs: asked.append(kwargs) or decide(*args, **kwargs)
    bench.responds(100, parts=5)
    bench.responds(200, parts=5)
    bench.ends()  # asks once more: the answer's whole text is there
    bench.responds(300)
    assert [kwargs["new_prompt"] for kwargs in asked] == [True, False, False, True]


def test_a_cli_that_should_have_compacted_is_one_warning(caplog):
    bench = Bench(warn_at=None, compact_at=0.99)
    bench.processor.tracker = ContextTracker(window=200_000, auto_compact_window=200_000)
    for tokens in (168_000, 175_000, 190_000):
        bench.responds(tokens)
        bench.ends()
    (line,) = warnings(caplog)
    assert "should have compacted by itself and did not" in line
    step = bench.actions.next_step()
    assert isinstance(step, Compact)
    assert step.cause == "overdue"


# The final turn


async def test_saving_is_always_allowed_and_the_fourth_denial_in_a_row_stops():
    asks = [("Write", {"file_path": "checkpoint.md"}), ("Bash", {"command": "git commit -m x"})]
    asks += [("Bash", {"command": "curl example"})] * 4
    bench = Bench(("Write", "Bash(git *)"), final_at=0.9)
    bench.responds(950)
    answers = []
    for tool, tool_input in asks:
        answers.append((await bench.asks(tool, **tool_input))[0])
        await bench.tools()
        bench.responds(951)
    assert answers == ["allow", "allow", "deny", "deny", "deny", "stop"]
    bench.ends("hook_stopped")
    (record,) = bench.seen
    assert record is bench.actions.final_turn
    right = FinalTurn("s1", "context", record.ratio, stopped=True, denials=4, missing=("final answer",))
    assert record == right
    assert record.ratio >= 0.95


async def test_before_final_at_everything_is_let_through():
    bench = Bench(final_at=0.9)
    bench.responds(800)
    assert await bench.asks() == ("allow", "")


async def test_what_came_since_the_last_response_counts():
    bench = Bench(final_at=0.9)
    bench.responds(850)
    assert (await bench.asks())[0] == "allow"
    bench.processor.take(Appended(None, "s1", "user", "word " * 200))
    assert (await bench.asks())[0] == "deny"


async def test_the_denial_says_what_to_do_and_so_does_the_note():
    bench = Bench(("Write", "Edit"), final_at=0.9)
    bench.responds(950)
    assert "Save the work and finish with Write, Edit" in (await bench.asks())[1]
    said = note(await bench.tools())
    assert "final turn" in said
    assert said.endswith("then give your final answer. Finishing tools: Write, Edit.")


async def test_denials_of_one_response_are_one():
    bench = Bench(final_at=0.9)
    for _ in range(3):
        bench.responds(950)
        assert {(await bench.asks())[0] for _ in range(5)} == {"deny"}
        await bench.tools()
    bench.responds(950)
    assert (await bench.asks())[0] == "stop"


async def test_a_drop_lifts_the_final_turn():
    bench = Bench(final_at=0.9)
    bench.responds(950)
    assert (await bench.asks())[0] == "deny"
    bench.compacted()
    bench.responds(200)
    assert (await bench.asks())[0] == "allow"


async def test_a_new_prompt_begins_to_count_anew():
    bench = Bench(final_at=0.9)
    for _ in range(4):
        bench.responds(950)
        last = (await bench.asks())[0]
    assert last == "stop"
    bench.ends("hook_stopped")
    await bench.prompt()
    bench.responds(955)
    assert (await bench.asks())[0] == "deny"
    bench.ends()
    assert [record.stopped for record in bench.seen] == [True, False]


def test_a_final_turn_that_nobody_heard_of_is_not_told():
    bench = Bench(final_at=0.9)
    bench.responds(950)
    bench.ends()
    assert bench.seen == []


FINISHING = st.lists(st.sampled_from(["Write", "Edit", "Bash(git *)", "TodoWrite"]), max_size=3)
SIZES = st.lists(st.integers(min_value=1, max_value=1_500), min_size=1, max_size=12)


DOES = st.one_of(
    st.tuples(st.just("responds"), st.integers(min_value=1, max_value=1_100)),
    st.tuples(st.just("responds"), st.integers(min_value=600, max_value=800)),
    st.tuples(st.just("compacted"), st.sampled_from([10, 600, 880])),
    st.tuples(
        st.sampled_from(["ends", "clears", "next_step", "fails", "restarts", "window", "comes_back"]), st.just(0)
    ),
)


@given(
    st.lists(DOES, max_size=30),
    st.fixed_dictionaries(
        {},
        optional={
            "warn_at": st.none(),
            "compact_at": st.just(0.8),
            "restart_at": st.just(0.85),
            "final_at": st.just(0.9),
        },
    ),
    st.sampled_from([None, 75_000]),
)
def test_the_fast_path_changes_no_decision(does, thresholds, automatic):
    """A processor that takes each response the careful way, and one that need not, make their guards do the same."""
    fast = Bench(window=100_000, automatic=automatic, **thresholds)
    careful = Bench(window=100_000, automatic=automatic, **thresholds)
    careful.processor.event_observers.append(lambda event, snapshot: None)
    for bench in (fast, careful):
        bench.responds(10)
        for number, (action, value) in enumerate(does):
            bench.now = 100.0 * number
            bench.does(action, value)
    assert fast.told == careful.told
    assert fast.actions.policy.restarts == careful.actions.policy.restarts


def test_the_policy_is_asked_only_about_responses_near_a_threshold(monkeypatch):
    bench = Bench(window=100_000, warn_at=0.7, compact_at=0.9)
    bench.responds(10, parts=2)
    asked = []
    decide = bench.actions.policy.decide
    monkeypatch.setattr(
        bench.actions.policy, "decide", lambda *args, **more: asked.append(args[0].ratio) or decide(*args, **more)
    )
    for share in range(20, 900, 20):
        bench.responds(share, parts=2)
    assert asked == [0.7, *(share / 1000 for share in range(800, 900, 20))]


@given(FINISHING, SIZES, st.integers(min_value=1, max_value=40), st.booleans(), st.booleans())
def test_no_agent_is_ever_trapped(finishing, sizes, at_once, feeds, batches):
    """Whatever the policy and however little is known, an agent that only asks for denied tools is stopped.

    `feeds` says whether the agent's responses are seen, `batches` whether the CLI tells of its batches of tools.
    """

    async def main():
        bench = Bench(finishing, final_at=0.5, warn_at=None)
        bench.responds(sizes[0])
        if bench.actions.policy.final is False:
            bench.responds(600)
        for turn in range(40):
            for _ in range(at_once):
                if (await bench.asks("WebFetch", url="x"))[0] == "stop":
                    return
            if batches:
                await bench.tools()
            if feeds:
                bench.responds(max(600, sizes[turn % len(sizes)]))
        raise AssertionError("it was never stopped")

    assert at_once <= MOST_AT_ONCE + 8
    anyio.run(main)


# Steps for a session


def test_a_compaction_is_asked_for_once_and_its_boundary_is_the_answer():
    bench = Bench(warn_at=None, compact_at=0.8, compact_focus="names")
    bench.responds(700)
    assert bench.actions.next_step() is None
    bench.responds(850)
    step = bench.actions.next_step()
    assert step.focus == "names"
    assert bench.actions.next_step() is None
    bench.compacted()
    bench.responds(200)
    bench.responds(850)
    assert isinstance(bench.actions.next_step(), Compact)


def test_three_compactions_that_free_nothing_open_the_breaker(caplog):
    bench = Bench(warn_at=None, compact_at=0.8)
    for seconds in (0, 70, 130):
        bench.now = float(seconds)
        bench.responds(900)
        bench.actions.next_step()
        bench.compacted()
        bench.responds(950)
    assert len([line for line in warnings(caplog) if "3 compactions within 130 s" in line]) == 1
    bench.responds(990)
    assert bench.actions.next_step() is None


def test_an_estimate_that_flattered_is_taken_back(caplog):
    caplog.set_level(logging.INFO)
    bench = Bench(warn_at=None, compact_at=0.8)
    bench.responds(200)
    bench.responds(900)
    bench.actions.next_step()
    bench.compacted()
    assert bench.processor.tracker.snapshot().tokens < 810
    bench.responds(890)
    assert "Context: the compaction freed 1.1%; none is asked for until the context has grown" in caplog.messages
    assert bench.actions.next_step() is None
    bench.responds(895)
    assert bench.actions.next_step() is None
    bench.responds(960)
    assert isinstance(bench.actions.next_step(), Compact)


def test_a_failed_compaction_is_one_warning_and_waits_for_growth(caplog):
    bench = Bench(warn_at=None, compact_at=0.8)
    bench.responds(850)
    bench.actions.next_step()
    bench.processor.take(CompactionStatus("s1", None, "failed", "exhausted"))
    assert warnings(caplog) == ["Context: the compaction failed: exhausted"]
    assert bench.actions.next_step() is None
    bench.responds(920)
    assert isinstance(bench.actions.next_step(), Compact)


async def test_a_turn_is_cut_for_a_restart_only_where_a_session_says_so():
    bench = Bench(warn_at=None, restart_at=0.8)
    bench.responds(850)
    assert await bench.tools() is None
    bench.actions.restart_with(lambda: False)
    assert await bench.tools() is None
    bench.actions.restart_with(lambda: True)
    answer = await bench.tools()
    assert answer["continue_"] is False
    assert isinstance(bench.actions.next_step(), Restart)


def test_restarts_are_counted_up_to_their_maximum():
    bench = Bench(warn_at=None, restart_at=0.8, max_restarts=1)
    assert bench.actions.can_restart
    bench.responds(850)
    assert bench.actions.policy.restart_due
    bench.actions.next_step()
    bench.actions.restarted()
    assert bench.actions.policy.restarts == 1
    assert not bench.actions.can_restart
    assert not Bench().actions.can_restart


async def test_clear_forgets_notes_and_the_final_turn():
    bench = Bench(final_at=0.9)
    bench.responds(950)
    bench.processor.take(Reset("s1"))
    assert await bench.tools() is None
    assert (await bench.asks())[0] == "allow"


def test_another_agents_compaction_is_not_ours():
    bench = Bench(warn_at=None, compact_at=0.8)
    bench.responds(850)
    bench.actions.next_step()
    bench.processor.take(Compaction("toolu_1", "s1", "auto", 900, 100))
    assert bench.actions.next_step() is None


# Overflow


OVERFLOWS = [
    {"reason": "prompt_too_long", "is_error": True},
    {"reason": "rapid_refill_breaker", "is_error": True},
    {"reason": "completed", "is_error": True, "result": "prompt is too long: 210000 tokens > 200000 maximum"},
]


@pytest.mark.parametrize("end", OVERFLOWS, ids=json.dumps)
def test_an_overflow_is_one_record_one_warning_and_a_restart(end, caplog):
    bench = Bench(warn_at=None, restart_at=0.99)
    bench.responds(900)
    bench.ends(**end)
    bench.ends(**end)
    assert [type(record) for record in bench.seen] == [ContextOverflow]
    assert len(warnings(caplog)) == 1
    step = bench.actions.next_step()
    assert (type(step), step.cause) == (Restart, "overflow")


def test_after_a_response_the_next_overflow_is_said_again(caplog):
    bench = Bench(warn_at=None)
    bench.ends("prompt_too_long", is_error=True)
    bench.responds(900)
    bench.compacted()
    bench.responds(800)
    bench.ends("prompt_too_long", is_error=True)
    assert len(bench.seen) == len(warnings(caplog)) == 2


@pytest.mark.parametrize(
    ("following", "words"),
    [
        (899, []),
        (900, ["Compaction: it changed nothing: 900 tokens before it, 900 in the next request"]),
        (999, ["Compaction: it grew the context: 900 tokens before it, 999 in the next request"]),
    ],
)
@pytest.mark.parametrize("compact_at", [None, 0.5])
def test_a_compaction_that_freed_nothing_is_a_warning(caplog, following, words, compact_at):
    """Case core-33: one that grew the context, and one that changed nothing."""
    bench = Bench(warn_at=None, compact_at=compact_at)
    bench.responds(900)
    bench.compacted()
    bench.responds(following)
    bench.responds(following + 1)
    assert warnings(caplog) == words


def test_an_answer_that_speaks_of_it_is_none():
    bench = Bench(warn_at=None)
    bench.responds(500)
    bench.ends(result="The server said: prompt is too long: 3 tokens > 2 maximum.")
    assert bench.seen == []


# Observers


def test_an_observer_that_raises_does_not_stop_the_others(caplog):
    bench = Bench()

    def broken(record):
        raise RuntimeError

    bench.actions.observers.insert(0, broken)
    bench.actions.happened("record")
    bench.actions.happened("another")
    assert bench.seen == ["record", "another"]
    assert warnings(caplog) == ["Context: an observer failed"]


async def test_observers_hear_of_thresholds_and_of_each_step():
    bench = Bench(warn_at=0.7, final_at=0.9)
    bench.responds(800)
    bench.responds(820)
    assert bench.told == [ThresholdCrossed("s1", "warn_at", 0.7, 0.8, 800, WINDOW, "claude-sonnet-4-5")]
    await bench.prompt()
    bench.responds(950)
    await bench.asks("Bash")
    await bench.asks("Write")
    assert bench.steps == ["warn_at", "told", "final_at", "denied"]
    assert bench.told[-1] == GuardActed("s1", "denied", "Bash")
    for _ in range(4):
        bench.responds(950)
        await bench.asks("mcp__odd__tool")
    assert bench.steps[-4:] == ["denied", "denied", "denied", "stopped"]
    assert bench.told[-1].tool == "mcp__odd__tool"


async def test_observers_hear_why_a_compaction_or_a_restart_is_asked_for():
    bench = Bench(compact_at=0.8)
    bench.responds(850)
    assert isinstance(bench.actions.next_step(), Compact)
    assert bench.steps == ["warn_at", "compact_at"]
    bench = Bench(warn_at=None, restart_at=0.8)
    bench.actions.restart_with(lambda: True)
    bench.responds(850)
    await bench.tools()
    assert isinstance(bench.actions.next_step(), Restart)
    assert bench.steps == ["turn_cut", "restart_at"]
    bench = Bench(warn_at=None, restart_at=0.9)
    bench.actions.on_overflow(ContextOverflow("refusal"))
    bench.responds(100)
    assert isinstance(bench.actions.next_step(), Restart)
    assert bench.steps == []  # no threshold: the overflow has its own record


def test_a_caution_is_told_by_its_kind():
    bench = Bench(warn_at=None, restart_at=0.5, max_restarts=9)
    for number in range(3):
        bench.now = float(number)
        bench.actions.restarted()
    assert bench.steps == ["breaker"]


async def test_the_transcript_is_remembered():
    bench = Bench()
    await bench.prompt(transcript_path="/t/s1.jsonl")
    await bench.prompt(transcript_path="")
    assert bench.actions.transcript == "/t/s1.jsonl"


async def test_a_session_that_is_born_full_is_one_warning_and_goes_on(caplog):
    bench = Bench(window=100_000, warn_at=None, restart_at=0.7)
    bench.actions.restart_with(lambda: True)
    bench.responds(770)
    assert isinstance(bench.actions.next_step(), Restart)
    bench.processor.tracker.reset()
    bench.actions.restarted()
    bench.told.clear()
    for size in (770, 780, 790):
        bench.responds(size)
        await bench.tools()
        bench.ends()
        assert bench.actions.next_step() is None
    assert [line.partition(" tokens")[0] for line in warnings(caplog)] == [
        "Context: a fresh session holds 77,000 of 100,000"
    ]
    assert bench.steps == ["born_full"]
    assert bench.processor.take_pressure() is None


async def test_a_session_that_is_full_by_its_prompt_is_not_born_full():
    bench = Bench(window=100_000, warn_at=None, restart_at=0.7)
    bench.actions.restarted()
    bench.processor.take(Appended(None, "s1", "user", "word " * 40_000))
    bench.responds(770)
    assert isinstance(bench.actions.next_step(), Restart)


async def test_an_own_client_hears_once_that_nothing_compacts_for_it(caplog):
    bench = Bench(warn_at=None, compact_at=0.8)
    for size in (700, 850, 950):
        bench.responds(size)
        await bench.prompt()
    assert warnings(caplog) == [
        "Context: compact_at is reached; only runtime.session() can send /compact, not your own client"
    ]


async def test_a_session_that_compacts_does_not_hear_of_an_own_client(caplog):
    bench = Bench(warn_at=None, compact_at=0.8)
    bench.responds(850)
    assert isinstance(bench.actions.next_step(), Compact)
    await bench.prompt()
    assert not warnings(caplog)
