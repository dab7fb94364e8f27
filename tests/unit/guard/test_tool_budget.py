"""Reservations under the lock, on asyncio and on trio."""

import base64
import random

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.guard import ContextGuard, TargetContextConfig, cap_text, estimate_tokens
from mala_context.guard.tool_budget import TOKEN_BUDGET_EXCEEDED, ToolBudget


def guard_with(limit, current=0, **kwargs):
    return ContextGuard([TargetContextConfig(provider="p", model="m", window=limit + 256)], current=current, **kwargs)


def tokens(count):
    return "x" * (4 * count)


def on_both(function):
    return [anyio.run(function, backend=backend) for backend in ("asyncio", "trio")]


async def test_a_rejection_changes_no_counter():
    events = []
    guard = guard_with(1000, 400, on_event=events.append)
    budget = ToolBudget(guard)
    results, can_execute = [], []
    for count in (300, 500, 200):
        ok, size, reason = await budget.reserve(tokens(count))
        assert size == count
        assert reason == (None if ok else TOKEN_BUDGET_EXCEEDED)
        results.append(ok)
        can_execute.append(budget.can_execute)
    assert results == [True, False, True]
    assert can_execute == [True, False, False]
    assert guard.new == 500
    assert [event.fields["trigger"] for event in events] == ["tool_preflight"]
    assert not events[0].fields["still_over"]
    assert guard.final_reason == "context"


async def test_the_final_turn_is_asked_for_once():
    events = []
    budget = ToolBudget(guard_with(10, on_event=events.append))
    for _ in range(5):
        assert not (await budget.reserve(tokens(11))).ok
    assert [event.fields["outcome"] for event in events] == ["forced_final"]


async def test_equal_passes():
    budget = ToolBudget(guard_with(10))
    assert (await budget.reserve(tokens(10))).ok
    assert (await budget.reserve("")).ok
    assert not (await budget.reserve("x")).ok


@pytest.mark.parametrize("opening", ["commit", "reset", "guard"])
async def test_commit_compaction_and_reset_open_it_again(opening):
    guard = guard_with(10)
    budget = ToolBudget(guard)
    await budget.reserve(tokens(11))
    assert not budget.can_execute
    if opening == "commit":
        await budget.commit(5)
    elif opening == "reset":
        await budget.reset(5)
    else:
        guard.reset(5)
    assert budget.can_execute
    assert guard.current == 5
    assert (await budget.reserve(tokens(5))).ok


async def test_a_small_target_does_not_close_the_budget():
    targets = [TargetContextConfig(provider="p", model=str(size), window=size + 256) for size in (10, 100)]
    budget = ToolBudget(ContextGuard(targets))
    assert (await budget.reserve(tokens(50))).ok
    assert budget.can_execute


async def test_capped_before_it_is_reserved():
    guard = guard_with(1000)
    budget = ToolBudget(guard, tool_output_tokens=100)
    reservation, seen = await budget.fit(tokens(5000), "/full.txt")
    assert reservation == (True, estimate_tokens(seen), None)
    assert guard.new == estimate_tokens(seen) <= 100
    assert "/full.txt" in seen
    assert (await budget.reserve(tokens(5000))).tokens <= 100


async def test_auto_takes_half_of_what_is_left():
    guard = guard_with(1000)
    budget = ToolBudget(guard, tool_output_tokens="auto")
    sizes = []
    while budget.can_execute:
        reservation, seen = await budget.fit(tokens(100_000))
        if reservation.ok:
            sizes.append(reservation.tokens)
        else:
            assert seen == ""
    assert sizes[:4] == [500, 250, 125, 62]
    assert sum(sizes) == guard.new <= 1000


async def test_a_count_of_ones_own():
    budget = ToolBudget(guard_with(10), count=len)
    assert (await budget.reserve("0123456789")) == (True, 10, None)


def test_debug_topic():
    async def main():
        records = []
        budget = ToolBudget(guard_with(10, on_debug=records.append))
        await budget.reserve(tokens(5))
        await budget.reserve(tokens(50))
        return [record.fields["ok"] for record in records if record.name == "context-guard/tool-eval"]

    assert on_both(main) == [[True, False]] * 2


STEPS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4)), min_size=1, max_size=30)


class TestInterleavings:
    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    @settings(max_examples=40, deadline=None)
    @given(steps=STEPS, cap=st.sampled_from([None, 100, "auto"]), commits=st.sets(st.integers(0, 29), max_size=3))
    def test_overlapping_reservations_never_exceed_the_budget(self, backend, steps, cap, commits):
        """Each task yields to the others a drawn number of times before it reserves; commits come in between."""
        limit = 1000
        guard = guard_with(limit)
        budget = ToolBudget(guard, tool_output_tokens=cap)
        granted, refused = [], []

        async def task(number, size, pauses):
            for _ in range(pauses):
                await anyio.lowlevel.checkpoint()
            reservation, seen = await budget.fit(tokens(size))
            assert guard.projected <= limit
            (granted if reservation.ok else refused).append((number, reservation.tokens))
            assert reservation.tokens == estimate_tokens(seen) or not reservation.ok
            if number in commits:
                await budget.commit()

        async def main():
            async with anyio.create_task_group() as group:
                for number, (size, pauses) in enumerate(steps):
                    group.start_soon(task, number, size, pauses)

        anyio.run(main, backend=backend)
        assert sorted(number for number, _ in granted + refused) == list(range(len(steps)))
        assert guard.current + guard.new == sum(size for _, size in granted) <= limit
        assert bool(refused) == (guard.final_reason == "context")

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_200_results_of_random_size(self, backend):
        sizes = [(number * 7919) % 3000 for number in range(200)]
        guard = guard_with(50_000)
        budget = ToolBudget(guard, tool_output_tokens="auto")
        kept = {}

        async def task(number, size):
            full = tokens(size)
            kept[number] = full
            await budget.fit(full, f"/spill/{number}")
            assert guard.projected <= 50_000

        async def main():
            async with anyio.create_task_group() as group:
                for number, size in enumerate(sizes):
                    group.start_soon(task, number, size)

        anyio.run(main, backend=backend)
        assert len(kept) == 200
        assert 40_000 < guard.new <= 50_000


async def test_a_text_may_have_a_cap_and_a_count_of_its_own():
    budget = ToolBudget(guard_with(10_000), tool_output_tokens=1_000)
    reservation, seen = await budget.fit(tokens(5_000), "/full", most=200)
    assert reservation.tokens == estimate_tokens(seen) <= 200
    reservation, seen = await budget.fit(tokens(5_000), "/full", most=2_000)
    assert 990 <= reservation.tokens <= 1_000
    reservation, seen = await budget.fit(tokens(900), "/full", count=lambda text: 2 * estimate_tokens(text))
    assert reservation.tokens == 2 * estimate_tokens(seen) <= 1_000
    assert (await ToolBudget(guard_with(10_000)).fit(tokens(500), "/full", most=100))[0].tokens <= 100


async def test_what_cannot_even_be_named_is_refused_where_that_is_asked_for():
    where = "/a/long/path" * 10
    for named in (False, True):
        guard = guard_with(40)
        budget = ToolBudget(guard, tool_output_tokens="auto")
        reservation, seen = await budget.fit(tokens(500), where, named=named)
        assert reservation.ok is not named
        assert (guard.new == 0) is named
        assert (seen == "") is named
    assert (await ToolBudget(guard_with(40)).fit(tokens(30), where, named=True))[0].ok


def test_random_characters_count_one_each():
    """Case core-26: a cap of 20,000 tokens kept 80,000 characters of base64, which cost as many tokens."""
    run = base64.b64encode(random.Random(3).randbytes(300_000)).decode()
    assert estimate_tokens(run) == len(run) == 400_000
    assert estimate_tokens(f"word {run} word") == len(run) + 3
    kept = cap_text(run, 20_000)
    assert 19_000 < len(kept) < 20_200


@pytest.mark.parametrize("cap", [0, -1, True, 1.5, "1000", "none", [], {}])
def test_a_cap_that_is_no_number_is_said_at_once(cap):
    with pytest.raises(ValueError, match=r"tool_output_tokens is .*: a positive number of tokens, 'auto' or None"):
        ToolBudget(guard_with(1_000), tool_output_tokens=cap)


async def test_a_context_of_400_digits_is_refused_and_logged():
    guard = guard_with(1_000)
    guard.current = 10**400
    assert not (await ToolBudget(guard).reserve("text")).ok
    assert guard.log_fields()["context_pct"] > 10**6


@pytest.mark.parametrize("answer", [float("nan"), -1, 3.5, None])
async def test_a_count_that_is_none_takes_no_room_and_forces_nothing(answer):
    guard = guard_with(1_000)
    budget = ToolBudget(guard, count=lambda text: answer)
    with pytest.raises(ValueError, match="wanted a whole number of tokens"):
        await budget.reserve("text")
    assert (guard.new, guard.final_reason, budget.can_execute) == (0, None, True)
    assert (await ToolBudget(guard).reserve("text")).ok
