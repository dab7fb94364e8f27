"""The status of an OpenAI-compatible conversation, without a server."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.events import TotalTokens
from mala_context.tracking.openai import OpenAIStatus, openai_status
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


def test_another_estimator_has_none():
    with pytest.raises(ValueError, match="'occupancy'"):
        openai_status(ContextTracker())
