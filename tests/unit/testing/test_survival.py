"""What a request has of a canary, and what survives compactions on the real CLI."""

import json
import logging
from types import SimpleNamespace

import pytest

from mala_context import TranscriptArchive
from mala_context.testing import CANARIES, play_survival, survives
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


# -- on the real CLI


@pytest.fixture
def options(mala_home, mala_project, mala_runs):
    return {"home": mala_home, "cwd": mala_project}


async def test_by_reference_every_rule_survives(options, caplog):
    found = await survives([canary.text for canary in CANARIES], rounds=3, options=options)
    assert found.model_requests == 0
    assert len(found.tokens) == 3
    assert all(found.fate(canary, number) == "verbatim" for canary in found.canaries for number in (0, 1, 2, 3))
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("folder", ["plain", "importer-must-run-on-python-3.11", "questions-without-new-dependency"])
async def test_by_a_summary_what_it_does_not_repeat_is_gone(options, folder):
    """Whatever the project's name says: the CLI writes the transcript's path below each summary."""
    project = options["cwd"] / folder
    project.mkdir()
    found = await play_survival(rounds=2, options={**options, "cwd": project})
    assert found.model_requests == 2
    fates = {canary.kind: found.fate(canary) for canary in CANARIES}
    assert fates == {**dict.fromkeys(fates, "gone"), "goal": "mentioned"}
    assert "number: gone, gone: A batch has at most 4,711 rows" in found.table()


async def test_the_assertion_says_what_did_not_survive(options):
    with pytest.raises(
        AssertionError, match="not all is verbatim after 1 compactions:\nrule: gone: Never change vendor"
    ):
        await survives(["Never change vendor/lockfile.txt."], rounds=1, config="", options=options)


@pytest.mark.parametrize(
    ("config", "worst"),
    [
        ("context: {search_tool: true}", "reachable"),
        ("context: {compaction: reference, reference: {budget: 1000}}", "reachable"),
    ],
)
async def test_what_can_be_found_again_is_reachable(options, config, worst):
    words = ("zebra quartz", "amber falcon", "velvet harbour", "crimson lantern", "silver meadow", "copper thunder")
    rules = [f"{each} {number * 7919} {'x' * 700}" for number, each in enumerate(words)]
    found = await survives(rules, rounds=2, at_least="reachable", config=config, options=options)
    assert found.fate(found.canaries[0]) == worst


@pytest.mark.parametrize(
    ("given", "why"),
    [({"rounds": 0}, "rounds is 0, wanted 1 or more"), ({"at_least": "all"}, "wanted one of verbatim")],
)
async def test_wrong_arguments_are_told_before_anything_is_played(given, why):
    with pytest.raises(ValueError, match=why):
        await survives(["A rule."], **given)


async def test_a_cli_that_does_not_compact_is_an_error(options):
    with pytest.raises(RuntimeError, match="did not compact in each round"):
        await play_survival(rounds=1, options={**options, "env": {"DISABLE_COMPACT": "1"}})
