"""The `mala.yaml` to begin with."""

import re

import pytest

from mala_context.config import SCHEMA, ContextConfig, parse
from mala_context.config.template import WIDTH, template

UNCOMMENTED = re.sub(r"^( *)# ", r"\1", template().split("context:\n")[1], flags=re.MULTILINE)


def test_it_means_the_defaults():
    assert parse(template()) == ContextConfig()


def test_so_it_does_without_the_marks():
    assert parse("context:\n" + UNCOMMENTED) == ContextConfig()


@pytest.mark.parametrize("key", SCHEMA, ids=lambda key: key.path)
def test_every_key_is_there_with_what_it_does(key):
    text = " ".join(template().replace("##", "").split())
    if ".keep." in key.path:
        assert key.name in text
    else:
        assert f"# {key.name}: " in template()
        assert f"{key.doc} Wanted: {key.kind.words}." in text


def test_its_examples_are_right():
    examples = re.findall(r"# (\w+): null  # e\.g\. (.*)", template())
    assert [name for name, _ in examples] == ["compact_at", "restart_at", "final_at", "keep"]
    for name, value in examples:
        section = "context:\n  archive:\n    " if name == "keep" else "context:\n  "
        assert parse(f"{section}{name}: {value}\n") != ContextConfig()


def test_its_lines_are_short():
    assert max(len(line) for line in template().splitlines()) <= WIDTH + 20
