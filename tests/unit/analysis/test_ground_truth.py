"""What an audit writes down."""

import pickle

from mala_context.analysis.ground_truth import FORMULAS, NAMES, Findings, Observation
from mala_context.analysis.replay.record import Problem

SEEN = Observation("pre_tokens", 1_000, tuple(range(len(NAMES))), "a.jsonl", 7, "m", "2.1", None, 42)


def test_a_row_has_a_column_for_each_formula_and_for_the_truth():
    row = SEEN.as_row()
    assert (row["truth"], row["true_tokens"]) == ("pre_tokens", 1_000)
    assert [row[name] for name in NAMES] == list(range(len(NAMES)))
    assert (row["file"], row["row"], row["model"], row["version"]) == ("a.jsonl", 7, "m", "2.1")
    assert row["tokens"] == NAMES.index("tokens")  # a formula's name, and not the truth


def test_a_row_says_nothing_of_how_copies_are_told_apart():
    assert set(SEEN.as_row()) == {*NAMES, *Observation._fields, "true_tokens"} - {"estimates", "identity"}


def test_every_formula_is_held_against_the_truths_besides_our_three_numbers():
    assert {"projected", "cli_estimate", "tokens", *FORMULAS} == set(NAMES)


def test_findings_travel_between_processes():
    findings = Findings([SEEN], [Problem("a.jsonl", 3, 1, "no JSON")], 2)
    assert pickle.loads(pickle.dumps(findings)) == findings
