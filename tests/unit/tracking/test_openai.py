"""The status of an OpenAI-compatible conversation, without a server."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.events import TotalTokens
from mala_context.tracking.openai import OpenAIStatus, openai_status
from mala_context.tracking.readers import read_openai
from mala_context.tracking.tracker import ContextTracker


def test_before_any_answer():
    assert openai_status(ContextTracker(estimator="total_tokens")) == OpenAIStatus(None, 128_000, 0, is_estimate=True)
    assert openai_status(ContextTracker(estimator="total_tokens", window=9)).max_tokens == 9


@given(st.lists(st.none() | st.integers(0, 300_000), min_size=1), st.integers(1, 200_000))
def test_it_follows_the_last_total(totals, window):
    tracker = ContextTracker(estimator="total_tokens", window=window)
    for number, total in enumerate(totals):
        tracker.apply(TotalTokens(total, answer_id=str(number)))
    now = openai_status(tracker)
    last = next((total for total in reversed(totals) if total is not None), None)
    assert (now.tokens, now.max_tokens, now.messages, now.is_estimate) == (last, window, len(totals), last is None)
    assert now.wants_compaction == (last is not None and last / window >= 0.9)
    assert json.loads(json.dumps(now.as_dict()))["messages"] == len(totals)


def test_a_total_of_zero_is_no_count():
    """Case core-35: a truthy total counts; the sum of its parts where it is zero; else the last one stays."""
    tracker = ContextTracker(estimator="total_tokens")
    seen = []
    for usage in (
        {"total_tokens": 82},
        {"total_tokens": 0, "prompt_tokens": 0},
        {"total_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0},
        {"total_tokens": 0, "prompt_tokens": 50, "completion_tokens": 7},
    ):
        for event in read_openai({"usage": usage}):
            tracker.apply(event)
        seen.append(openai_status(tracker).tokens)
    assert seen == [82, 82, 82, 57]


def test_a_server_of_zeros_is_estimated_by_its_text():
    tracker = ContextTracker(estimator="total_tokens")
    for event in read_openai({"usage": {"total_tokens": 0}, "choices": [{"message": {"content": "x" * 41}}]}):
        tracker.apply(event)
    assert openai_status(tracker)[:4] == (11, 128_000, 1, True)


def test_another_estimator_has_none():
    with pytest.raises(ValueError, match="'occupancy'"):
        openai_status(ContextTracker())
