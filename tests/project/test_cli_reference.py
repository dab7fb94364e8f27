"""The page about the command line against the commands."""

import click

from tests.cli_reference import PAGE, page
from tests.unit.cli.test_commands import LEAVES


def test_the_page_is_the_commands_own():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/cli_reference.py"


def test_it_has_every_command_and_every_option():
    text = page()
    for words, command in LEAVES.items():
        _, found, rest = text.partition(f"# {' '.join(('mala-context', *words))}\n")
        assert found, words
        section = rest.partition("\n#")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert f"`{parameter.opts[0]}`" in section
