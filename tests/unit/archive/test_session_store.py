"""The archive as the SDK's session store: the SDK's own contracts, and ours on top."""

import itertools
import os

import anyio
import pytest
from claude_agent_sdk.testing import run_session_store_conformance

from mala_context.archive.session_store import ArchiveSessionStore, folder_name, stream_of
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError, InvalidSessionIdError

KEY = {"project_key": "proj", "session_id": "sess"}


def entry(uuid=None, **fields):
    return {"type": "user", **({"uuid": uuid} if uuid else {}), **fields}


def fresh_stores(tmp_path):
    numbers = itertools.count()
    return lambda: ArchiveSessionStore(tmp_path / str(next(numbers)))


async def test_the_sdks_contracts_on_asyncio(tmp_path):
    await run_session_store_conformance(fresh_stores(tmp_path))


def test_the_sdks_contracts_on_trio(tmp_path):
    anyio.run(run_session_store_conformance, fresh_stores(tmp_path), backend="trio")


def test_no_contract_is_left_out():
    from claude_agent_sdk import SessionStore

    for method in ("append", "load", "list_sessions", "list_session_summaries", "delete", "list_subkeys"):
        assert getattr(ArchiveSessionStore, method) is not getattr(SessionStore, method)


async def test_a_uuid_is_kept_once_and_rows_without_one_each_time(tmp_path):
    store = ArchiveSessionStore(tmp_path)
    await store.append(KEY, [entry("a"), entry("a"), entry(n=1)])
    await store.append(KEY, [entry("a"), entry("b"), entry(n=1)])
    await store.append(KEY, [entry("b")])
    assert await store.load(KEY) == [entry("a"), entry(n=1), entry("b"), entry(n=1)]
    assert len(TranscriptArchive(tmp_path / "proj").pieces("sess")) == 2


async def test_two_processes_do_not_repeat_each_other(tmp_path):
    one, other = ArchiveSessionStore(tmp_path), ArchiveSessionStore(tmp_path)
    await one.append(KEY, [entry("a")])
    await other.append(KEY, [entry("a"), entry("b")])
    await one.append(KEY, [entry("b"), entry("c")])
    assert [each["uuid"] for each in await other.load(KEY)] == ["a", "b", "c"]
    with TranscriptArchive(tmp_path / "proj").view("sess") as files:
        offsets = [piece.offset for piece in TranscriptArchive(tmp_path / "proj").pieces("sess")]
        assert None not in offsets
        assert len(files.list()) == 4  # three pieces and the manifest


async def test_appends_keep_the_order_of_their_calls(tmp_path):
    store = ArchiveSessionStore(tmp_path)
    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(store.append, KEY, [entry(str(n))])
    assert [each["uuid"] for each in await store.load(KEY)] == [str(n) for n in range(20)]


async def test_files_are_private(tmp_path):
    umask = os.umask(0)
    try:
        await ArchiveSessionStore(tmp_path / "mirror").append(KEY, [entry("a")])
    finally:
        os.umask(umask)
    directory = tmp_path / "mirror" / "proj"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {0o600}


async def test_text_of_every_kind_comes_back(tmp_path):
    store = ArchiveSessionStore(tmp_path)
    rows = [entry("a", text="two\u2028lines\n\x00 \ud800 é 😀", n=1e300, deep={"list": [None, True, {}]})]
    await store.append(KEY, rows)
    assert await ArchiveSessionStore(tmp_path).load(KEY) == rows


@pytest.mark.parametrize("session_id", ["../x", "", "a/b", "x\0y"])
async def test_a_session_id_that_is_no_name_is_refused(session_id, tmp_path):
    store = ArchiveSessionStore(tmp_path / "mirror")
    with pytest.raises(InvalidSessionIdError):
        await store.append({**KEY, "session_id": session_id}, [entry("a")])
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize("key", ["", "..", "a/b", "a.b", "x" * 300, "é", "/etc"])
def test_a_project_key_is_a_folder_of_its_own(key):
    name = folder_name(key)
    assert 0 < len(name) <= 200
    assert not {"/", "."} & set(name)
    assert name != folder_name(key + "x")


def test_subpaths_are_streams_of_their_own():
    assert stream_of(None) is None
    assert stream_of("subagents/agent-a1b2") == "a1b2"
    others = ["subagents/workflows/r/agent-a1b2", "", "..", "subagents/agent-" + "x" * 100, "subagents/agent-"]
    streams = [stream_of(each) for each in others]
    assert len(set(streams)) == len(others)
    assert all(each.startswith("sub-") for each in streams)


async def test_deleting_one_subagent_leaves_a_sound_archive(tmp_path):
    store = ArchiveSessionStore(tmp_path)
    await store.append(KEY, [entry("a")])
    await store.append({**KEY, "subpath": "subagents/agent-1"}, [entry("b")])
    await store.delete({**KEY, "subpath": "subagents/agent-1"})
    assert await store.list_subkeys(KEY) == []
    assert await store.load(KEY) == [entry("a")]
    await store.append({**KEY, "subpath": "subagents/agent-1"}, [entry("b")])
    assert await store.load({**KEY, "subpath": "subagents/agent-1"}) == [entry("b")]


async def test_deleting_leaves_no_file(tmp_path):
    store = ArchiveSessionStore(tmp_path)
    await store.append(KEY, [entry("a")])
    await store.delete(KEY)
    assert list((tmp_path / "proj").iterdir()) == []
    await store.append(KEY, [entry("a")])
    assert await store.load(KEY) == [entry("a")]


async def test_damage_is_reported_and_not_given_for_rows(tmp_path):
    store = ArchiveSessionStore(tmp_path)
    await store.append(KEY, [entry("a", text="right")])
    (piece,) = (tmp_path / "proj").glob("sess_*")
    piece.write_bytes(piece.read_bytes().replace(b"right", b"wrong"))
    with pytest.raises(ArchiveError):
        await store.load(KEY)


async def test_the_default_place_is_beside_the_repositorys_archives(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    store = ArchiveSessionStore(repo_path=tmp_path)
    assert await store.load(KEY) is None
    assert not (tmp_path / "runs").exists()
    await store.append(KEY, [entry("a")])
    assert list((tmp_path / "runs").glob("*/mirror/proj/sess_*"))
    assert await ArchiveSessionStore(repo_path=tmp_path).load(KEY) == [entry("a")]


def test_one_place_is_named():
    with pytest.raises(ValueError, match="one of"):
        ArchiveSessionStore()
    with pytest.raises(ValueError, match="one of"):
        ArchiveSessionStore("/a", repo_path="/b")
