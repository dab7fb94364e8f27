"""`mala-context run`: a prompt with the user's own Claude Code login or key, its context watched and archived."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from mala_context.cli.agent_runner import AgentUnusableError, first_line, load_sdk, run_agent, why_failed
from mala_context.cli.inputs import ExistingDirectory, complete_session
from mala_context.errors import ArchiveUnavailableError

if TYPE_CHECKING:
    from mala_context.agent.runtime import AgentRuntime

MODES: Final = ("default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto")
NOT_LOGGED_IN: Final = "authentication_failed"
"""The `error` of the answer that the CLI itself gives if there is no login."""


@click.command()
@click.argument("prompt")
@click.option("--model", help="The model, as Claude Code takes it; by default the user's own setting.")
@click.option(
    "--cwd",
    type=ExistingDirectory(),
    default=".",
    help="Directory to work in; its mala.yaml counts.  [default: the current one]",
)
@click.option("--resume", metavar="ID", shell_complete=complete_session, help="Continue this session.")
@click.option("--permission-mode", type=click.Choice(MODES), help="By default the user's own setting.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end, and no text, on standard output."
)
def run(
    prompt: str,
    model: str | None,
    cwd: str,
    resume: str | None,
    permission_mode: str | None,
    as_json: bool,
) -> int:
    """Run PROMPT (- reads it from standard input) with your own Claude Code login or key.

    The agent's words go to standard output as they come, the gauge to standard error. Exit status 1 if the run ends
    with an error, 3 if the CLI is not there, cannot be started or is not logged in.

    The keys of --json: ok, result, error, session_id, num_turns, total_cost_usd, duration_ms, context (every value of
    the snapshot), compactions, archive (its directory, or null).
    """
    text = _read_prompt(prompt)
    load_sdk()
    runtime = _runtime(model, os.path.abspath(cwd), resume, permission_mode)
    show = _Printer(silent=as_json)
    outcome = run_agent(_run, runtime, text, show)
    if as_json:
        click.echo(json.dumps(_summary(runtime, outcome), indent=2, ensure_ascii=False))
    if outcome.not_logged_in:
        raise AgentUnusableError(
            "Claude Code has no login or key that works; run `claude` and log in, or set ANTHROPIC_API_KEY "
            f"(it says: {first_line(outcome.error)})"
        )
    if outcome.error is not None:
        click.echo(f"mala-context: the run ended with an error: {first_line(outcome.error)}", err=True)
        return 1
    return 0


def _read_prompt(prompt: str) -> str:
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.BadParameter(
            "it is empty; give the words, or - to read them from standard input", param_hint="PROMPT"
        )
    return text


def _runtime(model: str | None, cwd: str, resume: str | None, permission_mode: str | None) -> AgentRuntime:
    from claude_agent_sdk import ClaudeAgentOptions

    from mala_context.agent.builder import instrument

    options = ClaudeAgentOptions(
        model=model,
        cwd=cwd,
        resume=resume,
        permission_mode=permission_mode,  # type: ignore[arg-type]  # click lets only MODES through
        system_prompt={"type": "preset", "preset": "claude_code"},
        include_partial_messages=True,
    )
    return instrument(options)


class _Outcome:
    """How a run ended."""

    def __init__(self) -> None:
        self.result: Any = None
        self.not_logged_in = False

    def message(self, message: Any) -> None:
        """Look at a message."""
        kind = type(message).__name__
        if kind == "ResultMessage":
            self.result = message
        elif kind == "AssistantMessage" and getattr(message, "error", None) == NOT_LOGGED_IN:
            self.not_logged_in = True

    @property
    def error(self) -> str | None:
        """Why the run failed; `None` where it did not."""
        result = self.result
        if result is None:
            return "the CLI ended before it had answered"
        if not result.is_error:
            return None
        return why_failed(result)


class _Printer:
    """Prints the main agent's words as they stream in; prints nothing if it is `silent`.

    Words that are not streamed, such as the CLI's own, are printed with their message.
    """

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._streamed: set[str | None] = set()
        self.at_line_start = True

    def message(self, message: Any) -> None:
        """Print a message's text, once."""
        if getattr(message, "parent_tool_use_id", None) is not None or getattr(message, "error", None):
            return  # an error is said at the end, on standard error
        kind = type(message).__name__
        if kind == "StreamEvent":
            self._event(message.event)
        elif kind == "AssistantMessage" and message.message_id not in self._streamed:
            for block in message.content:
                self._write(getattr(block, "text", ""))
            self.close()

    def close(self) -> None:
        """End the line that is begun."""
        if not self.at_line_start:
            self._write("\n")

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            self._streamed = {event.get("message", {}).get("id")}
        elif kind == "content_block_delta":
            self._write(event.get("delta", {}).get("text") or "")
        elif kind == "content_block_stop":
            self.close()

    def _write(self, text: str) -> None:
        if text and not self._silent:
            click.echo(text, nl=False)
            sys.stdout.flush()
            self.at_line_start = text.endswith("\n")


async def _run(runtime: AgentRuntime, prompt: str, show: _Printer) -> _Outcome:
    from mala_context.cli.live_gauge import gauge_lines

    outcome = _Outcome()
    with gauge_lines() as draw:
        async with runtime.session() as session:
            async for message in session.send(prompt):
                show.message(message)
                outcome.message(message)
                if show.at_line_start:
                    draw(session.context)
        show.close()
    return outcome


def _summary(runtime: AgentRuntime, outcome: _Outcome) -> dict[str, Any]:
    result, snapshot = outcome.result, runtime.tracker.snapshot()
    try:
        directory = None if runtime.archive is None else runtime.archive.location
    except ArchiveUnavailableError:
        directory = None
    return {
        "ok": outcome.error is None,
        "result": getattr(result, "result", None),
        "error": outcome.error,
        "session_id": getattr(result, "session_id", None),
        "num_turns": getattr(result, "num_turns", None),
        "total_cost_usd": getattr(result, "total_cost_usd", None),
        "duration_ms": getattr(result, "duration_ms", None),
        "context": snapshot.as_dict(),
        "compactions": snapshot.compactions,
        "archive": directory,
    }
