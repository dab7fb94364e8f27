"""What the requests of a simulated course would have cost."""

import pytest

from mala_context.analysis.cost import Costs, PricedRequest
from mala_context.tracking.usage import Usage

OUT = 10 * 5


def request(written, read, lost=0, held=0, fresh=0, hour=0):
    usage = Usage(fresh, written, read, 10)
    return PricedRequest(usage.context_tokens, usage, hour, lost, held, cold=False, window=200_000)


def both(*steps):
    """Costs after steps: a request, the simulated size, whether equal, and what the cache has after a break."""
    costs = Costs()
    for given, size, equal, broken in steps:
        costs.request(given, size, equal=equal, broken=broken)
    return costs


FIRST = (request(20_000, 0), 20_000, True, None)


def test_equal_courses_cost_the_same_to_the_token():
    costs = both(FIRST, (request(777, 20_000, fresh=3, hour=777), 20_780, True, None))
    assert costs.recorded == costs.simulated == 20_000 * 1.25 + OUT + 3 + 777 * 2 + 2_000 + OUT


def test_a_smaller_context_reads_less_from_the_cache():
    costs = both(FIRST, (request(500, 20_000, held=20_000), 10_500, False, 10_000))
    costs.request(request(100, 20_500, held=20_500), 10_600, equal=False, broken=None)
    after_break = 10_000 * 0.1 + 500 * 1.25 + OUT
    assert costs.simulated == pytest.approx(20_000 * 1.25 + OUT + after_break + 10_500 * 0.1 + 100 * 1.25 + OUT)


def test_a_lapse_makes_the_simulated_one_write_all_of_its_context():
    costs = both(FIRST, (request(500, 20_000, held=20_000), 10_500, False, 10_000))
    before = costs.simulated
    costs.request(request(20_600, 0, lost=20_500, held=20_500), 10_600, equal=False, broken=None)
    assert costs.simulated - before == pytest.approx(10_600 * 1.25 + OUT)


def test_without_a_cache_all_is_uncached():
    costs = both((request(0, 0, fresh=20_000), 20_000, True, None), (request(0, 0, fresh=21_000), 11_000, False, None))
    assert costs.simulated == 20_000 + OUT + 11_000 + OUT


def test_a_compaction_that_asks_no_model_is_free():
    costs = Costs()
    costs.compacted(100_000, None, free=True)
    assert costs.simulated == 0
    costs.recorded_compaction(100_000, None)
    costs.compacted(100_000, None)
    assert costs.recorded == costs.simulated == 10_000 + 6_000 * 5
