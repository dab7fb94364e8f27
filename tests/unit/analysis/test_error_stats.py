"""Observations into tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.analysis.error_stats import BEST, errors, percentile, spread, summarise
from mala_context.analysis.ground_truth import NAMES, TRUTHS, Findings, Observation


def observation(truth, true, /, *, row=1, model="m", version="2", parent_missing=None, **estimates):
    said = tuple(estimates.get(name) for name in NAMES)
    return Observation(truth, true, said, "a.jsonl", row, model, version, parent_missing, row)


@pytest.mark.parametrize(
    ("values", "share", "wanted"),
    [([1.0], 0.99, 1.0), ([1.0, 3.0], 0.5, 2.0), ([0.0, 1.0, 2.0, 3.0, 4.0], 0.9, 3.6), ([1.0, 2.0], 1.0, 2.0)],
)
def test_percentiles_lie_between_values(values, share, wanted):
    assert percentile(values, share) == pytest.approx(wanted)


def test_a_spread_has_sizes_and_the_mean_with_its_sign():
    found = spread([-0.1, 0.3])
    assert (found["n"], found["median"], found["max"], found["bias"]) == (2, 0.2, 0.3, 0.1)


def test_a_spread_of_nothing_knows_nothing():
    assert spread([]) == {"n": 0, "median": None, "p90": None, "p99": None, "max": None, "bias": None}


@given(st.lists(st.floats(-10, 10), min_size=1))
def test_a_spread_is_in_order_and_within_what_it_is_of(values):
    found = spread(values)
    assert 0 <= found["median"] <= found["p90"] <= found["p99"] <= found["max"] <= 10
    assert found["max"] == pytest.approx(max(map(abs, values)), abs=1e-6)
    assert abs(found["bias"]) <= found["max"] + 1e-6


def test_an_error_is_a_share_of_the_truth_where_something_was_said():
    some = [observation("pre_tokens", 200, tokens=150), observation("pre_tokens", 100), observation("x", 50, tokens=60)]
    assert errors(some, "tokens") == [-0.25, 0.2]


def test_the_tables_group_by_truth_model_and_version_by_what_is_meant_for_the_truth():
    found = Findings(
        [
            observation("pre_tokens", 100, cli_estimate=110, tokens=50, parent_missing=False),
            observation("pre_tokens", 100, cli_estimate=100, model=None, version="3", parent_missing=True),
        ],
        [],
        4,
    )
    report = summarise(found)
    assert report["truths"]["pre_tokens"]["n"] == 2
    assert report["truths"]["pre_tokens"]["parent_there"]["n"] == 1
    assert report["truths"]["pre_tokens"]["estimators"]["tokens"]["median"] == 0.5
    assert report["truths"]["next_prompt"]["left_out"] == 4
    assert {name: each["max"] for name, each in report["by_model"]["pre_tokens"].items()} == {"m": 0.1, "unknown": 0.0}
    assert {name: each["n"] for name, each in report["by_version"]["pre_tokens"].items()} == {"2": 1, "3": 1}
    assert report["by_model"]["next_prompt"] == {}


def test_the_worst_come_first_and_no_more_than_were_asked_for():
    sizes = {1: 120, 2: 90, 3: 101, 4: None}
    some = [observation("pre_tokens", 100, row=row, cli_estimate=said) for row, said in sizes.items()]
    worst = summarise(Findings(some, [], 0), worst=3)["worst"]["pre_tokens"]
    assert [(each["row"], each["error"]) for each in worst] == [(1, 0.2), (2, -0.1), (3, 0.01)]
    assert summarise(Findings(some, [], 0))["worst"]["pre_tokens"][-1]["error"] == 0.0


def test_each_truth_has_a_number_that_is_meant_for_it():
    assert set(BEST) == set(TRUTHS)
    assert set(BEST.values()) <= set(NAMES)


def test_groups_by_parent_and_by_the_clis_age():
    found = [
        observation("pre_tokens", 100, cli_estimate=110, parent_missing=False, version="2.1.89"),
        observation("pre_tokens", 100, cli_estimate=101, parent_missing=True, version="2.1.90", row=2),
        observation("pre_tokens", 100, cli_estimate=100, version="2.2.0-beta", row=3),
        observation("pre_tokens", 100, cli_estimate=100, version="2.10", row=4),
    ]
    report = summarise(Findings(found, [], 0))
    by_parent, by_cli = report["by_parent"]["pre_tokens"], report["by_cli"]["pre_tokens"]
    assert {name: each["n"] for name, each in by_parent.items()} == {"missing": 1, "present": 1, "unknown": 2}
    assert by_parent["present"]["max"] == 0.1
    assert {name: each["n"] for name, each in by_cli.items()} == {
        "2.1.90 and later": 2,
        "before 2.1.90": 1,
        "unknown": 1,
    }


def test_a_pre_tokens_that_measures_nothing_is_counted_apart():
    """Case core-33: 30,029 were measured, and the CLI wrote 190,400."""
    found = [observation("pre_tokens", 190_400, cli_estimate=30_029), observation("pre_tokens", 100, cli_estimate=101)]
    table = summarise(Findings(found, [], 0))["truths"]["pre_tokens"]
    assert (table["n"], table["estimators"]["cli_estimate"]["max"]) == (1, 0.01)
    assert (table["apart"]["n"], table["apart"]["cases"][0]["truth"]) == (1, 190_400)
