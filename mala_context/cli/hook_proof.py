"""A session that proves whether hooks fire: the real CLI, our wiring, a scripted API on the loopback."""

from __future__ import annotations

import glob
import os
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from mala_context.analysis.doctor.facts import HookProof
from mala_context.archive.manifests import PRECOMPACT_TRIGGERS
from mala_context.cli.agent_runner import AgentUnusableError, first_line, load_sdk, run_agent
from mala_context.errors import MalaContextError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS: Final = 60.0
"""Longest that the session may take; two or three are usual."""
WRITTEN_SECONDS: Final = 5.0
"""Longest to wait for the CLI to write its transcript's first rows."""
_PAUSE: Final = 0.02


def prove(**options: Any) -> HookProof:
    """Play one exchange and a `/compact`, and see whether the archive has it.

    Everything is read and written in a temporary directory; only the managed settings of this machine apply too.
    `options` are fields of `ClaudeAgentOptions`. Raises nothing but `KeyboardInterrupt`.
    """
    from mala_context.testing import ScriptError

    load_sdk()
    begun = time.monotonic()
    error = None
    archived = False
    try:
        with tempfile.TemporaryDirectory(prefix="mala-context-doctor-", ignore_cleanup_errors=True) as directory:
            archived = run_agent(_play, directory, options)
    except TimeoutError:
        error = f"it was not over after {SECONDS:g} s"
    except (AgentUnusableError, MalaContextError, OSError, ScriptError) as failure:
        error = first_line(str(failure))
    return HookProof(archived, time.monotonic() - begun, error)


async def _play(directory: str, options: Mapping[str, Any]) -> bool:
    import anyio

    from mala_context.agent.builder import instrument
    from mala_context.config import ArchiveConfig, ContextConfig
    from mala_context.testing import ScriptedMessagesAPI

    config = ContextConfig(archive=ArchiveConfig(directory=os.path.join(directory, "archives"), at_session_end=False))
    project = os.path.join(directory, "project")
    os.mkdir(project)
    with ScriptedMessagesAPI(["Noted."]) as api, anyio.fail_after(SECONDS):
        given = api.options(cwd=project, home=os.path.join(directory, "home"), **options)
        runtime = instrument(given, project, config=config)
        async with runtime.session() as session:
            for prompt in ("Remember the word heron.", "/compact"):
                async for _ in session.send(prompt):
                    pass
                await _written(given.env["HOME"])
        archive = runtime.archive
        if archive is None:
            return False
        return any(
            piece.row is not None and piece.row.get("trigger") in PRECOMPACT_TRIGGERS
            for summary in archive.sessions()
            for piece in archive.pieces(summary.session_id)
        )


async def _written(home: str) -> None:
    """Wait until the transcript is there: a CLI may write it a little after its result (2.1.119 does)."""
    import anyio

    rows = os.path.join(glob.escape(home), ".claude", "projects", "*", "*.jsonl")
    for _ in range(int(WRITTEN_SECONDS / _PAUSE)):
        if glob.glob(rows):
            return
        await anyio.sleep(_PAUSE)
