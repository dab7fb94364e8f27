"""The tool with which an agent searches its own history."""

import json
import threading

import anyio
import pytest

from mala_context.agent import search_tool as search_tool_module
from mala_context.agent.search_tool import ANSWER_TOKENS, SERVER, HistorySearch, as_text
from mala_context.archive.store import TranscriptArchive
from mala_context.guard import estimate_tokens


def said(words):
    return json.dumps({"type": "user", "uuid": words[:60], "timestamp": "T", "message": {"content": words}}) + "\n"


@pytest.fixture
def archive(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives")
    for session, words in (("s1", "my needle"), ("s2", "a needle of others")):
        path = tmp_path / f"{session}.jsonl"
        path.write_text(said(words) + "".join(said(f"hay {number} " + "w" * 2_000) for number in range(60)))
        archive.archive(str(path), session)
    return archive


def text(answer):
    (block,) = answer["content"]
    return block["text"]


async def test_hits_of_the_own_session_alone(archive):
    answer = await HistorySearch(archive, lambda: "s1").answer({"query": "needle"})
    assert not answer["is_error"]
    assert text(answer) == f"- T user: my needle\nThe full rows, as JSON lines, are in {archive.location}/s1_*"


async def test_nothing_found(archive):
    for query in ("absent", "", None, '"', 3):
        answer = await HistorySearch(archive, lambda: "s1").answer({"query": query})
        assert text(answer) == "Nothing was found in what was dropped of this session."
    assert "Nothing was found" in text(await HistorySearch(archive, lambda: "s3").answer({"query": "needle"}))


@pytest.mark.parametrize(("limit", "hits"), [(3, 3), (None, 10), (0, 10), ("7", 10), (10_000, 50)])
async def test_how_many(archive, monkeypatch, limit, hits):
    monkeypatch.setattr(search_tool_module, "ANSWER_TOKENS", 10**6)
    answer = await HistorySearch(archive, lambda: "s1").answer({"query": "hay", "limit": limit})
    assert text(answer).count("- T user") == hits


def test_an_answer_has_a_bound(archive):
    hits = search_tool_module.search_session(archive, "s1", "hay", limit=50)
    long = as_text([*hits] * 20, "/where")
    assert estimate_tokens(long) <= ANSWER_TOKENS
    assert "left out" in long


def test_whose_words_they_are(archive):
    (hit,) = search_tool_module.search_session(archive, "s1", "needle")
    other = type(hit)(**{**vars(hit), "agent": "a1", "time": None})
    assert as_text([other], "/w").startswith("-  user (a1): my needle")


async def test_what_goes_wrong_is_said_and_not_raised(archive, monkeypatch):
    answer = await HistorySearch(archive, lambda: None).answer({"query": "needle"})
    assert answer["is_error"]
    answer = await HistorySearch(archive, lambda: "../s1").answer({"query": "needle"})
    assert answer["is_error"]

    def broken(*_, **__):
        raise OSError("the index cannot be used")

    monkeypatch.setattr(search_tool_module, "search_session", broken)
    answer = await HistorySearch(archive, lambda: "s1").answer({"query": "needle"})
    assert answer["is_error"]
    assert "the index cannot be used" in text(answer)


async def test_a_search_that_takes_too_long(archive, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(search_tool_module, "SECONDS", 0.02)
    monkeypatch.setattr(search_tool_module, "search_session", lambda *_, **__: gate.wait(30) and [])
    try:
        answer = await HistorySearch(archive, lambda: "s1").answer({"query": "needle"})
    finally:
        gate.set()
    assert answer["is_error"]
    assert "too long" in text(answer)


def test_on_trio(archive):
    tool = HistorySearch(archive, lambda: "s1")
    assert "my needle" in text(anyio.run(tool.answer, {"query": "needle"}, backend="trio"))


def test_the_server_is_in_this_process(archive):
    server = HistorySearch(archive, lambda: "s1").server()
    assert (server["type"], server["name"], server["alwaysLoad"]) == ("sdk", SERVER, True)
