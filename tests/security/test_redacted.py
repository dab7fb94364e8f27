"""What `export --redact` masks of planted secrets is what the documentation says."""

import base64
import json
import pathlib

import pytest

from mala_context.archive.export import export_transcript
from mala_context.archive.redact import MASK, Redactor
from mala_context.archive.store import TranscriptArchive
from mala_context.transcripts.rows import rows
from tests.security.planted import (
    HELD,
    HELD_OUT,
    HIDDEN,
    PEM,
    PLACES,
    SHAPES,
    Planted,
    as_message,
    measure,
    planted,
    survives,
    table,
)

MEASURED = {"said not to be found", HELD}
"""Groups of which the page says how many are found, and not that all are."""
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "retention-and-secrets.md"


@pytest.fixture(scope="module")
def redactor():
    return Redactor()


@pytest.mark.parametrize("each", [each for group, each in planted() if group not in MEASURED], ids=lambda e: e.kind)
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
    assert set(missed) <= set(HIDDEN) | set(HELD_OUT), "a secret is missed of which the page says that it is found"
    assert missed, "nothing is missed any more: say so"


def test_names_alone_are_no_secret(redactor):
    for text in ("the password: see below", "tokens: 180000", "Basic authentication is off", "cookie: none"):
        each = Planted("prose", text, text)
        assert survives(each, redactor), text


def test_a_whole_export_holds_none_of_them(tmp_path):
    path = tmp_path / "s.jsonl"
    found = [each for group, each in planted() if group not in MEASURED]
    path.write_text("".join(json.dumps(as_message(each.text)) + "\n" for each in found))
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(str(path), "s")
    done = export_transcript(archive, "s", tmp_path / "out.jsonl", redact=True)
    text = (tmp_path / "out.jsonl").read_text()
    assert [each.kind for each in found if each.secret in text] == []
    assert done.redacted is not None
    assert done.redacted >= len(SHAPES) + len(PLACES) + len(PEM)


NAMES = ("token", "auth_token", "access_token", "refreshToken", "password", "client_secret", "API_KEY", "apiKey")


@pytest.mark.parametrize("name", NAMES)
def test_a_tools_input_under_a_telling_name_is_masked(name, redactor):
    row = {"message": {"content": [{"type": "tool_use", "input": {name: "plain-words", "text": "plain-words"}}]}}
    (found,) = rows([json.dumps(row).encode()])
    assert json.loads(redactor.row(found))["message"]["content"][0]["input"] == {name: MASK, "text": "plain-words"}


def test_names_that_tell_of_no_secret_are_left(redactor):
    row = {"input": {"input_tokens": 7, "token_type": "bearer-token", "tokenizer": "plain-words"}}
    (found,) = rows([json.dumps(row).encode()])
    assert json.loads(redactor.row(found)) == row


def test_what_a_base64_source_holds_as_text_is_searched(redactor):
    key = SHAPES["GitHub token"]
    text = base64.b64encode(f"the key is {key}".encode()).decode()
    picture = base64.b64encode(b"\x89PNG\xff\xfe" + key.encode()).decode()
    for data, expected in ((text, f"the key is {MASK}"), (picture, None), (f"no base64: {key}", f"no base64: {MASK}")):
        source = {"type": "base64", "media_type": "text/plain", "data": data, "title": key}
        (found,) = rows([json.dumps({"source": source}).encode()])
        masked = json.loads(redactor.row(found))["source"]
        assert masked["title"] == MASK
        if expected is None:
            assert masked["data"] == data
        else:
            decoded = base64.b64decode(masked["data"] + "==", validate=False).decode("latin-1")
            assert expected in (masked["data"], decoded)


@pytest.mark.parametrize("start", [0, 17_500, 18_950, 19_500, 20_000])
def test_a_long_token_is_masked_to_its_end_wherever_it_stands(start, redactor):
    parts = ('{"alg":"HS256"}', "x" * 1_300)
    token = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    token += "." + "aB3-" * 11
    masked = redactor.text("x " * (start // 2) + token + " end")
    assert masked == "x " * (start // 2) + MASK + " end"


NO_SECRETS = (
    *("toolu_01A2b3C4d5E6f7G8h9J0k1L2", "msg_01A2b3C4d5E6f7G8h9J0k1L2m3", "req_011CSabcDEFghiJKLmnoPQRst9"),
    "f8fad5b0-d9cb-469f-a165-70867728950e_20261128T045403.000001Z_transcript.jsonl",
    "0f8fad5b-d9cb-469f-a165-70867728950e.agent-a52bc15c9f2f1b3f4",
    "sha256-3b7e4f0a9c1d2e5f8a6b7c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f",
    "commit-da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "test_what_is_swapped_in_for_a_new_directory_keeps_its_mode_2",
    "ApplicationConfigurationProviderFactoryBeanTest2ForVersion3",
)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_ids_and_long_names_stay(text, redactor):
    assert redactor.text(f"id {text} there") == f"id {text} there"


def test_what_the_api_signed_stays_byte_for_byte(redactor):
    signature = HELD_OUT["Azure DevOps token"]
    row = {"message": {"content": [{"type": "thinking", "thinking": "x", "signature": signature}]}, "note": signature}
    (found,) = rows([json.dumps(row).encode()])
    masked = json.loads(redactor.row(found))
    assert masked["message"] == row["message"]
    assert masked["note"] == MASK
