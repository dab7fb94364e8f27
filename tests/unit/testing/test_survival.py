"""What a request has of a canary."""

import json
from types import SimpleNamespace

import pytest

from mala_context import TranscriptArchive
from mala_context.testing.survival import Canary, Survival, fate_of, said_in

CANARY = Canary("number", "A batch has at most 4,711 rows.")


def request(*texts, tools=()):
    messages = [{"role": "user", "content": text} for text in texts]
    return SimpleNamespace(body={"messages": messages, "tools": [{"name": name} for name in tools]})


def fate(given, archive=None, session="s"):
    return fate_of(CANARY, given, SimpleNamespace(archive=archive), session)


def test_all_text_of_a_request_is_looked_at():
    blocks = [{"type": "text", "text": "one"}, {"type": "tool_result", "content": [{"type": "text", "text": "two"}]}]
    assert said_in(request(blocks, "three")).split() == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x " + CANARY.text, "verbatim"),
        ("At most 4,711 rows a batch.", "mentioned"),
        ("<system-reminder>At most 4,711 rows a batch.</system-reminder>", "gone"),
        ("nothing", "gone"),
    ],
)
def test_words(text, expected):
    assert fate(request(text)) == expected


def test_a_file_that_is_named(tmp_path):
    path = tmp_path / "full.txt"
    part = f'<kept-conversation part="1" calls="0" file="{path}">\n</kept-conversation>'
    assert fate(request(part)) == "gone"
    path.write_text(CANARY.text)
    assert fate(request(part)) == "reachable"


def test_a_search_that_is_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(json.dumps({"type": "user", "uuid": "u", "message": {"content": CANARY.text}}) + "\n")
    archive = TranscriptArchive(repo_path=tmp_path)
    archive.archive(transcript, "s")
    offered = request("nothing", tools=["mcp__mala_context__search_history"])
    assert fate(request("nothing"), archive) == "gone"
    assert fate(offered, archive) == "reachable"
    assert fate(offered, archive, session=None) == "gone"


def test_the_worst_fate_counts():
    found = Survival((CANARY,), ({CANARY.text: "verbatim"}, {CANARY.text: "gone"}), 2, (1, 2))
    assert [found.fate(CANARY, number) for number in (0, 1, 2)] == ["gone", "verbatim", "gone"]
