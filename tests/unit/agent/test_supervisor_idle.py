"""When an idle session compacts."""

from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from mala_context.agent.running_tasks import RunningTasks
from mala_context.agent.supervisor import SessionSupervisor, compact_when_idle, due_in
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage

MODEL = "claude-sonnet-4-5"


def session(tokens=150_000, *, hour=0, at=0.0, **about):
    """What the rule reads of a session whose last request wrote so many tokens."""
    tracker = ContextTracker(model=MODEL)
    main = tracker.main
    main.begin("m1")
    main.count(Usage(0, tokens, 0, 10), "message", hour, at)
    main.first_input = 20_000
    tasks = RunningTasks()
    for name, value in about.items():
        setattr(tasks, name, value)
    return SimpleNamespace(tracker=tracker, outstanding=tasks, awaits_answer=False)


@pytest.mark.parametrize(("hour", "last"), [(0, 240.0), (150_000, 3_420.0)])
def test_it_is_due_shortly_before_the_lapse(hour, last):
    assert due_in(session(hour=hour), 0.0) == last
    assert due_in(session(hour=hour), last) == 0


@pytest.mark.parametrize(("now", "about"), [(300.0, {}), (250.0, {"in_turn": True}), (250.0, {"tasks": {"t": "x"}})])
def test_it_is_never_due_after_the_lapse_or_while_something_runs(now, about):
    assert due_in(session(**about), now) is None


def test_it_is_never_due_while_an_answer_is_awaited_or_after_a_compaction():
    waiting = session()
    waiting.awaits_answer = True
    assert due_in(waiting, 250.0) is None
    compacted = session()
    compacted.tracker.main.cache.compacted = True
    assert due_in(compacted, 250.0) is None


def test_a_context_that_is_cheap_to_write_again_is_left_alone():
    assert due_in(session(53_000), 250.0) is None
    assert due_in(session(60_000), 250.0) == 0


def test_without_a_time_or_a_size_nothing_is_due():
    assert due_in(session(at=None), 250.0) is None
    fresh = session()
    fresh.tracker = ContextTracker()
    assert due_in(fresh, 250.0) is None


class OverError(Exception):
    """The clock has run long enough."""


class Running:
    """A clock that whoever sleeps moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        await anyio.lowlevel.checkpoint()
        self.now += seconds
        if self.now > 600:
            raise OverError


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_answer_is_compacted_after_once(backend):
    clock, calls = Running(), []

    async def compact():
        calls.append(clock.now)

    with pytest.raises(OverError):
        anyio.run(compact_when_idle, session(), clock, compact, backend=backend)
    assert calls == [240.0]


@pytest.mark.parametrize(
    ("now", "breaker_open", "asked"),
    [(240.0, False, ["/compact the plan"]), (240.0, True, []), (100.0, False, [])],
    ids=["it is due", "the breaker is open", "it is not due any more"],
)
async def test_a_session_is_compacted_where_it_is_still_due_and_the_breaker_closed(now, breaker_open, asked):
    prompts, tasks, acted = [], [], []
    idle = session()
    idle.context = SimpleNamespace(compactions=0)
    idle.beside = tasks.append

    async def put(prompt, *, own):
        assert own
        prompts.append(prompt)

    async def answered():
        idle.context.compactions += 1

    idle.put, idle.answered = put, answered
    policy = SimpleNamespace(breaker_open=breaker_open, thresholds=SimpleNamespace(compact_focus="the plan"))
    actions = SimpleNamespace(policy=policy, acted=acted.append)
    supervisor = SessionSupervisor(actions, SimpleNamespace(clock=lambda: now), None, None, idle=True)
    supervisor.serve(idle)
    (task,) = tasks
    assert task.func is compact_when_idle
    await task.args[2]()
    assert prompts == asked
    assert acted == ["compact_asked"] * len(asked)
