"""Which tokens were written to the cache a second time, why, and what that cost."""

import pytest

from mala_context.tracking.cache import (
    HOUR,
    SHORT,
    CacheLedger,
    CacheUse,
    compaction_cost,
    pays_to_compact,
    read_price,
    seconds,
)
from mala_context.tracking.readers import READERS
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage

MODEL = "claude-sonnet-4-5"


def ledger(*requests):
    """A ledger after requests: (written, read, for an hour, seconds, model)."""
    made = CacheLedger()
    for written, read, hour, at, model in requests:
        made.take(Usage(3, written, read, 10), hour, at, model)
    return made


def test_a_request_that_reads_all_that_was_there_writes_nothing_again():
    made = ledger((20_000, 0, 0, 0.0, MODEL), (900, 20_000, 0, 10.0, MODEL))
    assert made.last is None
    assert made.use == CacheUse(6, 20_900, 0, 20_000, made.use.causes)
    assert [cause for cause, _ in made.use.causes] == ["first"]
    assert made.use.rewritten == 0


@pytest.mark.parametrize(
    ("hour", "gap", "cause"),
    [(0, 299, "prefix"), (0, 300, "lapsed"), (20_000, 3_599, "prefix"), (20_000, 3_600, "lapsed")],
)
def test_an_entry_lapses_after_its_own_time(hour, gap, cause):
    made = ledger((20_000, 0, hour, 0.0, MODEL), (21_000, 0, hour and 21_000, float(gap), MODEL))
    assert made.last.cause == cause
    assert made.last.tokens == 20_000
    assert made.last.cost == pytest.approx(20_000 * ((2.0 if hour else 1.25) - 0.1))
    assert made.use.rewritten == 20_000
    assert made.ttl == (HOUR if hour else SHORT)


def test_times_are_iso_too_and_a_line_says_the_minutes():
    made = ledger((212_400, 0, 212_400, "2026-05-01T10:00:00.000Z", MODEL))
    made.take(Usage(3, 213_000, 0, 1), 213_000, "2026-05-01T11:11:00Z", MODEL)
    assert made.last.line == "Cache: 212,400 tokens written again (71 min idle)"


def test_a_time_that_is_none_is_no_lapse():
    made = ledger((20_000, 0, 0, None, MODEL), (20_000, 0, 0, "soon", MODEL))
    assert (made.last.cause, made.last.idle_seconds) == ("prefix", None)
    assert made.last.line.endswith("(the prefix changed)")
    assert seconds("soon") is None


def test_another_model_has_a_cache_of_its_own():
    made = ledger((20_000, 0, 0, 0.0, MODEL), (20_100, 0, 0, 900.0, "claude-opus-4-6"))
    assert made.last.line.endswith("(the model was switched)")


def test_a_compaction_writes_what_is_new():
    made = ledger((90_000, 0, 0, 0.0, MODEL))
    made.compacted = True
    made.take(Usage(3, 9_000, 12_000, 1), 0, 900.0, MODEL)
    assert (made.last.cause, made.last.again) == ("compaction", False)
    assert made.use.rewritten == 0
    made.take(Usage(3, 500, 21_000, 1), 0, 901.0, MODEL)
    assert made.last is None


def test_a_few_tokens_are_no_rewrite():
    assert ledger((20_000, 0, 0, 0.0, MODEL), (999, 19_001, 0, 1.0, MODEL)).last is None
    assert ledger((20_000, 0, 0, 0.0, MODEL), (0, 0, 0, 1.0, MODEL)).last is None


def test_a_count_that_has_the_cache_in_it_is_no_uncached_input():
    made = CacheLedger()
    made.take(Usage(20_000, 5_000, 15_000, 1), 0, 0.0, MODEL)
    assert made.use.uncached == 0


def test_counts_that_come_later_take_the_place_of_the_first():
    made = ledger((20_000, 0, 0, 0.0, MODEL))
    made.correct(Usage(3, 20_000, 0, 10), Usage(4, 21_000, 1_000, 30))
    assert made.use[:4] == (4, 21_000, 0, 1_000)
    made.take(Usage(3, 100, 22_000, 1), 0, 1.0, MODEL)
    assert made.last is None


def test_a_new_conversation_begins_with_a_first_request():
    made = ledger((20_000, 0, 0, 0.0, MODEL))
    made.begin_again()
    made.take(Usage(3, 15_000, 5_000, 1), 0, 5.0, MODEL)
    assert dict(made.use.causes)["first"][:2] == (2, 35_000)


def test_sums_add_up_and_read_as_json():
    one = ledger((20_000, 0, 0, 0.0, MODEL), (21_000, 0, 0, 400.0, MODEL)).use
    both = one.plus(one)
    assert both.rewritten == 2 * one.rewritten == 40_000
    assert both.cost == pytest.approx(2 * one.cost)
    row = both.as_dict()
    assert row["causes"]["lapsed"] == {"requests": 2, "tokens": 40_000, "cost": pytest.approx(46_000)}
    assert list(row) == ["uncached", "written_5m", "written_1h", "read", "causes", "rewritten", "cost"]


def test_newer_models_read_for_less():
    assert (read_price(MODEL), read_price("claude-opus-5-5-20261001"), read_price(None)) == (0.1, 0.05, 0.1)


@pytest.mark.parametrize(("ttl", "least"), [(SHORT, 53_261), (HOUR, 42_106)])
def test_a_compaction_pays_from_the_size_in_the_documentation(ttl, least):
    assert not pays_to_compact(least - 1, 25_000, MODEL, ttl)
    assert pays_to_compact(least, 25_000, MODEL, ttl)


def test_a_compaction_after_the_lapse_reads_at_the_price_of_writing():
    assert compaction_cost(100_000, MODEL, write=1.25) - compaction_cost(100_000, MODEL) == pytest.approx(115_000)


def row(kind, identity, usage, time, agent=None):
    message = {"id": identity, "role": kind, "model": MODEL, "content": [{"type": "text", "text": "x"}], "usage": usage}
    return {
        "type": kind,
        "uuid": identity,
        "sessionId": "s",
        "timestamp": time,
        "message": message,
        **({"agentId": agent, "isSidechain": True} if agent else {}),
    }


def test_each_agent_has_a_ledger_of_its_own():
    tracker = ContextTracker()
    creation = {"ephemeral_1h_input_tokens": 20_000, "ephemeral_5m_input_tokens": 0}
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 20_000, "cache_read_input_tokens": 0}
    usage |= {"output_tokens": 5, "cache_creation": creation}
    for number, agent in enumerate((None, "a1", None)):
        time = f"2026-05-01T1{number}:00:00Z"
        for event in READERS["transcript"](row("assistant", f"m{number}", usage, time, agent)):
            tracker.apply(event)
    assert tracker.main.cache.use[:4] == (6, 0, 40_000, 0)
    assert tracker.main.cache.last.cause == "lapsed"
    assert tracker.subagents["a1"].cache.use.written_1h == 20_000
