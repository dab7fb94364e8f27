"""Going back behind a compaction, on the real CLI: the server's log says what the restored session holds."""

import json
import shutil

import pytest
from claude_agent_sdk import ClaudeSDKClient
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.archives import archives
from mala_context.testing import text, tool
from mala_context.testing.scripts import fill_until_compaction

SECRET = "The password of the test rig is kingfisher-41."


@pytest.fixture
def config(mala_home, monkeypatch):
    """The CLI's directory is also what the SDK's own session functions look into."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(mala_home / ".claude"))
    return mala_home / ".claude"


async def play(options, prompts):
    """Send prompts one after the other and return the session's id."""
    async with ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                last = message
    return last.session_id


def transcript_of(config, session_id):
    (path,) = (config / "projects").glob(f"*/{session_id}.jsonl")
    return path


@pytest.mark.parametrize("deleted", [False, True], ids=["transcript there", "transcript deleted"])
async def test_the_next_request_holds_what_the_compaction_dropped(
    deleted, config, mala_api, mala_options, mala_project, tmp_path
):
    api = mala_api(["noted", "compacted well", "back again", "and on"])
    session_id = await play(mala_options(api), [SECRET, "/compact", "Go on."])
    assert SECRET not in api.last.text, "the compaction left the prompt in place: nothing to undo"
    transcript = transcript_of(config, session_id)
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(transcript, session_id, trigger="manual", cwd=str(mala_project))
    before = transcript.read_bytes()
    if deleted:
        transcript.unlink()

    fields = archive.restore_options(session_id, at=1)

    assert fields["cwd"] == str(mala_project.resolve())
    restored = transcript_of(config, fields["resume"])
    assert restored.parent == transcript.parent
    assert restored.stat().st_mode & 0o777 == 0o600
    resumed = await play(mala_options(api, **fields), ["What was the password?"])
    assert resumed == fields["resume"] != session_id
    assert SECRET in api.last.text
    assert "Go on." not in api.last.text
    if not deleted:
        assert transcript.read_bytes() == before


@pytest.mark.long
async def test_before_an_automatic_compaction_there_is_no_room(config, mala_api, mala_home, mala_project, tmp_path):
    scenario = fill_until_compaction(mala_project, window=60_000, turns=6)

    def options(api, **fields):
        return api.options(cwd=mala_project, home=mala_home, env=scenario.env, **fields)

    with scenario.api(strict=False) as api:
        session_id = await play(options(api), scenario.prompts)
        transcript = transcript_of(config, session_id)
        archive = TranscriptArchive(tmp_path / "archives")
        archive.archive(transcript, session_id, trigger="session_end")
        assert len(api.of_kind("compaction")) == 1
        rows = [json.loads(line) for line in transcript.read_bytes().splitlines()]
        prompts = [row["timestamp"] for row in rows if row.get("message", {}).get("content") in scenario.prompts]
        transcript.unlink()

        full = archive.restore(session_id, at=1)
        await play(options(api, resume=full.session_id), ["And on."])
        assert len(api.of_kind("compaction")) == 2, "the window was full, so the CLI compacts again at once"

        roomy = archive.restore(session_id, before=prompts[2])
        await play(options(api, resume=roomy.session_id), ["And on."])
        assert len(api.of_kind("compaction")) == 2
        assert scenario.prompts[1] in api.last.text
        assert scenario.prompts[2] not in api.last.text


async def test_which_way_a_session_is_restored(config, mala_api, mala_options, tmp_path):
    session_id = await play(mala_options(mala_api(["noted", "on"])), [SECRET, "/compact", "Go on."])
    transcript = transcript_of(config, session_id)
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(transcript, session_id)
    there = archive.restore(session_id)
    transcript.unlink()
    gone = archive.restore(session_id)
    assert (there.through, there.read_from) == ("fork_session", "transcript")
    assert (gone.through, gone.read_from) == ("archive", "archive")
    assert there.rows == gone.rows > 0
    assert there.compaction.trigger == gone.compaction.trigger == "manual"


async def test_five_compactions_join_to_the_transcript(config, mala_api, mala_options, tmp_path):
    api = mala_api([f"answer {n}" for n in range(6)])
    archive = TranscriptArchive(tmp_path / "archives")
    async with ClaudeSDKClient(mala_options(api)) as client:
        for n in range(6):
            for prompt in (f"Prompt {n}", "/compact") if n < 5 else (f"Prompt {n}",):
                await client.query(prompt)
                async for message in client.receive_response():
                    session_id = message.session_id if hasattr(message, "session_id") else None
            archive.archive(transcript_of(config, session_id), session_id, trigger="manual")
    transcript = transcript_of(config, session_id)
    archive.archive(transcript, session_id, trigger="session_end", final=True)
    assert len(archive.pieces(session_id)) >= 6
    result = CliRunner().invoke(archives, ["cat", session_id, "--dir", str(tmp_path / "archives")])
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes == transcript.read_bytes()
    parts = b""
    for n in range(1, 6):
        part = CliRunner().invoke(
            archives, ["cat", session_id, "--dir", str(tmp_path / "archives"), "--dropped-by", str(n)]
        )
        assert f"Prompt {n - 1}".encode() in part.stdout_bytes
        parts += part.stdout_bytes
    assert transcript.read_bytes().startswith(parts)


async def test_side_files_that_rows_name(config, mala_api, mala_options, tmp_path):
    api = mala_api(
        [
            tool("Bash", command="seq 1 20000", description="Count"),
            tool(
                "Agent", description="Help", prompt="Help out", subagent_type="general-purpose", run_in_background=False
            ),
            text("done"),
            text("on"),
        ]
    )
    session_id = await play(mala_options(api), ["Count and ask for help.", "/compact", "Go on."])
    transcript = transcript_of(config, session_id)
    beside = transcript.with_suffix("")
    (result,) = beside.glob("tool-results/*")
    (agent,) = beside.glob("subagents/*.jsonl")
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(transcript, session_id)
    assert archive.restore(session_id).missing == ()
    text_of_result = result.read_bytes()
    agent.rename(tmp_path / "agent")
    result.rename(tmp_path / "result")
    assert set(archive.restore(session_id).missing) == {str(result), str(agent)}

    (tmp_path / "result").rename(result)
    (tmp_path / "agent").rename(agent)
    archive.archive_side_files(transcript, session_id)
    agent.unlink()
    result.unlink()
    restored = archive.restore(session_id)
    assert restored.missing == ()
    assert restored.put_back == (str(result),)
    assert result.read_bytes() == text_of_result
    assert result.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("lost", [False, True], ids=["all there", "all lost"])
async def test_a_restored_session_goes_on_with_its_subagents(lost, config, mala_api, mala_options, tmp_path):
    ask = {"description": "Help", "prompt": "Help out", "subagent_type": "general-purpose"}
    api = mala_api([tool("Agent", **ask, run_in_background=False), "done", "on"], subagents=["I helped."])
    session_id = await play(mala_options(api), ["Ask for help.", "/compact", "Go on."])
    transcript = transcript_of(config, session_id)
    (agent,) = transcript.with_suffix("").glob("subagents/*.jsonl")
    before = agent.read_bytes()
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive_session(transcript, session_id)
    if lost:
        transcript.unlink()
        shutil.rmtree(transcript.with_suffix(""))

    restored = archive.restore(session_id)

    (copy,) = (config / "projects").glob(f"*/{restored.session_id}/subagents/*.jsonl")
    assert restored.subagents == (str(copy),)
    assert copy.read_bytes() == before
    assert restored.missing == ()
    more = {"to": agent.stem.removeprefix("agent-"), "summary": "Ask it for a bit more", "message": "Say more."}
    api = mala_api([tool("SendMessage", **more), "asked", "heard"], subagents=["I said more."])
    async with ClaudeSDKClient(mala_options(api, resume=restored.session_id)) as client:
        await client.query("Again.")
        async for message in client.receive_messages():
            if type(message).__name__ == "ResultMessage" and (message.origin or {}).get("kind") == "task-notification":
                break
    (asked,) = api.of_kind("subagent")
    assert "Help out" in asked.text, "the agent has forgotten what it was asked first"
    assert "Say more." in asked.text
