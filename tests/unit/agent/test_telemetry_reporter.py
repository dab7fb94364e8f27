"""From events to records."""

from mala_context import ContextTracker, MessageStreamProcessor
from mala_context.agent.telemetry.records import CompactionSeen, ContextUpdated, SessionEnded
from mala_context.agent.telemetry.reporter import MOST_AGENTS, Reporter
from tests.helpers.sdk_stream import MODEL, assistant, boundary, init, result, task_started, usage


class Bench:
    def __init__(self, **tracker):
        self.told = []
        self.reporter = Reporter(self.told.append)
        self.processor = MessageStreamProcessor(ContextTracker(**tracker))
        self.processor.observe(self.reporter.on_event, *self.reporter.events)

    def take(self, *messages):
        """Return what these messages made it tell."""
        before = len(self.told)
        for message in messages:
            self.processor.process(message)
        return self.told[before:]


def test_a_response_is_told_once_however_many_parts_it_has():
    bench = Bench(window=200_000)
    assert bench.take(init()) == []
    told = bench.take(assistant("m1", 50_000), assistant("m1", 50_000), assistant("m1", 50_000))
    assert told == [ContextUpdated("s1", None, MODEL, 50_000, 200_000, 0.25, exact=True, cause="Response")]
    (second,) = bench.take(assistant("m2", 60_000))
    assert (second.tokens, second.ratio) == (60_000, 0.3)


def test_another_window_is_told_at_the_end_of_the_turn():
    bench = Bench()
    bench.take(init(), assistant("m1", 50_000))
    (told,) = bench.take(result(usage(50_000), model_usage={MODEL: {"contextWindow": 123_456}}))
    assert (told.tokens, told.window, told.cause) == (50_000, 123_456, "TurnEnd")


def test_the_end_of_each_turn_is_told():
    bench = Bench(window=200_000)
    bench.take(init(), assistant("m1", 50_000))
    for _ in range(2):
        (told,) = bench.take(result(usage(50_000)))
        assert (told.tokens, told.cause) == (50_000, "TurnEnd")


def test_sizes_that_nobody_wants_are_not_made():
    told, asked = [], []

    def wants(kind):
        asked.append(kind)
        return False

    bench = Bench(window=200_000)
    reporter = Reporter(told.append, wants)
    bench.processor.observe(reporter.on_event, *reporter.events)
    bench.take(init(), assistant("m1", 150_000), boundary(151_000, 5_000))
    assert [type(record) for record in told] == [CompactionSeen]
    assert set(asked) == {ContextUpdated}
    reporter.ended()
    assert told[-1] == SessionEnded("s1")


def test_a_compaction_brings_its_own_record_and_the_size_that_is_left():
    bench = Bench(window=200_000)
    bench.take(init(), assistant("m1", 20_000), assistant("m2", 150_000))
    seen, size = bench.take(boundary(151_000, 5_000))
    assert isinstance(seen, CompactionSeen)
    assert (seen.session_id, seen.agent, seen.trigger, seen.tokens_before) == ("s1", None, "auto", 150_000)
    assert (seen.seconds, seen.model, seen.window) == (1.2, MODEL, 200_000)
    assert seen.tokens_after == size.tokens == bench.processor.tracker.snapshot().tokens
    assert (size.exact, size.cause) == (False, "Compaction")
    assert bench.take(boundary(151_000, 5_000)) == []  # the same boundary again
    (exact,) = bench.take(assistant("m3", size.tokens))
    assert exact.exact


def test_subagents_have_a_size_of_their_own():
    bench = Bench(window=200_000)
    bench.take(init(), assistant("m1", 50_000), task_started("a1", "toolu_9"))
    (told,) = bench.take(assistant("n1", 9_000, parent="toolu_9"))
    assert (told.agent, told.tokens) == ("toolu_9", 9_000)
    assert bench.take(assistant("n1", 9_000, parent="toolu_9"), assistant("m1", 50_000)) == []


def test_a_session_ends_once_and_when_another_begins():
    bench = Bench()
    bench.take(init("s1"), assistant("m1", 50_000))
    assert bench.take(init("s1")) == []
    assert bench.take(init("s2")) == [SessionEnded("s1")]
    bench.reporter.ended()
    bench.reporter.ended()
    assert bench.told[-1] == SessionEnded("s2")
    assert len([each for each in bench.told if isinstance(each, SessionEnded)]) == 2


def test_agents_that_are_remembered_are_bounded():
    bench = Bench(window=200_000)
    bench.take(init())
    bench.take(*(assistant(f"n{number}", 9_000, parent=f"toolu_{number}") for number in range(MOST_AGENTS + 10)))
    assert len(bench.reporter._last) == MOST_AGENTS
    assert len(bench.told) == MOST_AGENTS + 10


def test_events_that_mean_nothing_here_are_left_alone():
    bench = Bench()
    bench.reporter.on_event(object(), None)
    assert bench.told == []
