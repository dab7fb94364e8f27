"""Pages, help, docstrings, comments and log lines use the plain word: after, fix, again, no program."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PLACES = ("mala_context", "docs", "examples", "plugin", "commands", "hooks", "*.md")
ENDINGS = {".py", ".c", ".h", ".md", ".json", ".yaml"}
WORDS = re.compile(r"\b(behind|nobody|so\s+many|mend(?:s|ed|ing)?|afresh|anew|likewise)\b", re.IGNORECASE)
LITERAL = {
    ("mala_context/archive/writer.py", "leaves no file behind"),
    ("CHANGELOG.md", "`fix` and `commands` instead of `mend`"),
    ("CHANGELOG.md", "has `fixed`, not `mended`"),
}
"""What is meant literally, by file, and the words around it."""


def found(text, name):
    for _, phrase in (each for each in LITERAL if each[0] == name):
        text = text.replace(phrase, "")
    return [match.group() for match in WORDS.finditer(text)]


def pages():
    for place in PLACES:
        for path in ROOT.glob(place):
            yield from (each for each in ([path] if path.is_file() else path.rglob("*")) if each.suffix in ENDINGS)


def test_no_page_or_module_uses_a_word_that_must_be_read_twice():
    names = [path.relative_to(ROOT).as_posix() for path in pages()]
    assert len(names) > 300
    assert [(name, words) for name in names if (words := found((ROOT / name).read_text(), name))] == []


@pytest.mark.parametrize("text", ["what is behind it", "Nobody asked", "in so\nmany words", "it mends", "Likewise."])
def test_such_a_word_is_found(text):
    assert found(text, "README.md")


def test_the_exceptions_are_still_there():
    assert [each for each in LITERAL if each[1] not in (ROOT / each[0]).read_text()] == []
