"""One battery over every formula, and each formula's own numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.estimators import (
    ESTIMATORS,
    Characters,
    Cumulative,
    Estimate,
    LastTotal,
    MaxCacheRead,
    counted,
)
from mala_context.tracking.events import TotalTokens
from mala_context.tracking.usage import Usage


def nothing() -> int:
    return 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_takes_everything(name: str) -> None:
    estimator = ESTIMATORS[name]()
    assert estimator.estimate(None, nothing).tokens is None
    estimator.counted(counted([Usage(1, 2, 3, 4)]))
    estimator.counted(counted([(Usage(1, 2, 3, 4), Usage(1, 2, 3, 5))]))
    estimator.turn(Usage(1, 2, 3, 5))
    estimator.text(100)
    estimator.total(TotalTokens(9))
    value = estimator.estimate(6, lambda: 8).tokens
    assert value is not None
    assert value > 0
    estimator.compacted(None)
    estimator.turn(None)
    assert estimator.estimate(None, nothing).tokens != 0


USAGES = st.builds(Usage, *[st.integers(0, 1 << 40)] * 4)


@given(st.lists(st.one_of(USAGES, st.tuples(USAGES, USAGES)), min_size=1, max_size=12))
def test_counts_in_a_block_come_to_what_they_do_one_by_one(counts: list[Usage | tuple[Usage, Usage]]) -> None:
    for make in (Cumulative, MaxCacheRead, LastTotal):
        at_once, one_by_one = make(), make()
        at_once.counted(counted(counts))
        for each in counts:
            one_by_one.counted(counted([each]))
        assert at_once.estimate(None, nothing) == one_by_one.estimate(None, nothing)


def test_cumulative_puts_a_turns_sums_in_the_place_of_its_responses() -> None:
    estimator = Cumulative()
    estimator.counted(counted([Usage(10, 0, 900, 1)]))
    estimator.counted(counted([(Usage(10, 0, 900, 1), Usage(10, 0, 900, 50))]))
    assert estimator.estimate(None, nothing).tokens == 60
    estimator.turn(Usage(100, 0, 1_000, 200))
    estimator.turn(Usage(50, 0, 500, 75))
    answer = estimator.estimate(None, nothing)
    assert answer.tokens == 425
    assert answer.audit == {"input_tokens": 150, "output_tokens": 275, "cache_read_tokens": 1_500}
    estimator.turn(None)
    assert estimator.estimate(None, nothing).tokens is None


def test_max_cache_read_and_its_audit() -> None:
    estimator = MaxCacheRead()
    estimator.counted(counted([Usage(3, 900, 41_000, 1)]))
    estimator.counted(counted([(Usage(3, 900, 41_000, 1), Usage(3, 900, 41_000, 512))]))
    estimator.counted(counted([Usage(5, 100, 20_000, 8)]))
    answer = estimator.estimate(None, nothing)
    assert answer.tokens == 41_000 + 8 + 520
    assert answer.audit == {
        "max_cache_read": 41_000,
        "sum_in": 8,
        "sum_out": 520,
        "sum_cache_create": 1_000,
        "primary_tokens": 41_528,
        "audit_tokens": 1_528,
        "unique_api_calls": 2,
    }


def test_total_tokens_keeps_the_last_value_on_errors() -> None:
    estimator = LastTotal()
    estimator.total(TotalTokens(None, content="12345"))
    first = estimator.estimate(None, nothing)
    assert (first.tokens, first.is_estimate, first.window) == (2, True, 128_000)
    estimator.total(TotalTokens(900))
    estimator.total(TotalTokens(None))
    answer = estimator.estimate(None, nothing)
    assert (answer.tokens, answer.is_estimate, answer.audit) == (900, False, {"messages": 3})


def test_a_stream_is_one_message() -> None:
    estimator = LastTotal()
    for event in (
        TotalTokens(None, content="ab", answer_id="1"),
        TotalTokens(7, answer_id="1"),
        TotalTokens(9, answer_id="2"),
    ):
        estimator.total(event)
    assert estimator.estimate(None, nothing).audit == {"messages": 2}


def test_characters_are_quartered_upwards() -> None:
    estimator = Characters()
    estimator.text(5)
    assert estimator.estimate(None, nothing).tokens == 2
    assert estimator.estimate(None, lambda: 4).tokens == 3
    estimator.compacted(100)
    assert estimator.estimate(None, nothing).tokens == 100


def test_characters_that_nobody_counted_are_unknown() -> None:
    estimator = Characters()
    estimator.text(5)
    assert estimator.estimate(None, lambda: None) == Estimate(None, {"chars": None}, is_estimate=True)
