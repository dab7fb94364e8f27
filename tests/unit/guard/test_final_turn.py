"""A final turn while it goes on."""

import pytest

from mala_context.guard import FinalGate
from mala_context.guard.final_turn import MOST_AT_ONCE, FinalTurnProgress

FINISHING = ("Write",)


@pytest.fixture
def turn():
    return FinalTurnProgress(FinalGate(FINISHING), "s1", 0.95)


def ask(turn, *tools, response="r1"):
    return [turn.ask(tool, {}, response).action for tool in tools]


def test_a_turn_in_which_work_was_saved_lacks_nothing(turn):
    assert ask(turn, "Write") == ["allow"]
    assert (turn.session_id, turn.ratio, turn.denied, turn.stopped) == ("s1", 0.95, 0, False)
    assert turn.missing == ()


def test_tools_that_one_response_asks_for_count_as_one_denial(turn):
    assert set(ask(turn, *["Bash"] * 5)) == {"deny"}
    assert turn.gate.denials == 1
    assert turn.denied == 5
    assert turn.missing == ("saved work",)


def test_responses_that_go_on_asking_are_stopped(turn):
    said = [ask(turn, "Bash", response=f"r{number}")[0] for number in range(10)]
    assert said[0] == "deny"
    assert "stop" in said
    assert turn.stopped
    assert turn.missing == ("saved work", "final answer")


def test_another_batch_of_the_same_response_is_another_denial(turn):
    ask(turn, "Bash")
    turn.batches += 1
    ask(turn, "Bash")
    assert turn.gate.denials == 2


def test_nobody_goes_on_for_ever_within_one_response(turn):
    said = ask(turn, *["Bash"] * (MOST_AT_ONCE + 20))
    assert set(said[:MOST_AT_ONCE]) == {"deny"}
    assert "stop" in said


def test_a_new_prompt_begins_to_count_anew(turn):
    for number in range(10):
        ask(turn, "Bash", response=f"r{number}")
    turn.told = True
    turn.new_prompt()
    assert ask(turn, "Bash") == ["deny"]
    assert (turn.told, turn.stopped, turn.denied) == (False, False, 1)
