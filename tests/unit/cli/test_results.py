"""What a result says of a turn that went wrong, on any SDK."""

from types import SimpleNamespace

import pytest

from mala_context.cli.results import terminal_reason, why_failed
from tests.helpers import sdk_messages


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"result": "Prompt is too long", "terminal_reason": "prompt_too_long", "errors": ["a"]}, "Prompt is too long"),
        ({"errors": ["a", 7], "terminal_reason": "model_error"}, "a; 7"),
        ({"terminal_reason": "model_error"}, "model_error"),
        ({"subtype": "error_during_execution"}, "error_during_execution"),
    ],
)
def test_the_first_words_that_there_are(fields, words):
    assert why_failed(sdk_messages.result(is_error=True, **fields)) == words


def test_an_sdk_without_the_fields():
    old = SimpleNamespace(result=None, subtype="error_max_turns")
    assert terminal_reason(old) is None
    assert why_failed(old) == "error_max_turns"


def test_the_reason():
    assert terminal_reason(sdk_messages.result(terminal_reason="completed")) == "completed"
    assert terminal_reason(sdk_messages.result()) is None
    assert terminal_reason(None) is None
