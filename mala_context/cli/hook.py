"""`mala-context hook`: what Claude Code runs at an event, where `mala-context init` has put it into settings.json."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def fast(arguments: Sequence[str]) -> None:
    """Answer a hook and end the process; return for what click shall answer (help, mistakes)."""
    if arguments not in ([], ["warn"]):
        return
    try:
        from mala_context.agent.claude_code.command_hooks import answer_in_time

        answer, said = answer_in_time(arguments, os.environ)
    except BaseException as error:  # noqa: BLE001  # a hook never disturbs the session, whatever is wrong with it
        answer, said = b"{}", f"{type(error).__name__}: {error}"
    for stream, data in ((1, answer), (2, f"mala-context: {said}".encode("utf-8", "replace") if said else b"")):
        try:
            if data:
                os.write(stream, data + b"\n")
        except OSError:
            pass  # the reader is gone
    os._exit(0)


def __getattr__(name: str) -> object:
    """Make click's command when it is asked for: the fast way must not import click."""
    if name != "hook":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import click

    @click.command(help=_HELP)
    @click.argument("event", required=False, type=click.Choice(["warn"]), metavar="[warn]")
    def hook(event: str | None) -> None:
        fast([event] if event else [])

    globals()[name] = hook
    return hook


_HELP = """Answer an event of Claude Code: a hook's JSON on standard input, JSON on standard output.

`mala-context init` puts this command into settings.json; there is no need to run it by hand. It archives the transcript
before a compaction and at a session's end. `warn` is for UserPromptSubmit: it warns of a full context if you asked for
that. It never blocks anything: the exit status is 0 whatever happens.
"""
