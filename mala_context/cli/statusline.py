"""`mala-context statusline`: one line for Claude Code's status line, from its JSON on standard input.

Claude Code runs it after each response and waits for it. So `cli.main` calls `fast` before click is imported. The click
command below has the same options; it answers `--help` and wrong usage.
"""

from __future__ import annotations

import os
import sys

from mala_context.cli.plain_options import parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COLORS = ("auto", "always", "never")


def fast(arguments: Sequence[str]) -> int | None:
    """Run the command without click, which takes 20 ms to load; return its exit status.

    Return `None` if click must answer: help, an argument, an option that is unknown, lacks its value or has one too
    many.
    """
    found = parsed(arguments, flags={"--json"}, values={"--format", "--color"})
    if found is None or found[1]:
        return None
    chosen = found[0]
    if chosen.get("--color", "auto") not in COLORS:
        return None
    return run(chosen.get("--format"), chosen.get("--color", "auto"), as_json="--json" in chosen)


def run(template: str | None, color: str, *, as_json: bool) -> int:
    """Print the line.

    If the input cannot be read, the line says so and the exit status is still 0: of a command that fails, Claude Code
    shows nothing.
    """
    from mala_context.agent.claude_code import statusline

    if template is not None:
        try:
            statusline.check_template(template)
            statusline.line(statusline.measure({}, {}), template)
        except ValueError as error:
            sys.stderr.write(f"mala-context: --format: {error}\n")
            return 2
    given = _input()
    history = as_json or any(field in (template or "") for field in statusline.HISTORY)
    gauge = statusline.measure(given or {}, os.environ, history=history)
    if as_json:
        import json

        text = json.dumps(gauge.as_dict())
    elif given is None:
        text = "mala-context: no JSON from Claude Code on standard input"
    else:
        text = statusline.line(gauge, template, color=statusline.wants_color(color, os.environ))
    data = f"{text}\n".encode("utf-8", "backslashreplace")
    try:
        while data and (count := os.write(1, data)):  # what takes nothing would be tried for ever
            data = data[count:]
    except OSError:
        pass  # the reader is gone
    return 0


def _input() -> dict[str, object] | None:
    if os.isatty(0):
        return None
    from mala_context._util.safe_open import reader_of
    from mala_context.agent.hook_io import object_from

    try:
        return object_from(*reader_of(0))
    except (OSError, ValueError):
        return None


def __getattr__(name: str) -> object:
    """Make click's command when it is asked for: the fast way must not import click."""
    if name != "statusline":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import click

    from mala_context.agent.claude_code.statusline import FIELDS

    @click.command(help=_HELP + "\b\nFields:\n" + "\n".join(f"  {{{key}}}  {doc}" for key, (_, doc) in FIELDS.items()))
    @click.option("--format", "template", metavar="TEMPLATE", help="What the line says, with fields like {percent}.")
    @click.option("--color", type=click.Choice(COLORS), default="auto", show_default=True, help="Colour by fullness.")
    @click.option("--json", "as_json", is_flag=True, help="Print all values as JSON instead.")
    @click.pass_context
    def statusline(context: click.Context, template: str | None, color: str, *, as_json: bool) -> None:
        context.exit(run(template, color, as_json=as_json))

    globals()[name] = statusline
    return statusline


_HELP = """Print one line for Claude Code's status line, from its JSON on standard input.

In settings.json: "statusLine": {"type": "command", "command": "mala-context statusline"}. The line is green,
yellow from 50 % and red from 80 % of the usable tokens. Usable is the size at which the CLI compacts by itself, or the
whole window if the CLI does not. A size marked ~ is an estimate. A ? says that the window is a guess: it stands after
the window or, in a template without {window}, after each figure that depends on it. If the input cannot be read, the
line says so, with exit status 0.

"""
