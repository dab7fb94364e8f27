"""What a hook is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.hook_inputs import text_in, texts_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(JSON)
def test_a_text_is_one_or_nothing(value):
    assert text_in({"cwd": value}, "cwd") == (value if isinstance(value, str) and value != "" else None)


@pytest.mark.parametrize("given", [{}, {"cwd": None}, {"cwd": ""}, {"cwd": ["/x"]}])
def test_what_is_missing_empty_or_no_text_is_nothing(given):
    assert text_in(given, "cwd") is None


def test_several_come_in_their_order():
    assert texts_in({"cwd": "/x", "session_id": 3, "agent_id": "a"}, "agent_id", "session_id", "cwd") == [
        "a",
        None,
        "/x",
    ]
