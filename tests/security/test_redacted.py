"""What `export --redact` masks of planted secrets is what the documentation says."""

import json
import pathlib

import pytest

from mala_context.archive.export import export
from mala_context.archive.redact import Redactor
from mala_context.archive.store import TranscriptArchive
from tests.security.planted import HIDDEN, PEM, PLACES, SHAPES, Planted, as_message, measure, planted, survives, table

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "retention-and-secrets.md"


@pytest.fixture(scope="module")
def redactor():
    return Redactor()


@pytest.mark.parametrize("each", [each for group, each in planted() if "not to be" not in group], ids=lambda e: e.kind)
def test_what_is_said_to_be_found(each, redactor):
    assert not survives(each, redactor)
    assert not survives(each, redactor, ascii_only=False)


@pytest.mark.parametrize("kind", [*SHAPES, *PEM])
def test_escapes_of_json_hide_no_key(kind, redactor):
    """A key in a JSON text, as a tool prints one, with its newlines and slashes escaped."""
    key = SHAPES.get(kind) or PEM[kind]
    text = json.dumps({"output": f"it is {key}"})
    secret = key if kind in SHAPES else key.split("\n")[3]
    assert not survives(Planted(kind, secret, text), redactor)


def test_the_page_has_the_measured_table():
    assert table() in PAGE.read_text(encoding="utf-8"), f"the table is now\n{table()}"


def test_what_is_missed_is_said(redactor):
    missed = [kind for group, kinds in measure().items() for kind, masked in kinds.items() if not masked]
    assert set(missed) <= set(HIDDEN), "a secret is missed of which the page says that it is found"
    assert missed, "nothing is missed any more: say so"


def test_names_alone_are_no_secret(redactor):
    for text in ("the password: see below", "tokens: 180000", "Basic authentication is off", "cookie: none"):
        each = Planted("prose", text, text)
        assert survives(each, redactor), text


def test_a_whole_export_holds_none_of_them(tmp_path):
    path = tmp_path / "s.jsonl"
    found = [each for group, each in planted() if "not to be" not in group]
    path.write_text("".join(json.dumps(as_message(each.text)) + "\n" for each in found))
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(str(path), "s")
    done = export(archive, "s", tmp_path / "out.jsonl", redact=True)
    text = (tmp_path / "out.jsonl").read_text()
    assert [each.kind for each in found if each.secret in text] == []
    assert done.redacted is not None
    assert done.redacted >= len(SHAPES) + len(PLACES) + len(PEM)
