"""The archive as session store of a live session on the real CLI, on asyncio and trio."""

import anyio
import pytest
from claude_agent_sdk import query

from mala_context.archive.session_store import ArchiveSessionStore
from mala_context.archive.store import TranscriptArchive

SECRET = "The password of the test rig is kingfisher-41."


async def ask(options, prompt):
    """Send one prompt to a CLI of its own and return the session's id."""
    async for message in query(prompt=prompt, options=options):
        last = message
    return last.session_id


async def mirror_and_resume(api, options, tmp_path, home):
    store = ArchiveSessionStore(tmp_path / "mirror")
    session_id = await ask(options(api, session_store=store), SECRET)
    (transcript,) = home.glob(f".claude/projects/*/{session_id}.jsonl")
    transcript.unlink()
    resumed = await ask(options(api, session_store=store, resume=session_id), "What was the password?")
    return session_id, resumed, transcript.parent.name


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_mirrored_session_is_resumed_without_its_transcript(backend, mala_api, mala_options, mala_home, tmp_path):
    api = mala_api(["noted", "kingfisher-41"])
    session_id, resumed, folder = anyio.run(mirror_and_resume, api, mala_options, tmp_path, mala_home, backend=backend)
    assert resumed == session_id
    assert SECRET in api.last.text
    mirrored = TranscriptArchive(tmp_path / "mirror" / folder)
    assert [each.session_id for each in mirrored.sessions()] == [session_id]
    assert mirrored.pieces(session_id)
