"""Scenarios without the CLI: what their agent asks for, and how large."""

import os

import pytest

from mala_context.testing.requests import Request
from mala_context.testing.scripts import CLI_RESERVE, RESULT_CHARACTERS, fill_until_compaction


def first(tokens):
    return Request(
        number=1, kind="main", path="", headers={}, body={}, time=0.0, id="req", received_tokens=tokens, tokens=tokens
    )


def asked_for(reply):
    """Return how many characters of log a reply asks to see."""
    commands = [one["input"]["command"] for one in reply.content if one["name"] == "Bash"]
    parts = [int(command.split()[2]) for command in commands]
    assert all(part <= RESULT_CHARACTERS for part in parts)
    return sum(parts)


def test_a_turn_is_a_look_a_note_and_a_word(tmp_path):
    scenario = fill_until_compaction(tmp_path, window=50_000, turns=3, chars_per_token=2.0)
    look, note, word = (scenario.script(first(20_000)) for _ in range(3))
    assert look.content[0]["input"]["file_path"] == os.path.join(tmp_path, "src", "part_01.py")
    assert os.path.isfile(look.content[0]["input"]["file_path"])
    assert note.content[0]["name"] == "Write"
    assert word.content[0]["text"].startswith("Turn 1 is done")
    assert scenario.script(first(20_000)).content[0]["input"]["file_path"].endswith("part_02.py")
    assert len(scenario.prompts) == 3


@pytest.mark.parametrize("turns", [2, 3, 8, 20])
@pytest.mark.parametrize("rate", [0.5, 3.0])
@pytest.mark.parametrize("proactive", [False, True])
def test_the_context_fills_in_two_thirds_of_the_turns(tmp_path, turns, rate, proactive):
    scenario = fill_until_compaction(tmp_path, window=200_000, turns=turns, chars_per_token=rate, proactive=proactive)
    limit = 200_000 - (CLI_RESERVE if proactive else 0)
    gained = asked_for(scenario.script(first(30_000))) / rate
    full_after = (limit - 30_000) / gained
    assert full_after < turns
    assert abs(full_after - turns * 2 / 3) <= 1


def test_the_log_is_long_enough_for_one_look(tmp_path):
    fill_until_compaction(tmp_path, turns=2)
    assert os.path.getsize(tmp_path / "logs" / "service.log") >= RESULT_CHARACTERS


def test_reactive_and_proactive_are_set_up_apart(tmp_path):
    reactive = fill_until_compaction(tmp_path, window=60_000)
    proactive = fill_until_compaction(tmp_path, window=150_000, proactive=True)
    assert (reactive.settings["window"], dict(reactive.env)) == (60_000, {})
    assert proactive.settings["window"] is None
    assert proactive.env == {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"}


def test_the_api_takes_changes(tmp_path):
    scenario = fill_until_compaction(tmp_path, window=60_000)
    assert scenario.api().window == 60_000
    assert scenario.api(window=None, usage_in="delta").window is None


@pytest.mark.parametrize("wrong", [{"turns": 1}, {"window": 99_999, "proactive": True}])
def test_what_cannot_work_is_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"at least 2|below 100,000"):
        fill_until_compaction(tmp_path, **wrong)
