"""Test an agent offline: the real CLI, its real tools, and a model that answers from the test's script.

It runs offline, as a test or as a program:

    pytest examples/testing_offline.py
    python examples/testing_offline.py
"""

from __future__ import annotations

import asyncio
import pathlib
import tempfile

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query

from mala_context.testing import ScriptedMessagesAPI, text, tool


async def release_notes(options: ClaudeAgentOptions) -> str:
    """Run the agent under test: ask for release notes and return the model's last text."""
    words = ""
    async for message in query(
        prompt="Write RELEASE.md from the log, then say how many changes it has.", options=options
    ):
        if isinstance(message, AssistantMessage):
            words = "".join(block.text for block in message.content if isinstance(block, TextBlock)) or words
        if isinstance(message, ResultMessage) and message.is_error:
            raise RuntimeError(message.result)
    return words


async def check(project: pathlib.Path) -> None:
    """Play one session; check the agent's files and the requests that its model received."""
    (project / "log.txt").write_text("fix the parser\nadd a flag\n", encoding="utf-8")
    script = [
        text("I read the log first.") + tool("Bash", command="cat log.txt"),
        tool("Write", file_path=str(project / "RELEASE.md"), content="- fix the parser\n- add a flag\n"),
        "Two changes.",
    ]
    with ScriptedMessagesAPI(script) as api:
        answer = await release_notes(api.options(cwd=project))

        assert answer == "Two changes."
        assert (project / "RELEASE.md").read_text(encoding="utf-8").count("\n") == 2
        assert api.main_requests[1].contains("fix the parser"), "the tool really ran, and the model got its output"
        for request in api.main_requests:
            print(f"request {request.number} held {request.tokens:,} tokens")


def test_release_notes(tmp_path: pathlib.Path) -> None:
    """Run the same check as a test."""
    asyncio.run(check(tmp_path))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(check(pathlib.Path(directory)))
