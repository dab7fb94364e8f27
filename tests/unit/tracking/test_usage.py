"""Counts of a response, and of a session so far."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.readers.parts import known
from mala_context.tracking.usage import TRACKING_DISABLED, ContextUsage, Usage, strangers

RAW = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 900,
    "cache_read_input_tokens": 41_000,
    "output_tokens": 7,
}


@pytest.mark.parametrize("raw", [RAW, MappingProxyType(RAW), SimpleNamespace(**RAW), Usage(3, 900, 41_000, 7)])
def test_a_mapping_an_object_and_a_usage_read_the_same(raw: Any) -> None:
    usage = Usage.parse(raw)
    assert usage == Usage(3, 900, 41_000, 7)
    assert usage.context_tokens == 41_903


@pytest.mark.parametrize("raw", [None, "x", b"x", 1, 1.5, [], [RAW]])
def test_what_is_no_usage(raw: Any) -> None:
    assert Usage.parse(raw) is None
    assert Usage.of_last_call(raw) is None


@pytest.mark.parametrize("bad", [None, -1, "7", True, float("nan"), float("inf"), [], {}])
def test_what_is_no_count_is_zero(bad: Any) -> None:
    usage = Usage.parse({**RAW, "input_tokens": bad})
    assert usage == Usage(0, 900, 41_000, 7)


def test_a_float_counts() -> None:
    usage = Usage.parse({**RAW, "input_tokens": 3.0})
    assert usage == Usage(3, 900, 41_000, 7)


@given(st.dictionaries(st.sampled_from(sorted(RAW)), st.none() | st.integers() | st.text() | st.floats()))
def test_counts_are_never_negative(raw: dict[str, Any]) -> None:
    usage = Usage.parse(raw)
    assert usage is not None
    assert min(usage) >= 0


@pytest.mark.parametrize("gone", ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"])
@pytest.mark.parametrize("name", ["cached_input_tokens", "promptTokens", "cacheRead", "input"])
def test_a_renamed_count_is_unknown_and_not_zero(gone: str, name: str) -> None:
    rest = {key: value for key, value in RAW.items() if key != gone}
    for value in (41_000, {"tokens": 41_000}):
        renamed = {**rest, name: value}
        for raw in (renamed, SimpleNamespace(**renamed)):
            assert strangers(raw) == (name,)
            assert Usage.understood(raw) is Usage.of_last_call(raw) is known(raw) is None
        later = {**RAW, "cache_read_input_tokens": 99_000, "iterations": [{**renamed, "type": "message"}]}
        assert Usage.of_last_call(later) is None


@pytest.mark.parametrize(
    "raw",
    [
        {**RAW, "cache_folded_input_tokens": 10**9},
        {"input_tokens": 41_903, "output_tokens": 7},
        {"input_tokens": 41_903, "output_tokens": 7, "cached_input_tokens": 0, "cache_deleted": None},
        {"input_tokens": 41_903, "prompt_tokens": 41_903, "prompt_tokens_details": {"cached_tokens": 41_000}},
        {"input_tokens": 41_903, "input_tokens_details": {"cached_tokens": 41_000}, "total_tokens": 41_910},
        {"input_tokens": 41_903, "service_tier": "standard", "server_tool_use": {"web_search_requests": 3}, 7: 7},
    ],
)
def test_what_is_new_beside_the_counts_changes_none(raw: dict[Any, Any]) -> None:
    assert strangers(raw) == ()
    assert Usage.of_last_call(raw) == Usage.understood(raw) == Usage.parse(raw)
    usage = known(raw)
    assert usage is not None
    assert usage.context_tokens == 41_903


def test_the_last_call() -> None:
    calls = [{**RAW, "type": "message", "output_tokens": 1}, {**RAW, "type": "message"}, {"type": "advisor"}]
    total = {**RAW, "cache_read_input_tokens": 99_000, "iterations": calls}
    assert Usage.of_last_call(total) == Usage(3, 900, 41_000, 7)
    assert Usage.of_last_call(SimpleNamespace(**total)) == Usage(3, 900, 41_000, 7)


def test_old_iterations_under_zero_counts_are_not_read() -> None:
    assert Usage.of_last_call({"input_tokens": 0, "iterations": [{**RAW, "type": "message"}]}) == Usage()


@pytest.mark.parametrize(
    ("turns", "sums"),
    [
        ([(100, 200, 1000), (50, 75, 500)], (150, 275, 1500)),
        ([(500, 1000, 10_000), (600, 1200, 20_000)], (1100, 2200, 30_000)),
        ([(-5, -1, -9), (5, 1, 9)], (5, 1, 9)),
    ],
)
def test_turns_add_up(turns: list[tuple[int, int, int]], sums: tuple[int, int, int]) -> None:
    ledger = ContextUsage()
    for turn in turns:
        ledger.add_turn(input_tokens=turn[0], output_tokens=turn[1], cache_read_tokens=turn[2])
    assert (ledger.input_tokens, ledger.output_tokens, ledger.cache_read_tokens) == sums


@pytest.mark.parametrize(
    ("counts", "limit", "ratio"),
    [
        ((1000, 2000, 1_000_000), 10_000, 0.3),
        ((487, 5880, 1_432_262), 200_000, 0.031835),
        ((300, 300, 0), 500, 1.2),
        ((100, -50, 0), 1000, 0.1),
        ((1, 1, 0), 0, 0.0),
        ((1, 1, 0), -1, 0.0),
    ],
)
def test_pressure(counts: tuple[int, int, int], limit: int, ratio: float) -> None:
    assert ContextUsage(*counts).pressure_ratio(limit) == pytest.approx(ratio)


def test_a_disabled_ledger() -> None:
    ledger = ContextUsage(1, 2, 3)
    ledger.disable_tracking()
    ledger.add_turn(input_tokens=9, output_tokens=9)
    assert ledger.input_tokens == TRACKING_DISABLED
    assert not ledger.is_tracking_enabled()
    assert (ledger.tracking_disabled, ledger.disabled) == (True, True)
    assert ledger.pressure_ratio(10) == 0.0
    ledger.reset()
    assert (ledger.input_tokens, ledger.output_tokens, ledger.cache_read_tokens) == (TRACKING_DISABLED, 0, 0)
    ledger.enable_tracking()
    ledger.add_turn(input_tokens=9, output_tokens=8)
    assert (ledger.input_tokens, ledger.output_tokens) == (9, 8)


def test_an_enabled_ledger() -> None:
    ledger = ContextUsage(1, 2, 3)
    ledger.enable_tracking()
    assert (ledger.tracking_disabled, ledger.disabled) == (False, False)
    assert ledger.input_tokens == 1
    ledger.reset()
    assert ledger == ContextUsage()


@pytest.mark.parametrize("value", [1 << 50, 10**19, 1e300, float("inf"), -1])
def test_what_is_too_large_was_no_count(value):
    raw = {"input_tokens": 7, "cache_read_input_tokens": value, "output_tokens": 1}
    assert Usage.parse(raw) == Usage(7, 0, 0, 1)
    assert known({**raw, "cache_creation_input_tokens": 0}) == Usage(7, 0, 0, 1)


CALL = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 76_000, "input_tokens": 3, "output_tokens": 12_000}
DECLINED = {**CALL, "cache_creation_input_tokens": 9_500, "cache_read_input_tokens": 71_000, "output_tokens": 500}


@pytest.mark.parametrize("kind", ["fallback_message", "message", "a type of tomorrow", None])
def test_the_call_that_served_is_the_last_one_whatever_its_type_is_called(kind: str | None) -> None:
    """Case core-20: a declined call comes first, and the top level has the counts of the one that served."""
    calls = [{"type": "message", **DECLINED}, {"type": kind, **CALL}]
    usage = Usage.of_last_call({**CALL, "iterations": calls})
    assert usage == Usage(3, 0, 76_000, 12_000)


@pytest.mark.parametrize(("kind", "size"), [("fallback_message", 76_003), ("advisor_message", 80_503), ("x", 80_503)])
def test_where_the_top_level_is_a_sum_the_last_call_of_the_agents_own_model_counts(kind: str, size: int) -> None:
    total = {name: CALL[name] + DECLINED[name] for name in CALL}
    usage = Usage.of_last_call({**total, "iterations": [{"type": "message", **DECLINED}, {"type": kind, **CALL}]})
    assert usage is not None
    assert usage.context_tokens == size


@pytest.mark.parametrize(
    ("counts", "twice", "tokens"),
    [
        ((120_000, 20_000, 100_000), True, 120_000),
        ((121_300, 1_300, 120_000), True, 121_300),
        ((120_001, 20_000, 100_000), False, 240_001),
        ((300, 200, 100), False, 600),
        ((0, 0, 0), False, 0),
    ],
)
def test_an_input_that_has_the_cache_in_it(counts: tuple[int, int, int], twice: bool, tokens: int) -> None:
    """Case core-23: some proxies send the whole prompt as the input."""
    usage = Usage(*counts, 700)
    assert (usage.counts_cache_twice, usage.context_tokens) == (twice, tokens)


@pytest.mark.parametrize("count", [2**50, 2**1024, 10**400])
@pytest.mark.parametrize("limit", [1, 200_000, 10**400])
def test_no_count_is_too_large_for_the_pressure(count: int, limit: int) -> None:
    usage = ContextUsage()
    usage.add_turn(input_tokens=count, output_tokens=count)
    assert usage.pressure_ratio(limit) == 2**51 / limit
    usage.input_tokens = float("inf")  # type: ignore[assignment] # whatever a caller counts
    assert usage.pressure_ratio(limit) == 2**51 / limit
