"""`mala-context completion`: the script that makes a shell complete our commands, options and session ids."""

from __future__ import annotations

from typing import Final

import click

VARIABLE: Final = "_MALA_CONTEXT_COMPLETE"
"""Under this variable the shell asks us for completions."""
PLACES: Final = {
    "bash": "~/.local/share/bash-completion/completions/mala-context",
    "zsh": "_mala-context in a directory of $fpath",
    "fish": "~/.config/fish/completions/mala-context.fish",
}
"""Where each shell looks for such lines."""


@click.command(
    epilog='Now: eval "$(mala-context completion bash)"; in fish: mala-context completion fish | source. For good: '
    + "; ".join(f"{shell}: {place}" for shell, place in PLACES.items())
    + "."
)
@click.argument("shell", type=click.Choice(list(PLACES)))
def completion(shell: str) -> None:
    """Print the completion script for bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from mala_context.cli.app import app

    known = get_completion_class(shell)
    if known is None:  # a click that has dropped it
        raise click.ClickException(f"the click that is installed cannot complete in {shell}")
    click.echo(known(app, {}, "mala-context", VARIABLE).source())
