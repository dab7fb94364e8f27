"""What the exported copy's detector masks, and that it leaves the rest alone."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive import redact as redacting
from mala_context.archive.redact import MASK, Redactor
from mala_context.errors import ArchiveError
from mala_context.transcripts.rows import Row, rows

SECRETS = {
    "Anthropic key": "sk-ant-api03-Zm9vYmFyYmF6-cXV4",
    "AWS key": "AKIAIOSFODNN7EXAMPLE",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "JSON web token": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w",
    "Slack token": "xoxb-123456789012-123456789012-" + "abcdef" * 4,
    "bearer": "abcdefghijklmnopqrstuvwxyz123456",
}
SENTENCES = {"bearer": "Authorization: Bearer {} was sent"}


def redact(row):
    redactor = Redactor()
    data = row if isinstance(row, bytes) else json.dumps(row).encode()
    return redactor.row(Row(offset=0, data=data)), redactor.found


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "around", ["{}", "before {} after", "first line\nKey: {}\nlast line", "x" * 19_990 + " {} end"]
)
def test_known_shapes_are_masked_whole(name, around):
    secret = SECRETS[name]
    text = around.format(SENTENCES.get(name, "{}").format(secret))
    masked, found = redact({"message": {"content": [{"type": "text", "text": text}]}})
    assert secret.encode() not in masked
    assert not any(secret[start : start + 12].encode() in masked for start in range(len(secret) - 12))
    assert found == 1
    assert json.loads(masked)["message"]["content"][0]["text"].count(MASK) == 1


@pytest.mark.parametrize(
    "text",
    [
        "password = 'hunter2hunter2'",
        "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG",
        "postgres://bob:hunter2hunter2@db:5432/x",
    ],
)
def test_values_with_a_telling_name(text):
    masked, found = redact({"text": text})
    assert b"hunter2" not in masked
    assert b"wJalr" not in masked
    assert found == 1


def test_a_private_key_goes_with_its_body():
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAABG5vbmU\n-----END OPENSSH PRIVATE KEY-----"
    masked, _ = redact({"text": f"cat id_ed25519\n{key}\nend"})
    assert json.loads(masked)["text"] == f"cat id_ed25519\n{MASK}\nend"
    assert b"AAAAB" not in redact({"text": key[:-40]})[0]


def test_a_tools_input_is_read_with_its_names():
    masked, found = redact({"input": {"password": "hunter2hunter2", "path": "/etc/hosts", "input_tokens": 5}})
    assert json.loads(masked) == {"input": {"password": MASK, "path": "/etc/hosts", "input_tokens": 5}}
    assert found == 1


def test_escapes_hide_nothing():
    masked, _ = redact(b'{"text":"key \\u0041KIAIOSFODNN7EXAMPLE"}')
    assert json.loads(masked)["text"] == f"key {MASK}"


@pytest.mark.parametrize("shape", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize(
    "depth", [10, 250, 500, 900, *range(960, 1_000, 4), 2_000, pytest.param(100_000, marks=pytest.mark.long)]
)
def test_no_depth_hides_one(depth, shape):
    opening, closing = shape
    row = '{"a":' + opening * depth + '"key: AKIAIOSFODNN7EXAMPLE"' + closing * depth + "}"
    masked, found = redact(row.encode())
    assert found == 1
    assert b"AKIA" not in masked


def test_text_that_is_no_json_is_searched_too():
    masked, found = redact(b"half a row with AKIAIOSFODNN7EXAMPLE \xff")
    assert masked == f"half a row with {MASK} ".encode() + b"\xff\n"
    assert found == 1


def test_images_are_not_searched():
    row = {"source": {"type": "base64", "data": "AKIAIOSFODNN7EXAMPLE"}}
    assert redact(row) == (json.dumps(row).encode() + b"\n", 0)


@pytest.mark.parametrize(
    "text",
    [
        "a sentence about tokens, passwords and secrets",
        "def f(token: str) -> None:",
        "uuid 00000000-0000-4000-8000-000000000001 and sha 69bf88c627566b8392c8005a99baf20c6c8876b5",
        "https://example.com/path?x=1",
        "server at 192.0.2.7",
    ],
)
def test_ordinary_text_is_left_alone(text):
    row = {"text": text}
    assert redact(row) == (json.dumps(row).encode() + b"\n", 0)


@given(st.dictionaries(st.text(max_size=8), st.text(alphabet=" \n\u2028aé{}:,", max_size=60), max_size=4))
def test_rows_without_a_finding_keep_their_bytes(row):
    data = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    redactor = _shared()
    masked = b"".join(redactor.row(each) for each in rows([data]))
    if redactor.found == 0:
        assert masked == data


def _shared(cache=[]):  # noqa: B006  # one detector for all examples
    if not cache:
        cache.append(Redactor())
    cache[0].found = 0
    return cache[0]


def test_the_mask_is_not_masked_again():
    once, _ = redact({"text": "password = 'hunter2hunter2' and sk-ant-api03-Zm9vYmFyYmF6"})
    again, found = redact(once.rstrip())
    assert again == once
    assert found == 0


def test_without_the_library_nothing_is_exported_unmasked(monkeypatch):
    monkeypatch.setitem(sys.modules, "detect_secrets.core.plugins.util", None)
    with pytest.raises(ArchiveError, match=r"pip install 'mala-context\[redact\]'"):
        Redactor()


def test_what_is_remembered_of_clean_lines_is_bounded(monkeypatch):
    monkeypatch.setattr(redacting, "_REMEMBERED", 3)
    redactor = Redactor()
    for number in range(10):
        assert redactor.text(f"line {number}") == f"line {number}"
        assert redactor.text("password = 'hunter2hunter2'") == f"password = '{MASK}'"
    assert len(redactor._clean) <= 3


@pytest.mark.parametrize(
    "text",
    [
        "export ANTHROPIC_API_KEY=sk-ant-api03-Zm9vYmFyYmF6-cXV4",
        "Authorization: Bearer sk-ant-api03-Zm9vYmFyYmF6-cXV4",
        "token = 'ghp_" + "a1B2" * 9 + "'",
    ],
)
def test_what_several_patterns_find_is_masked_once(text):
    redactor = Redactor()
    masked = redactor.text(text)
    assert masked.count(MASK) == redactor.found == 1
    assert "Zm9v" not in masked
    assert "a1B2" not in masked
