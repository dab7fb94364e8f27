"""`mala-context config`: which values are in force and why, what is wrong with a file, and a file to begin with."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any

import click

from mala_context._util.text import printable
from mala_context.cli.archives.common import say_json
from mala_context.cli.exit_status import CHECK_FAILED, SUBCOMMAND, UNUSABLE_INPUT, help_if_alone
from mala_context.cli.files import publish, text_writer
from mala_context.cli.inputs import must_be_there
from mala_context.errors import ConfigError


@click.group(invoke_without_command=True, subcommand_metavar=SUBCOMMAND)
@click.pass_context
def config(context: click.Context) -> None:
    """Show, check or create a mala.yaml.

    PATH is a repository or the file itself; the working directory by default. Without a file the defaults are in force.
    """
    help_if_alone(context)


@config.command()
@click.argument("path", default=".", metavar="[PATH]", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="JSON for machines.")
def show(path: str, as_json: bool) -> None:
    """Show every value in force and where it comes from: a line of mala.yaml, or the default."""
    from mala_context.config import SCHEMA, load_with_lines, setting

    must_be_there(path)
    loaded = load_with_lines(path)
    values = {key.path: (setting(loaded.config, key.path), loaded.lines.get(key.path)) for key in SCHEMA}
    if as_json:
        say_json(
            {
                "path": loaded.path,
                "values": {
                    name: {"value": value, "line": line, "from": "default" if line is None else f"{loaded.path}:{line}"}
                    for name, (value, line) in values.items()
                },
            }
        )
        return
    click.echo(f"{printable(loaded.path)}:" if loaded.path is not None else "no mala.yaml; all values are defaults:")
    width = max(map(len, values))
    for name, (value, line) in values.items():
        origin = "default" if line is None else f"line {line}"
        click.echo(f"{name.ljust(width)}  {origin.ljust(8)}  {printable(_text(value))}")


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(value), ensure_ascii=False)
    return value if isinstance(value, str) else json.dumps(value)


@config.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="JSON for machines.")
def check(paths: tuple[str, ...], as_json: bool) -> None:
    """Show everything that is wrong with each mala.yaml.

    Exit status 1 if something is wrong, 3 if a file is not there or cannot be read.
    """
    from mala_context.config import load_with_lines

    results: list[dict[str, Any]] = []
    unreadable: list[ConfigError] = []
    for path in paths or (".",):
        must_be_there(path)
        try:
            loaded = load_with_lines(path)
        except ConfigError as error:
            if isinstance(error.__cause__, OSError):
                unreadable.append(error)
            problems = [{"key": each.key, "line": each.line, "message": each.message} for each in error.problems]
            results.append({"path": error.path, "ok": False, "problems": problems, "text": str(error)})
        else:
            found = f"{loaded.path}: valid" if loaded.path else f"{path}: no mala.yaml, the defaults are in force"
            results.append({"path": loaded.path, "ok": True, "problems": [], "text": found})
    if as_json:
        say_json([{name: each[name] for name in ("path", "ok", "problems")} for each in results])
    else:
        for each in results:
            for line in each["text"].split("\n"):
                click.echo(printable(line))
    if unreadable:
        click.get_current_context().exit(UNUSABLE_INPUT)
    if not all(each["ok"] for each in results):
        click.get_current_context().exit(CHECK_FAILED)


@config.command()
@click.argument("path", default=".", metavar="[PATH]", type=click.Path())
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Write to standard output instead.")
def init(path: str, force: bool, to_stdout: bool) -> None:
    """Write a mala.yaml with every key, what it does and its default, all of it commented out.

    A file that is there stays as it is, unless you give --force.
    """
    from mala_context.config.reading import FILE_NAME
    from mala_context.config.template import template

    if to_stdout:
        sys.stdout.write(template())
        return
    target = os.path.join(path, FILE_NAME) if os.path.isdir(path) else path
    try:
        with publish(target, replace=force) as temporary, text_writer(temporary) as file:
            file.write(template())
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "it is there already; --force replaces it", target) from None
    click.echo(f"{printable(target)} written")
