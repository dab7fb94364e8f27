"""`mala-context doctor`: what is wrong on this machine, and how to fix it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from mala_context._util.text import plural, printable
from mala_context.cli.archives.common import repository
from mala_context.cli.inputs import ExistingDirectory
from mala_context.cli.progress import waiting
from mala_context.errors import ArchiveUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.analysis.doctor import CheckResult, Finding

SHOWN = 5
"""Items and commands of a finding that are shown to people; --json has all."""


@click.command()
@click.option(
    "--repo",
    type=ExistingDirectory(),
    help="The repository to check.  [default: the one around the working directory]",
)
@click.option("--no-session", is_flag=True, help="Do not play a session on the loopback to see whether hooks fire.")
@click.option("--fix", is_flag=True, help="Run the commands that fix what is wrong; asks before each finding.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def doctor(repo: str | None, no_session: bool, fix: bool, yes: bool, as_json: bool) -> int:
    """Check this machine and show how to fix what is wrong.

    Looks at the Claude Code CLI and its settings, at mala.yaml, transcripts and archives, and plays a session of three
    seconds on the loopback (no key, no network). Without --fix it changes nothing, but writes a few bytes to an object
    store and removes them. --fix makes files private, archives transcripts and repairs archives; it never removes
    anything. Exit status 1 if something is wrong.
    """
    from mala_context.analysis.doctor import examine, gather
    from mala_context.cli.hook_proof import prove

    if fix and as_json:
        raise click.UsageError("--fix and --json exclude each other.")
    left = _leave_deleted_directory()
    place = os.path.realpath(repo if repo is not None else left or _repository())
    with waiting("reading transcripts and archives") as progress:
        checked = examine(gather(place, prove_hooks=None if no_session else prove, progress=progress))
    found = [finding for each in checked for finding in each.findings]
    if as_json:
        sys.stdout.write(json.dumps(_as_dict(place, checked), indent=2) + "\n")
    else:
        _show(place, checked, found)
    if fix and _run(found, ask=not yes):
        again = examine(gather(place))
        found = [each for each in found if each.check == "hooks"] + [each for one in again for each in one.findings]
        click.echo(f"Checked again: {_summary(found)}")
    return 1 if found else 0


def _run(found: Sequence[Finding], *, ask: bool) -> bool:
    """Run the commands of findings, each finding's after a question; return whether anything was run."""
    has_run = False
    for finding in found:
        if not finding.commands:
            continue
        click.echo(f"\n{printable(finding.found)}")
        for command in finding.commands:
            click.echo(f"  {printable(shlex.join(command))}")
        if ask and not click.confirm("Run this?" if len(finding.commands) == 1 else "Run these?"):
            continue
        for command in finding.commands:
            program = [sys.executable, "-m", "mala_context.cli"] if command[0] == "mala-context" else [command[0]]
            has_run = True
            status = subprocess.run([*program, *command[1:]], check=False).returncode
            if status:
                click.echo(f"mala-context: {printable(shlex.join(command))}: exit status {status}", err=True)
    return has_run


def _leave_deleted_directory() -> str | None:
    """Go to the root directory where the working directory was deleted, and say so; return its former path.

    Programs that are started in such a directory, the CLI too, end at once.
    """
    try:
        os.getcwd()
    except OSError:
        was = os.environ.get("PWD", "")
        was = was if os.path.isabs(was) else os.sep
        click.echo(
            f"mala-context: the working directory is gone, {printable(was)}; everything else is checked", err=True
        )
        os.chdir(os.sep)
        return was
    return None


def _repository() -> str:
    """Return the repository around the working directory; it is no error here if archives have no place."""
    try:
        return repository()
    except ArchiveUnavailableError:
        return os.getcwd()


def _as_dict(place: str, checked: Sequence[CheckResult]) -> dict[str, Any]:
    findings = [finding.as_dict() for each in checked for finding in each.findings]
    checks = [
        {"name": each.check.name, "title": each.check.title, "state": each.state, "words": each.words}
        for each in checked
    ]
    return {"ok": not findings, "repo": place, "checks": checks, "findings": findings}


def _show(place: str, checked: Sequence[CheckResult], found: Sequence[Finding]) -> None:
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
    out.print(_summary(found))


def _summary(found: Sequence[Finding]) -> str:
    return f"{plural(len(found), 'thing is', 'things are')} wrong." if found else "Nothing is wrong."


def _show_finding(out: Any, finding: Finding) -> None:
    from rich.text import Text

    colour = {"error": "bold red", "warning": "yellow"}[finding.severity]
    out.print()
    out.print(Text.assemble((finding.severity, colour), f" {printable(finding.where)}"), soft_wrap=True)
    for part in printable(finding.found, lines=True).splitlines():
        for line in wrap(part, max(20, out.width - 2), break_long_words=False):
            out.print(Text(f"  {line}"), soft_wrap=True)
    for item in finding.items[:SHOWN]:
        words = printable(item, lines=True).replace("\n", "\n    ")  # a removed field's words have two lines
        out.print(Text(f"  - {words}"), soft_wrap=True)
    if len(finding.items) > SHOWN:
        out.print(Text(f"  - and {len(finding.items) - SHOWN:,} more; --json lists all"))
    steps = finding.steps()
    for place, step in enumerate(steps[:SHOWN]):
        out.print(Text.assemble(("  fix: " if place == 0 else "       ", "bold"), printable(step)), soft_wrap=True)
    if len(steps) > SHOWN:
        out.print(Text(f"       and {len(steps) - SHOWN:,} more; `mala-context doctor --fix` runs all"))
