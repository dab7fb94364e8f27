"""Errors of the SDK as errors of ours, so that the command line can say them in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mala_context.errors import MalaContextError


class AgentUnusableError(MalaContextError):
    """The CLI could not be started, or ended before it answered."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what the SDK raises into `AgentUnusableError` with one line; imports the SDK."""
    from claude_agent_sdk import ClaudeSDKError, CLINotFoundError

    try:
        yield
    except CLINotFoundError as error:
        raise AgentUnusableError(f"the Claude Code CLI was not found: {_first_line(error)}") from error
    except ClaudeSDKError as error:
        raise AgentUnusableError(f"the Claude Code CLI failed: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
