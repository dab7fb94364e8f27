"""Answers to the CLI's mod: archived first, kept and read back, and in doubt none."""

import json
import logging
import os
import stat
from types import SimpleNamespace

import pytest

from mala_context import TranscriptArchive
from mala_context.agent.archiving import SessionArchiver
from mala_context.agent.reference import answer as answers
from mala_context.agent.reference import compactor
from mala_context.agent.reference.answer import Answer, Doubt, Settings, answer, say
from mala_context.agent.reference.compactor import SERVER, ByReference
from mala_context.agent.stream import MessageStreamProcessor
from mala_context.config import ContextConfig
from mala_context.tracking.events import PluginSaid, SessionStart

SID = "5e55"


def row(uuid, content, kind="user"):
    return json.dumps({"type": kind, "uuid": uuid, "message": {"role": kind, "content": content}}) + "\n"


def message(text, handle="u1", **fields):
    return {"role": "user", "text": text, "toolUses": [], "results": 0, "handle": handle, **fields}


CALL = {"tool": "Bash", "input": {"command": "seq"}, "text": "number\n" * 2_000, "isError": False}


class World:
    """A repository, a transcript, and what is asked about it."""

    def __init__(self, path):
        self.repo = path / "repo"
        self.repo.mkdir()
        self.transcript = path / "projects/repo" / f"{SID}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self.transcript.write_text(row("u1", "Never use tabs.") + row("a1", "x", "assistant") + row("u2", "Go on."))
        self.archive = TranscriptArchive(repo_path=self.repo, projects_dirs=[str(path / "projects")])
        self.messages = [
            message("Never use tabs."),
            {"role": "assistant", "text": "", "toolUses": [CALL], "results": 0, "handle": "a1"},
            message("", "r1", results=1),
            message("Go on.", "u2"),
        ]

    def request(self, **changes):
        given = {"session": SID, "transcript": str(self.transcript), "cwd": str(self.repo), "trigger": "auto"}
        return {**given, "instructions": "", "agent": "", "messages": self.messages, **changes}

    def ask(self, settings=None, **changes):
        return answer(self.request(**changes), self.archive, settings or Settings(str(self.repo)))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    return World(tmp_path)


def test_it_archives_first_and_keeps_the_full_text(world):
    made = world.ask()
    assert isinstance(made, Answer)
    (piece,) = world.archive.pieces(SID)
    with open(os.path.join(world.archive.location, piece.name), "rb") as file:
        assert file.read() == world.transcript.read_bytes()
    with open(made.kept.path, "rb") as file:
        assert b"number\n" * 2_000 in file.read()
    assert stat.S_IMODE(os.stat(made.kept.path).st_mode) == 0o600
    assert [type(each) for each in made.kept.rows] == [str, str]
    assert "Never use tabs." in made.kept.rows[0]


def test_a_conversation_without_calls_needs_no_file(world):
    world.messages = [message("Never use tabs."), *[message("x", f"b{n}") for n in range(3)], message("Go on.", "u2")]
    made = world.ask(Settings(str(world.repo), context=10_000))
    assert made.kept.path == ""
    assert not (world.transcript.parent.parent / "runs").joinpath("spills").exists()


def test_a_message_with_an_image_stays_whole(world):
    blocks = [{"type": "text", "text": "Look."}, {"type": "image", "source": {}}]
    with open(world.transcript, "a", encoding="utf-8") as file:
        file.write(row("u3", blocks) + row("r9", [{"type": "tool_result", "content": [{"type": "image"}]}]))
    world.messages.insert(2, message("Look.", "u3"))
    world.messages.insert(2, message("", "r9", results=1))
    assert world.ask().kept.rows[0] == 3


def test_the_newest_message_stays_whole_where_the_transcript_has_it_not_yet(world):
    world.messages.append(message("The newest.", "not there"))
    assert world.ask().kept.rows[0] == 4


def test_a_subagents_own_transcript_is_archived(world):
    folder = world.transcript.parent / SID / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-sub1.jsonl").write_text(row("u1", "Never use tabs.") + row("u2", "Go on."))
    made = world.ask(agent="sub1")
    assert made.archived.transcript == str(folder / "agent-sub1.jsonl")
    assert [piece.subagent for piece in world.archive.pieces(SID)] == ["sub1"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"trigger": "idle"}, "the trigger idle is not known"),
        ({"session": "../x"}, "cannot be kept"),
        ({"agent": "../x"}, "cannot be kept"),
        ({"agent": "nobody"}, "cannot be kept"),
        ({"messages": None}, "no messages"),
        ({"transcript": "/nowhere", "session": "other"}, "not archived"),
    ],
)
def test_doubt(world, changes, why):
    with pytest.raises(Doubt, match=why):
        world.ask(**changes)


def test_a_transcript_that_the_mod_does_not_name_is_found_by_its_session(world):
    assert world.ask(transcript=None).archived.transcript == str(world.transcript)


def test_doubt_of_an_empty_transcript(world):
    world.transcript.write_text("")
    with pytest.raises(Doubt, match="not archived"):
        world.ask()


def test_doubt_of_a_full_text_that_is_another(world, monkeypatch):
    monkeypatch.setattr(answers, "read_regular", lambda path, most: b"another")
    with pytest.raises(Doubt, match="is not what was written"):
        world.ask()


@pytest.mark.parametrize(
    ("settings", "why"), [({"context": 1}, "half of the context"), ({"window": 100, "budget": 5_000}, "of the window")]
)
def test_doubt_of_too_much(world, settings, why):
    world.messages = [message("word " * 400)] + [world.messages[1]] * (2 if "window" in settings else 0)
    with pytest.raises(Doubt, match=why):
        world.ask(Settings(str(world.repo), **settings))


def test_what_is_said_of_it(world, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    kept = world.ask().kept
    say(kept)
    say(kept._replace(path="", pointed_at=2))
    lines = [record.getMessage() for record in caplog.records if "by reference" in record.getMessage()]
    assert lines[0].endswith(f"no model was asked; full text: {kept.path}")
    assert lines[1].endswith("full text: none is needed")
    assert lines[2].startswith("Compaction by reference: 2 messages of the user are over the budget")


# -- the mod


def test_the_mod_is_a_private_copy_that_is_made_once(world):
    directory = compactor.mod_directory()
    before = {path: os.stat(path).st_mtime_ns for path in _files(directory)}
    assert compactor.mod_directory() == directory
    assert {path: os.stat(path).st_mtime_ns for path in _files(directory)} == before
    assert all(stat.S_IMODE(os.stat(path).st_mode) == 0o600 for path in before)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    with open(os.path.join(directory, "hooks/register.ts"), encoding="utf-8") as file:
        assert SERVER in file.read()


def _files(directory):
    return [os.path.join(place, name) for place, _, names in os.walk(directory) for name in names]


# -- in an agent's own process


class Agent:
    def __init__(self, world, **config):
        self.processor = MessageStreamProcessor()
        archiver = SessionArchiver(world.archive)
        self.by_reference = ByReference(str(world.repo), ContextConfig(**config), archiver, self.processor)

    async def ask(self, request):
        (block,) = (await self.by_reference.compact(request))["content"]
        return json.loads(block["text"])


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_it_answers_the_mod_and_tells_the_tracker(world, caplog):
    agent = Agent(world)
    assert [type(each) for each in (await agent.ask(world.request()))["rows"]] == [str, str]
    assert agent.processor.tracker.main.kept_chars > 100
    await agent.by_reference.left_to_cli({})
    assert agent.processor.tracker.main.kept_chars is None
    assert not warnings_of(caplog)


@pytest.mark.parametrize(
    ("loaded", "asked", "why"),
    [
        (True, {}, "it did not take the answer"),
        (True, None, "its mod did not ask"),
        (True, {"trigger": "idle"}, "the trigger idle is not known"),
        (False, None, None),
    ],
)
async def test_a_compaction_that_the_cli_makes_itself_has_one_warning(world, caplog, loaded, asked, why):
    agent = Agent(world)
    if loaded:
        agent.processor.take(PluginSaid(SID, compactor.NAME, "ready"))
    if asked is not None:
        await agent.ask(world.request(**asked))
    await agent.by_reference.left_to_cli({})
    assert warnings_of(caplog) == [f"Compaction by reference: left to the CLI: {why}"] * bool(why)


async def test_in_doubt_it_answers_nothing(world, caplog):
    assert await Agent(world).ask(world.request(trigger="idle")) == {}
    assert "left to the CLI: the trigger idle" in caplog.text


async def test_it_answers_nothing_where_the_archive_cannot_be_written(world, caplog, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "file"))
    world.archive = TranscriptArchive(repo_path=world.repo)
    assert await Agent(world).ask(world.request()) == {}
    assert "left to the CLI" in caplog.text


async def test_it_answers_nothing_where_something_fails(world, caplog, monkeypatch):
    monkeypatch.setattr(compactor, "Settings", None)
    assert await Agent(world).ask(world.request()) == {}
    assert "left to the CLI" in caplog.text


async def test_it_answers_nothing_where_it_takes_too_long(world, caplog, monkeypatch):
    monkeypatch.setattr(compactor, "SECONDS", 0.0)
    assert await Agent(world).ask(world.request()) == {}
    assert "the archive takes longer than 0 s" in caplog.text


def options(**fields):
    given = {"plugins": [], "mcp_servers": {}, "disallowed_tools": [], "env": {}}
    return SimpleNamespace(**{**given, **fields})


def test_the_options_have_the_mod_last_and_once(world):
    theirs = {"type": "local", "path": "/theirs"}
    given = options(plugins=[theirs], mcp_servers={"other": {}}, disallowed_tools=["Agent"], env={"A": "b"})
    wired = Agent(world).by_reference.options(given)
    again = Agent(world).by_reference.options(SimpleNamespace(**wired))
    for each in (wired, again):
        assert each["plugins"] == [theirs, {"type": "local", "path": compactor.mod_directory()}]
        assert set(each["mcp_servers"]) == {"other", SERVER}
        assert each["disallowed_tools"] == ["Agent", *compactor._OURS]
        assert each["env"] == {"A": "b", "MALA_CONTEXT_REFERENCE": "sdk", "MALA_CONTEXT_CAP": ""}
    assert given.plugins == [theirs]


def test_without_a_place_for_its_mod_one_warning_says_so(world, caplog, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "file"))
    assert Agent(world).by_reference.options(options()) == {}
    assert "there is no place for its mod" in caplog.text


def test_with_servers_in_a_file_one_warning_says_so(world, caplog):
    assert Agent(world).by_reference.options(options(mcp_servers="servers.json")) == {}
    assert "the MCP servers are in a file" in caplog.text


def test_the_mod_says_that_it_was_loaded(world, caplog):
    agent = Agent(world)
    agent.processor.take(PluginSaid(SID, "another", "ready"))
    agent.processor.take(PluginSaid(SID, compactor.NAME, "ready"))
    agent.processor.take(SessionStart(SID, "init"))
    assert not warnings_of(caplog)


def test_where_it_was_not_one_warning_says_so(world, caplog):
    agent = Agent(world)
    agent.processor.take(SessionStart(SID, "resume"))
    assert not warnings_of(caplog)
    for _ in range(2):
        agent.processor.take(SessionStart(SID, "init"))
    assert sum("the CLI has not loaded its mod" in line for line in warnings_of(caplog)) == 1


@pytest.mark.parametrize(("cap", "texts"), [(None, []), ("works", ["cut", None]), ("fails", [])])
async def test_failed_tools_results_are_capped_where_others_are(world, caplog, cap, texts):
    class Cap:
        async def failed(self, request):
            if cap == "fails":
                raise RuntimeError(cap)
            return ["cut", None]

    agent = Agent(world)
    agent.by_reference._cap = None if cap is None else Cap()
    (block,) = (await agent.by_reference.cap({"session": SID, "texts": ["long", "short"]}))["content"]
    assert json.loads(block["text"]) == {"texts": texts}
    assert ("was not capped" in caplog.text) == (cap == "fails")
