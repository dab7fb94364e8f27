"""Fit on one half, test on the other."""

import itertools

import pytest

from mala_context.analysis.cross_validation import START, Sample, fit, held_out, predict
from tests.benchmarks import corpus

TABLE = (0.3, 0.9, 0.5, 0.1, 1.2, 0.8, *START[6:12], 20.0, 7.0, 11.0, 30.0)


def samples(table, count=300):
    made = []
    for number in range(count):
        row = [float(number * factor % 97 * 10) for factor in (31, 7, 13, 17, 3, 5)] + [0.0] * 10
        constants = [0.0] * 12 + [1.0, float(number % 4), float(number % 3), float(number % 5)]
        known = 50_000.0 + number
        truth = known + sum(a * b for a, b in zip(map(sum, zip(row, constants, strict=True)), table, strict=True))
        features = {"": constants, "Read": row}
        made.append(
            Sample(
                "p",
                ("f", ""),
                "classic",
                known,
                features,
                learns=True,
                truth=round(truth),
                quarter=1,
                shipped=1,
                thought=None,
            )
        )
    return made


def test_a_fit_finds_the_table_behind_the_samples():
    assert fit(samples(TABLE)) == pytest.approx(TABLE, rel=0.1)


def test_a_few_wild_samples_do_not_move_it():
    wild = [each._replace(truth=each.truth + 8_000) for each in samples(TABLE)[:20]]
    assert fit([*wild, *samples(TABLE)[20:]]) == pytest.approx(TABLE, rel=0.15)


def test_nothing_to_fit_gives_the_start():
    assert fit([]) == START


def test_what_a_half_lacks_keeps_its_sensible_value():
    without = [each._replace(features={"": each.features[""]}, truth=round(each.known + 15)) for each in samples(TABLE)]
    assert fit(without)[4] == pytest.approx(START[4], rel=0.01)


def test_ratios_are_learned_within_a_thread_and_not_beyond():
    real = tuple(value * 1.5 for value in TABLE)
    learning = [
        each._replace(learns=True, thread=(str(number // 150), "")) for number, each in enumerate(samples(real))
    ]
    errors = [abs(error) for error in predict(learning, {"classic": TABLE})]
    assert max(errors[140:149]) < 0.5 * max(errors[1:10])
    assert errors[150] > 2 * errors[149] or errors[151] > 2 * errors[149]


def test_both_halves_are_reported_for_any_number_of_jobs(tmp_path):
    corpus.write(str(tmp_path), 3, seed=2)
    report = held_out([str(tmp_path)], jobs=1)
    assert report == held_out([str(tmp_path)], jobs=2)
    assert list(report) == ["half 1, fitted on the other", "half 2, fitted on the other"]
    for half in report.values():
        assert list(half) == ["fitted", "projected", "chars/4"]
    counts = [half["fitted"]["n"] for half in report.values()]
    assert all(counts)
    assert list(itertools.chain(counts)) == [half["chars/4"]["n"] for half in report.values()]
