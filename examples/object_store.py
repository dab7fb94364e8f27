"""Archives in an object store: sent while the agent works, read back, and only then removed from this disk.

Here the store is a folder, so the example needs only the package obstore. With `s3://bucket/prefix`, `gs://…` or
`az://…` and credentials in the environment the same code runs against a cloud. It runs offline: the real Claude Code
CLI with a scripted model. Run it with

    python examples/object_store.py
"""

from __future__ import annotations

import asyncio
import os
import tempfile

from claude_agent_sdk import ClaudeAgentOptions

from mala_context import ArchiveConfig, ContextConfig, TranscriptArchive, instrument, verify_archive
from mala_context.testing import ScriptedMessagesAPI, summary


async def work(options: ClaudeAgentOptions, config: ContextConfig) -> tuple[TranscriptArchive, str]:
    """Run a session with a compaction; a background thread sends its pieces to the store."""
    runtime = instrument(options, config=config)
    assert runtime.archive, "mala.yaml may switch it off"
    async with runtime.session() as session:
        for prompt in ("The test rig has port 41001.", "/compact"):
            async for _ in session.send(prompt):
                pass
    return runtime.archive, str(runtime.tracker.session_id)


def main(options: ClaudeAgentOptions, address: str) -> None:
    """Work, wait for the store, remove the local pieces, and read them from the store."""
    config = ContextConfig(archive=ArchiveConfig(directory=address, prefix="{host}/demo"))
    archive, session_id = asyncio.run(work(options, config))
    archive.push()  # waits for running uploads; a job that loses its disk at its end does this last
    pruned = archive.prune(session_ids=[session_id], dry_run=False)
    print(f"here: {len(os.listdir(archive.location))} file, the manifest; {pruned.freed:,} bytes freed")
    there = TranscriptArchive(archive.base())  # as another machine sees it
    report = verify_archive(there)
    print(f"there: {report.pieces} pieces, {report.bytes:,} bytes, {'sound' if report.ok else 'damaged'}")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedMessagesAPI(["Noted."], compactions=[summary("There is a test rig.")]) as api,
    ):
        os.environ["MALA_RUNS_DIR"] = f"{folder}/runs"
        main(api.options(), f"file://{folder}/bucket")
