"""Who is told, and what an observer that fails does to the others."""

import contextvars
import logging
import threading

import pytest

from mala_context import ContextTracker, MessageStreamProcessor
from mala_context.agent.telemetry import Hub
from mala_context.agent.telemetry.hub import MOST_AGENTS, Reporter, fields_of, log_happening
from mala_context.agent.telemetry.records import CompactionSeen, ContextUpdated, SessionEnded
from tests.helpers.sdk_stream import MODEL, assistant, boundary, init, result, task_started, usage
from tests.helpers.telemetry_tools import EACH, updated


def test_every_observer_is_told_in_order():
    seen = []
    hub = Hub([lambda record: seen.append(("first", record))])
    hub.observers.append(lambda record: seen.append(("second", record)))
    hub.tell(1)
    assert seen == [("first", 1), ("second", 1)]


def test_one_that_wants_everything_is_enough():
    class Picky:
        def wants(self, kind):
            return kind is int

        def __call__(self, record):
            raise AssertionError

    assert not Hub().wants(int)
    assert Hub([Picky()]).wants(int)
    assert not Hub([Picky()]).wants(str)
    assert Hub([Picky(), print]).wants(str)


def test_a_record_is_told_in_the_context_of_whoever_asked():
    """Whatever thread it comes from, within the telling of another one too."""
    who = contextvars.ContextVar("who", default="nobody")
    seen = []
    hub = Hub()

    def observer(record):
        seen.append((record, who.get()))
        if record == "outer":
            hub.tell("inner")

    def ask(name):
        who.set(name)
        hub.asked()

    def tell(record):
        thread = threading.Thread(target=hub.tell, args=(record,))
        thread.start()
        thread.join()

    hub.observers.append(observer)
    tell("early")
    for name in ("one", "two"):
        contextvars.copy_context().run(ask, name)
        tell("outer")
    hub.left()
    tell("late")
    assert seen == [
        ("early", "nobody"),
        *[(record, name) for name in ("one", "two") for record in ("outer", "inner")],
        ("late", "nobody"),
    ]


def test_an_observer_that_raises_is_reported_once_and_harms_nobody(caplog):
    seen, tries = [], []

    def broken(record):
        tries.append(record)
        raise ValueError("no")

    def other(record):
        raise KeyError

    hub = Hub([broken, other, seen.append])
    for number in range(3):
        hub.tell(number)
    assert seen == tries == [0, 1, 2]
    assert caplog.messages == ["Context: an observer failed"] * 2
    assert all(record.levelno == logging.WARNING and record.exc_info for record in caplog.records)


def test_a_hub_beside_it_has_the_same_observers_and_a_context_of_its_own(caplog):
    who = contextvars.ContextVar("who", default="nobody")
    seen = []

    def failing(record):
        raise ValueError(record)

    one = Hub([failing])
    two = one.beside()
    one.observers.append(lambda record: seen.append((record, who.get())))

    def ask():
        who.set("the second")
        two.asked()

    contextvars.copy_context().run(ask)
    one.tell(1)
    two.tell(2)
    assert seen == [(1, "nobody"), (2, "the second")]
    assert len([each for each in caplog.records if "an observer failed" in each.message]) == 1


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


def test_how_well_a_window_is_known_is_told_with_it():
    bench = Bench()
    bench.take(init())
    sizes = bench.take(assistant("m1", 50_000, model="glm-9"))
    sizes += bench.take(result(usage(50_000), model_usage={"glm-9": {"contextWindow": 200_000}}))
    sizes += bench.take(assistant("m2", 210_000, model="glm-9"))
    assert [(size.window, size.window_state) for size in sizes] == [
        (200_000, "guess"),
        (200_000, "known"),
        (1_000_000, "doubtful"),
    ]
    seen, size = bench.take(boundary(211_000, 5_000))
    assert (seen.window_state, size.window_state) == ("doubtful", "doubtful")


def test_a_guess_that_a_source_confirms_is_told_although_no_figure_changes():
    bench = Bench()
    bench.take(init(), assistant("m1", 50_000, model="glm-9"))
    bench.processor.tracker.windows.learn("glm-9", 200_000, "context_usage")
    (told,) = bench.take(assistant("m2", 50_000, model="glm-9"))
    assert bench.take(assistant("m3", 50_000, model="glm-9")) == []
    assert (told.tokens, told.window, told.window_state) == (50_000, 200_000, "known")


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


@pytest.mark.parametrize("record", EACH, ids=lambda record: type(record).__name__)
def test_a_record_is_a_line_and_its_fields(record, caplog):
    caplog.set_level(logging.DEBUG, "mala_context.agent.telemetry")
    log_happening(record)
    if type(record).__name__ == "ContextUpdated":
        assert caplog.records == []  # the processor has its own line
        return
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("DEBUG", f"Happening: {type(record).__name__}")
    for name, value in fields_of(record).items():
        assert getattr(line, name) == value


def test_without_debug_nothing_is_made(caplog):
    caplog.set_level(logging.INFO, "mala_context.agent.telemetry")
    for record in EACH:
        log_happening(record)
    assert caplog.records == []


def test_names_are_those_of_other_lines():
    assert set(fields_of(EACH[4])) == {"session", "trigger", "pieces", "size", "seconds", "path"}
    assert fields_of(updated(5))["session"] == "s1"


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_compaction_says_whether_it_is_by_reference(by_reference):
    bench = Bench(window=200_000)
    bench.take(init(), assistant("m1", 20_000))
    if by_reference:
        bench.processor.tracker.note_kept(None, 9_000)
    seen, _ = bench.take(boundary(151_000, 5_000))
    assert (seen.by_reference, bench.processor.tracker.snapshot().by_reference) == (by_reference, by_reference)


def test_an_observer_may_remove_itself_and_add_others():
    seen = []
    hub = Hub()

    def once(record):
        hub.observers.remove(once)
        hub.observers.append(lambda record: seen.append(("added", record)))

    hub.observers += [once, lambda record: seen.append(("next", record))]
    hub.tell(1)
    hub.tell(2)
    assert seen == [("next", 1), ("next", 2), ("added", 2)]


def test_an_observer_that_adds_one_with_every_record_ends():
    hub = Hub()

    def more(record):
        hub.observers.append(more)

    hub.observers.append(more)
    hub.tell(1)
    assert len(hub.observers) == 2
