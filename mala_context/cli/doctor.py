"""`mala-context doctor`: what is wrong on this machine, and how to mend it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from mala_context._util.formatting import plural
from mala_context._util.printable import printable
from mala_context.cli.archives.common import repository
from mala_context.cli.paths import ThereDirectory
from mala_context.cli.progress import waiting
from mala_context.errors import ArchiveUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.analysis.doctor import Checked, Finding

SHOWN = 5
"""Items of a finding that are shown to people; --json has all."""


@click.command()
@click.option(
    "--repo",
    type=ThereDirectory(),
    help="The repository whose mala.yaml and settings count; else the one around the working directory.",
)
@click.option("--no-session", is_flag=True, help="Play no session on the loopback to see whether hooks fire.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def doctor(repo: str | None, no_session: bool, as_json: bool) -> int:
    """Say what is wrong on this machine, and how to mend it.

    Looks at the Claude Code CLI and its settings, at mala.yaml, transcripts and archives, and plays a session of three
    seconds on the loopback (no key, no network). Mends nothing itself. Exit status 1 where something is wrong.
    """
    from mala_context.analysis.doctor import examine, gather
    from mala_context.cli.hook_proof import prove

    gone = _leave_what_is_gone()
    place = os.path.realpath(repo if repo is not None else gone or _repository())
    with waiting("reading transcripts and archives") as progress:
        checked = examine(gather(place, prove_hooks=None if no_session else prove, progress=progress))
    found = [finding for each in checked for finding in each.findings]
    if as_json:
        sys.stdout.write(json.dumps(_as_dict(place, checked), indent=2) + "\n")
    else:
        _show(place, checked, found)
    return 1 if found else 0


def _leave_what_is_gone() -> str | None:
    """Go to the root directory where the working directory was deleted, and say so; return what it was called.

    What is started in such a directory, the CLI too, ends at once.
    """
    try:
        os.getcwd()
    except OSError:
        was = os.environ.get("PWD", "")
        was = was if os.path.isabs(was) else os.sep
        click.echo(f"mala-context: the working directory is gone, {printable(was)}; the rest is looked at", err=True)
        os.chdir(os.sep)
        return was
    return None


def _repository() -> str:
    """Return the repository around the working directory; that archives have no place is a finding, not the end."""
    try:
        return repository()
    except ArchiveUnavailableError:
        return os.getcwd()


def _as_dict(place: str, checked: Sequence[Checked]) -> dict[str, Any]:
    findings = [finding.as_dict() for each in checked for finding in each.findings]
    checks = [
        {"name": each.check.name, "title": each.check.title, "state": each.state, "words": each.words}
        for each in checked
    ]
    return {"ok": not findings, "repo": place, "checks": checks, "findings": findings}


def _show(place: str, checked: Sequence[Checked], found: Sequence[Finding]) -> None:
    from rich.text import Text

    from mala_context.cli.tables import can_encode, console

    out = console()
    signs = ("✓", "✗", "-") if can_encode(out, "✓✗") else ("ok", "FAILED", "-")
    looks = {"ok": (signs[0], "green"), "failed": (signs[1], "bold red"), "skipped": (signs[2], "dim")}
    width = max(len(each.check.title) for each in checked)
    out.print(f"{printable(place)}:", soft_wrap=True)
    for each in checked:
        sign, style = looks[each.state]
        words = (
            "not looked at" if each.skipped else plural(len(each.findings), "finding") if each.findings else each.words
        )
        line = Text.assemble((sign, style), f" {each.check.title.ljust(width)}  ", printable(words))
        out.print(line, soft_wrap=True)
    for finding in found:
        _show_finding(out, finding)
    out.print()
    out.print("Nothing is wrong." if not found else f"{plural(len(found), 'thing is', 'things are')} wrong.")


def _show_finding(out: Any, finding: Finding) -> None:
    from textwrap import wrap

    from rich.text import Text

    colour = {"error": "bold red", "warning": "yellow"}[finding.severity]
    out.print()
    out.print(Text.assemble((finding.severity, colour), f" {printable(finding.where)}"), soft_wrap=True)
    for line in wrap(printable(finding.found), max(20, out.width - 2), break_long_words=False):
        out.print(Text(f"  {line}"), soft_wrap=True)
    for item in finding.items[:SHOWN]:
        out.print(Text(f"  - {printable(item)}"), soft_wrap=True)
    if len(finding.items) > SHOWN:
        out.print(Text(f"  - and {len(finding.items) - SHOWN:,} more; --json lists all"))
    out.print(Text.assemble(("  mend: ", "bold"), printable(finding.mend)), soft_wrap=True)
