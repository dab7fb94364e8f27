"""Who is told, and what an observer that fails does to the others."""

import contextvars
import logging
import threading

from mala_context.agent.telemetry import Hub


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
