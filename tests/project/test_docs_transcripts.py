"""What pages say that commands print is what they print."""

import pathlib
import re

import click
import pytest

from mala_context.cli.app import COMMANDS, app
from tests import walkthrough
from tests.helpers import doc_pages

PAGES = walkthrough.pages()
HINT = "python tests/walkthrough.py {} writes the answers of today into the page"


def played():
    """Return the pages; those on which sessions are played for seconds are left to the long run."""
    long = {"first-ten-minutes", "demo", "run", "doctor", "archives"}
    for path in PAGES:
        marks = [pytest.mark.long] if path.stem in long else []
        yield pytest.param(path, marks=marks, id=str(path.relative_to(walkthrough.DOCS)))


@pytest.mark.parametrize("path", list(played()))
def test_a_page_says_what_is_printed(path, tmp_path):
    world, said, _ = walkthrough.play(path, tmp_path)
    assert said
    for command, shown, answer in said:
        hint = HINT.format(path.stem)
        assert walkthrough.same(shown, answer, live=world.live), f"{hint}\n$ {command}\n{shown}\n--- today:\n{answer}"


def test_each_step_of_the_tutorial_answers_with_success():
    """A page that shows an error as the answer passes the comparison above, and its reader is stuck."""
    page = walkthrough.DOCS / "tutorial/first-ten-minutes.md"
    answers = [
        (command, answer)
        for block in doc_pages.read(page)
        if block.kind == "console"
        for command, answer in walkthrough.exchanges(block.body)
    ]
    assert len(answers) > 5
    assert [
        command for command, answer in answers if re.search(r"^mala-context: |Traceback", answer, re.MULTILINE)
    ] == []


def elsewhere():
    """Return what other pages say that a command prints which is the same to the letter in each run."""
    blocks = [block for block in doc_pages.of_kind("console") if not doc_pages.PLAYED.search(block.path.read_text())]
    return [
        pytest.param(command, answer, id=f"{block.id}: {command}"[:100])
        for block in blocks
        for command, answer in walkthrough.exchanges(block.body)
        if answer and command in PRINTED
    ]


PRINTED = {
    command: answer
    for block in doc_pages.of_kind("console")
    if "<!-- world: recorded -->" in block.path.read_text()
    for command, answer in walkthrough.exchanges(block.body)
}


@pytest.mark.parametrize(("command", "answer"), elsewhere())
def test_other_pages_say_the_same(command, answer):
    assert answer == PRINTED[command]


def commands():
    """Return every command, each subcommand of a group by itself."""
    context = click.Context(app)
    for name in COMMANDS:
        command = app.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {sub}" for sub in command.list_commands(click.Context(command)))
        else:
            yield name


@pytest.mark.parametrize("command", list(commands()))
def test_each_command_has_a_transcript(command):
    pages = {path.stem: path.read_text() for path in PAGES}
    page = pages[command.partition(" ")[0]]
    assert re.search(rf"^\$ (?:.*\| )?mala-context {command}\b.*\n(?!\$|```)", page, re.MULTILINE)


class TestWalkthrough:
    def test_ids_and_paths_are_the_pages_own_and_back(self, tmp_path):
        world = walkthrough.World(tmp_path)
        mine = "11111111-2222-4333-8444-555555555555"
        shown = world.known(f"{world.home}/shop/{mine} is {mine[:8]} in {str(world.home).replace('/', '-')}-shop")
        other = walkthrough.IDS[0]
        assert shown == f"/home/dev/shop/{other} is {other[:8]} in -home-dev-shop"
        assert world.real(f"show {other[:8]} /home/dev/x") == f"show {mine[:8]} {world.home}/x"

    def test_what_a_page_leaves_out(self):
        answer = "\n".join("abcdef")
        assert walkthrough.cut(answer, "a\n…\ne\nf") == "a\n…\ne\nf"
        assert walkthrough.cut(answer, "a\nb") == answer
        assert walkthrough.cut("a\nb", "a\n…\nb") == "a\nb"

    def test_other_words_are_another_answer(self):
        assert walkthrough.same("took 1.5 KB", "took 12 MB", live=True)
        assert not walkthrough.same("took 1.5 KB", "took 1.6 KB", live=False)
        assert not walkthrough.same("took 1.5 KB", "gave 1.5 KB", live=True)

    def test_commands_and_answers(self):
        found = walkthrough.exchanges("$ one \\\n  two\nfirst\nsecond\n$ three\n")
        assert list(found) == [("one \\\n  two", "first\nsecond"), ("three", "")]

    def test_a_command_that_fails_is_an_answer_too(self, tmp_path):
        world = walkthrough.World(tmp_path)
        assert world.run("mala-context replay none") == "mala-context: no such file, folder or match: none"
        assert world.run("echo hello >&2") == "hello"
        assert pathlib.Path(world.run("pwd").replace("/home/dev", str(world.home))) == world.cwd
