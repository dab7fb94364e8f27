"""The contexts that gauges speak of."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from mala_context.agent.telemetry.live import IDLE_SECONDS, LiveContexts

MAIN = ("m", "main")


def put(live, session, tokens, *, agent=None, labels=MAIN, window=1_000):
    live.put(session, agent, labels, tokens=tokens, window=window, ratio=None if tokens is None else tokens / window)


@given(st.lists(st.tuples(st.integers(1, 5_000), st.sampled_from([1_000, 2_000, 200_000])), min_size=1, max_size=30))
def test_the_fullest_context_is_shown_whole(sizes):
    live = LiveContexts()
    for number, (tokens, window) in enumerate(sizes):
        put(live, f"s{number}", tokens, window=window)
    (level,) = live.levels().values()
    assert level.contexts == len(sizes)
    fullest = level.fullest
    assert (fullest.tokens, fullest.window) in sizes
    assert fullest.ratio == fullest.tokens / fullest.window == max(tokens / window for tokens, window in sizes)


def test_a_context_has_one_place_however_often_it_changes():
    live = LiveContexts()
    put(live, "s1", 900)
    put(live, "s1", 100)
    put(live, "s1", 300, agent="a1", labels=("m", "subagent"))
    levels = live.levels()
    assert {labels: (level.contexts, level.fullest.tokens) for labels, level in levels.items()} == {
        MAIN: (1, 100),
        ("m", "subagent"): (1, 300),
    }


def test_an_ended_session_leaves_and_an_unknown_size_is_not_counted():
    live = LiveContexts()
    put(live, "s1", 900)
    put(live, "s1", 300, agent="a1")
    put(live, "s2", 200)
    live.drop("s1")
    live.drop("never seen")
    assert live.levels()[MAIN].fullest.tokens == 200
    put(live, "s2", None)
    put(live, "s3", None)
    assert live.levels() == {}


def test_what_is_idle_leaves():
    now = [0.0]
    live = LiveContexts(clock=lambda: now[0])
    put(live, "s1", 900)
    now[0] = IDLE_SECONDS
    put(live, "s2", 100)
    assert live.levels()[MAIN].contexts == 2
    now[0] += 1
    assert (live.levels()[MAIN].contexts, live.levels()[MAIN].fullest.tokens) == (1, 100)
    assert len(live._sessions) == 1


def test_the_table_is_bounded():
    live = LiveContexts(most=3)
    for number in range(10):
        put(live, f"s{number}", number + 1)
    assert (live.levels()[MAIN].contexts, live.levels()[MAIN].fullest.tokens) == (3, 10)


def test_it_is_read_while_it_is_written():
    live = LiveContexts(most=50)
    stop = threading.Event()
    failures = []

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            put(live, f"s{number % 100}", number % 1_000 + 1)
            live.drop(f"s{(number + 50) % 100}")

    def read():
        try:
            for _ in range(2_000):
                live.levels()
        except RuntimeError as error:
            failures.append(error)

    writer, reader = threading.Thread(target=write), threading.Thread(target=read)
    writer.start()
    reader.start()
    reader.join()
    stop.set()
    writer.join()
    assert failures == []
