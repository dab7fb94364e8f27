"""Command lines taken apart without click, or left to it."""

import pytest

from mala_context.cli.plain_options import taken_apart


def apart(*arguments):
    return taken_apart(arguments, {"--all"}, {"--form", "--jobs"})


@pytest.mark.parametrize(
    ("arguments", "words", "options"),
    [
        ((), [], []),
        (("a", "b=c", ""), ["a", "b=c", ""], []),
        (("--all", "a", "--all"), ["a"], [("--all", ""), ("--all", "")]),
        (("--form", "x", "--form=y=z", "--jobs="), [], [("--form", "x"), ("--form", "y=z"), ("--jobs", "")]),
        (("--form", "--all"), [], [("--form", "--all")]),
    ],
)
def test_words_and_options_keep_their_order(arguments, words, options):
    assert apart(*arguments) == (words, options)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("-",), ("--",), ("--all=1",), ("--form",), ("a", "--jobs"), ("--fo", "x")]
)
def test_all_else_takes_click(arguments):
    assert apart(*arguments) is None


def test_a_hundred_thousand_paths_are_taken_in_order():
    paths = [f"{number}.jsonl" for number in range(100_000)]
    assert apart(*paths, "--form", "x") == (paths, [("--form", "x")])
