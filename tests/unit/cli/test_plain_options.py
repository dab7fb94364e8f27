"""Options without click: what is parsed, and what is left to click."""

import pytest

from mala_context.cli.plain_options import parsed


def parse(*arguments):
    return parsed(arguments, flags={"--totals"}, values={"--format", "--jobs"})


def test_options_stand_anywhere_and_the_last_value_counts():
    assert parse("a", "--jobs=2", "--totals", "--format", "json", "-", "--jobs", "3") == (
        {"--jobs": "3", "--totals": "", "--format": "json"},
        ["a", "-"],
    )


@pytest.mark.parametrize("argument", ["--help", "--", "-o", "--format", "--totals=1", "--other=1"])
def test_click_answers_all_else(argument):
    assert parse("a", argument) is None
