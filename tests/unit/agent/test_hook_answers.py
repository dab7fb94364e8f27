"""What a hook answers the CLI; `tests/e2e/` shows that the CLI does what these say."""

import json

from hypothesis import given
from hypothesis import strategies as st

from mala_context.agent.hook_answers import denied, merged, replaced, stopped, told

WORDS = st.text(min_size=1, max_size=10)


def words(*texts):
    return told("PostToolUse", "\n\n".join(texts))


def test_each_shape():
    assert told("Stop", "x") == {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x"}}
    assert denied("why") == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "why",
        }
    }
    assert replaced([1]) == {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": [1]}}
    assert stopped("why") == {"continue_": False, "stopReason": "why"}


def test_nothing_to_say_is_an_empty_answer():
    assert merged([]) == merged([None, {}, None]) == {}


def test_a_result_and_words_go_together():
    both = merged([words("one"), replaced([1])])["hookSpecificOutput"]
    assert both == {"hookEventName": "PostToolUse", "additionalContext": "one", "updatedToolOutput": [1]}
    assert merged([stopped("why"), words("one")]) == {**stopped("why"), **words("one")}


@given(st.lists(st.one_of(st.none(), WORDS)))
def test_no_words_are_lost_and_none_of_the_answers_is_changed(said):
    answers = [None if text is None else words(text) for text in said]
    before = json.dumps(answers)
    texts = [text for text in said if text is not None]
    assert merged(answers) == (words(*texts) if texts else {})
    assert json.dumps(answers) == before
