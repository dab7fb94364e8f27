"""A restored session's subagents: whose transcripts come beside it, from where, and what is said of the others."""

import errno
import json
import os
import pathlib
import shutil

import pytest

from mala_context.archive import atomic_write, subagents
from mala_context.archive.store import TranscriptArchive
from tests.helpers.small_transcripts import SID, Told, boundary, dump, message

NOTES = b'{"agentType":"general-purpose"}'


def names(number, agent, **fields):
    """A row that reports the work of a subagent."""
    return message(number, f"agentId: {agent}", toolUseResult={"agentId": agent, "status": "completed"}, **fields)


def own(agent, *more):
    """A subagent's own rows."""
    return dump([message(1, f"I am {agent}", isSidechain=True, agentId=agent), *more])


class World:
    """A session with the subagents a1, a2 before its compaction and b1 behind it; a1 had one of its own, a1x."""

    def __init__(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
        self.folder = tmp_path / "claude" / "projects" / "-home-dev-project"
        self.beside = self.folder / SID / "subagents"
        self.beside.mkdir(parents=True)
        self.transcript = self.folder / f"{SID}.jsonl"
        self.transcript.write_bytes(
            dump([message(1), names(2, "a1"), names(3, "a2"), boundary(4), names(5, "b1"), message(6)])
        )
        self.agents = {
            "a1": own("a1", names(2, "a1x", isSidechain=True)),
            "a1x": own("a1x"),
            "a2": own("a2"),
            "b1": own("b1"),
            "unnamed": own("unnamed"),
        }
        for agent, data in self.agents.items():
            (self.beside / f"agent-{agent}.jsonl").write_bytes(data)
        (self.beside / "agent-a1.meta.json").write_bytes(NOTES)
        self.archive = TranscriptArchive(tmp_path / "archives", compress="zstd")

    def keep(self):
        self.archive.archive_session(self.transcript, SID)

    def lose(self):
        shutil.rmtree(self.folder / SID)
        self.transcript.unlink()

    def restored(self, **where):
        """Restore; return the result and the content of each subagent's transcript beside the new session."""
        result = self.archive.restore(SID, **where)
        beside = self.folder / result.session_id / "subagents"
        found = {path.stem.removeprefix("agent-"): path.read_bytes() for path in beside.glob("*.jsonl")}
        assert {os.path.basename(path) for path in result.subagents} == {f"agent-{agent}.jsonl" for agent in found}
        assert all(os.path.dirname(path) == str(beside) for path in result.subagents)
        return result, found

    def only(self, *agents):
        return {agent: self.agents[agent] for agent in agents}


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("lost", [False, True], ids=["there", "lost"])
def test_those_that_the_rows_name_come_byte_for_byte(lost, packed, world):
    world.keep()
    if packed:
        world.archive.pack()
    if lost:
        world.lose()
    result, found = world.restored()
    assert found == world.only("a1", "a1x", "a2")
    assert result.missing == ()


def test_a_session_restored_whole_has_all_of_them(world):
    world.keep()
    world.lose()
    result, found = world.restored(before="2027-01-01")
    assert found == world.agents
    assert result.missing == ()


def test_a_session_that_nobody_archived(world):
    assert world.restored()[1] == world.only("a1", "a1x", "a2")


def test_they_are_private_and_new_whatever_the_umask(world):
    world.keep()
    world.lose()
    before = os.umask(0)
    try:
        result, _ = world.restored()
    finally:
        os.umask(before)
    assert {os.stat(path).st_mode & 0o777 for path in result.subagents} == {0o600}
    for parent in pathlib.Path(result.subagents[0]).parents[:2]:
        assert parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("lost", [False, True])
def test_the_clis_notes_on_an_agent_come_with_it(lost, world):
    world.keep()
    if lost:
        world.lose()
    result, _ = world.restored()
    notes = world.folder / result.session_id / "subagents" / "agent-a1.meta.json"
    assert notes.read_bytes() == NOTES
    assert notes.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in notes.parent.glob("*.meta.json")] == [notes.name]


def test_what_came_since_it_was_archived_is_not_lost(world):
    world.keep()
    path = world.beside / "agent-a1.jsonl"
    path.write_bytes(world.agents["a1"] + dump([message(9)]))
    assert world.restored()[1]["a1"] == path.read_bytes()


def test_one_that_was_cut_is_taken_from_the_archive(world):
    world.keep()
    (world.beside / "agent-a1.jsonl").write_bytes(world.agents["a1"][:50])
    assert world.restored()[1]["a1"] == world.agents["a1"]


def test_those_that_are_gone_are_named_where_they_were(world):
    world.lose()
    world.transcript.write_bytes(dump([message(1), names(2, "a1"), boundary(3)]))
    result, found = world.restored()
    assert found == {}
    assert result.missing == (str(world.beside / "agent-a1.jsonl"),)
    assert not (world.folder / result.session_id).exists()


def test_an_empty_one_is_gone(world):
    (world.beside / "agent-a2.jsonl").write_bytes(b"")
    result, found = world.restored()
    assert found == world.only("a1", "a1x")
    assert result.missing == (str(world.beside / "agent-a2.jsonl"),)


def test_a_damaged_archive_of_one_costs_that_one_alone(world, caplog):
    world.keep()
    world.lose()
    (piece,) = [piece for piece in world.archive.pieces(SID) if piece.subagent == "a2"]
    with open(os.path.join(world.archive.location, piece.name), "r+b") as file:
        file.write(b"X")
    said = world.archive.restore(SID, dry_run=True)
    result, found = world.restored()
    assert found == world.only("a1", "a1x")
    assert said.missing == result.missing
    assert len(said.subagents) == len(result.subagents) == 2
    assert result.missing == (str(world.beside / "agent-a2.jsonl"),)
    assert "Subagent's transcript agent-a2.jsonl could not be restored" in caplog.text


def test_a_full_disk_leaves_no_half_of_one(world, monkeypatch, caplog):
    world.keep()
    place = atomic_write.place

    def full(root, parts, fill):
        def half(write):
            def some(data):
                write(data[:10])
                raise OSError(errno.ENOSPC, "No space left on device")

            fill(some)

        return place(root, parts, half if parts[-1].startswith("agent-a1.") else fill)

    monkeypatch.setattr("mala_context.archive.subagents.place", full)
    result, found = world.restored()
    assert found == world.only("a2")
    assert result.missing == (str(world.beside / "agent-a1.jsonl"),)
    assert os.listdir(world.folder / result.session_id / "subagents") == ["agent-a2.jsonl"]
    assert "No space left" in caplog.text


def test_notes_that_cannot_be_copied_cost_nothing_else(world, monkeypatch, caplog):
    world.keep()
    place = atomic_write.place

    def refusing(root, parts, fill):
        if parts[-1].endswith(".meta.json"):
            raise OSError(errno.EACCES, "Permission denied")
        return place(root, parts, fill)

    monkeypatch.setattr("mala_context.archive.subagents.place", refusing)
    assert world.restored()[1] == world.only("a1", "a1x", "a2")
    assert "Side file subagents/agent-a1.meta.json could not be put back" in caplog.text


def test_a_link_is_not_followed(world, tmp_path):
    (tmp_path / "secret").write_bytes(dump([message(1, "secret")]))
    path = world.beside / "agent-a2.jsonl"
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    result, found = world.restored()
    assert found == world.only("a1", "a1x")
    assert result.missing == (str(path),)


@pytest.mark.parametrize("agent", ["..", ".", "x\0y", "a b", "é", "a\nb"])
def test_an_agent_with_an_odd_name_is_missing_at_worst(agent, world):
    world.transcript.write_bytes(dump([message(1), names(2, agent), names(3, "a2"), boundary(4)]))
    result, found = world.restored()
    assert found == world.only("a2")
    assert result.missing == (str(world.beside / f"agent-{agent}.jsonl"),)


def test_agents_that_name_each_other_come_once(world):
    world.agents["a1"] = own("a1", names(2, "a2", isSidechain=True))
    world.agents["a2"] = own("a2", names(2, "a1", isSidechain=True))
    for agent in ("a1", "a2"):
        (world.beside / f"agent-{agent}.jsonl").write_bytes(world.agents[agent])
    assert world.restored()[1] == world.only("a1", "a2")


def test_the_sdk_reads_them(world):
    from claude_agent_sdk import get_subagent_messages, list_subagents

    world.keep()
    world.lose()
    result, _ = world.restored()
    assert sorted(list_subagents(result.session_id)) == ["a1", "a1x", "a2"]
    said = [each.message["content"] for each in get_subagent_messages(result.session_id, "a2")]
    assert said == [json.loads(world.agents["a2"])["message"]["content"]]


def test_no_more_bytes_are_told_than_are_expected(world):
    world.keep()
    world.lose()
    told, rows = Told(), Told()
    world.archive.restore(SID, progress=told)
    world.archive.restore(SID, before="2026-11-01T12:00:02Z", progress=rows)
    assert told.expected - rows.expected == sum(len(data) for data in world.only("a1", "a1x", "a2").values())
    assert 0 < sum(told) <= told.expected


WORKFLOW = {
    "subagents/workflows/run-1/agent-w1.jsonl": own("w1"),
    "subagents/workflows/run-1/agent-w2.jsonl": own("w2") + b"{",
    "subagents/workflows/run-1/journal.jsonl": b'{"step":1}\n',
    "workflows/run-1.json": b'{"runId":"run-1"}',
}


@pytest.mark.parametrize("lost", [False, True], ids=["there", "lost"])
@pytest.mark.parametrize("where", [{}, {"at": 1}], ids=["whole", "cut"])
def test_what_belongs_to_a_workflow_comes_with_it(lost, where, world):
    for name, data in WORKFLOW.items():
        path = world.folder / SID / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    world.keep()
    if lost:
        world.lose()
    told = Told()
    result = world.archive.restore(SID, progress=told, **where)
    beside = world.folder / result.session_id
    assert {name: (beside / name).read_bytes() for name in WORKFLOW} == WORKFLOW
    assert {path.stat().st_mode & 0o777 for path in beside.rglob("*.json*")} == {0o600}
    transcripts = {str(beside / name) for name in WORKFLOW if "/agent-" in name}
    assert transcripts <= set(result.subagents)
    assert sum(told) <= told.expected


def test_a_name_of_a_workflows_file_leads_nowhere_else(world, caplog, tmp_path):
    world.keep()
    (row,) = [each for each in world.archive.manifest(SID).of_kind("file") if each["path"].endswith("a1.meta.json")]
    paths = ("subagents/workflows/../../../../x", "workflows//x", "workflows/\0", "workflows/../../../y", 7)
    with open(pathlib.Path(world.archive.location) / f"{SID}.manifest.jsonl", "ab") as file:
        file.writelines(json.dumps({**row, "path": path}).encode() + b"\n" for path in paths)
    before = set(tmp_path.rglob("*"))
    result = world.archive.restore(SID)
    new = {each for each in set(tmp_path.rglob("*")) - before if each.is_file()}
    assert all(each.is_relative_to(world.folder) and result.session_id in str(each) for each in new)
    assert caplog.text.count("could not be put back") == 4


@pytest.mark.parametrize("lost", ["nothing", "transcript", "all"])
@pytest.mark.parametrize("where", [{}, {"at": 1}, {"before": "2030-01-01"}], ids=["last", "cut", "whole"])
def test_a_dry_run_says_what_would_be_written_and_writes_nothing(lost, where, world, tmp_path):
    result = world.folder / SID / "tool-results" / "b.txt"
    result.parent.mkdir(exist_ok=True)
    result.write_bytes(b"a long result")
    rows = [message(n, f"saved to {result.with_name(name)}") for n, name in ((11, "b.txt"), (12, "never.txt"))]
    world.transcript.write_bytes(dump(rows) + world.transcript.read_bytes())
    (world.beside / "agent-a2.jsonl").unlink()
    for name, data in WORKFLOW.items():
        path = world.folder / SID / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    world.keep()
    result.unlink()
    if lost == "all":
        world.lose()
    elif lost == "transcript":
        world.transcript.unlink()
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    told = Told()
    said = world.archive.restore(SID, dry_run=True, progress=told, **where)
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert sum(told) <= told.expected
    done = world.archive.restore(SID, **where)
    assert (said.dry_run, said.command, said.session_id, said.through) == (True, "", "*", "")
    assert done.missing
    assert done.put_back == (str(result),)
    for field in ("source", "cwd", "rows", "compaction", "compactions", "read_from", "put_back", "missing"):
        assert getattr(said, field) == getattr(done, field), field
    assert said.path == done.path.replace(done.session_id, "*")
    assert said.subagents == tuple(path.replace(done.session_id, "*") for path in done.subagents)


def test_a_copy_that_cannot_be_read_back_costs_those_that_it_names_alone(world, monkeypatch, caplog):
    """The new session is there already, and goes on without them."""
    real = subagents.file_chunks

    def broken(path, *more):
        if SID not in path and path.endswith("agent-a1.jsonl"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *more)

    monkeypatch.setattr(subagents, "file_chunks", broken)
    _, found = world.restored()
    assert found == world.only("a1", "a2")
    assert "cannot be read: [Errno 5]" in caplog.text
