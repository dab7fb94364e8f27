"""Makes `docs/reference/cli.md` from the commands themselves; run it after a change of a command's help or options.

python tests/cli_reference.py
"""

import inspect
import pathlib
from importlib import import_module

import click

from mala_context.cli.app import COMMANDS

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
HEAD = """\
# Command line

| exit status | means |
| -- | -- |
| 0 | fine |
| 1 | a check failed: the checked files or machine have a fault |
| 2 | wrong usage: an error in the command line itself |
| 3 | an input was not found, cannot be read or cannot be used |
| 130 | ended by Ctrl-C; an output file is complete or unchanged |

Data goes to standard output, and all other text to standard error. `--json` (`--format json` for `replay`) prints JSON
and nothing else. Work that takes over two seconds shows its progress, on a terminal only. `NO_COLOR` removes the
colours. Control characters in text from transcripts are spelt out on a terminal.

Completion for bash, zsh and fish: `eval "$(mala-context completion bash)"`, see
[completion](#mala-context-completion).
"""


def page():
    """Return the page's text."""
    parts = [HEAD]
    for name, (module, line) in COMMANDS.items():
        parts += _command(("mala-context", name), getattr(import_module(module), name.replace("-", "_")), line)
    return "\n".join(parts)


def _command(words, command, line=""):
    """Yield the Markdown of a command, and of those below it."""
    context = click.Context(command)
    depth = "#" * len(words)
    yield f"{depth} {' '.join(words)}\n"
    if line and not command.help:
        yield f"{line}\n"
    yield f"{_text(command.help or '')}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _command((*words, name), command.get_command(context, name))
        return
    arguments = [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    yield f"```text\n{' '.join([*words, '[OPTIONS]', *arguments])}\n```\n"
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        yield "| option | what it does |\n| -- | -- |\n" + "".join(map(_option, options))
    if command.epilog:
        yield f"{_text(command.epilog)}\n"


def _text(text):
    """Return the words as Markdown: a paragraph's lines joined, one that is laid out (behind a `\b`) as it is."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"```text\n{each[2:]}\n```" if each.startswith("\b\n") else _words(each) for each in paragraphs)


def _words(text):
    """Join lines; the words are ours, but Markdown must not read them as its own."""
    return " ".join(text.split()).replace("*", "\\*").replace("_", "\\_")


def _argument(argument):
    name = argument.metavar or (argument.name or "").upper() + "..." * (argument.nargs == -1)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option):
    kind = option.type
    if option.is_flag:
        value = ""
    elif isinstance(kind, click.Choice):
        value = " " + "\\|".join(kind.choices)
    else:
        value = " " + (option.metavar or _KINDS.get(type(kind).__name__, "TEXT"))
    names = ", ".join(f"`{each}`" for each in option.opts)
    default = f" (default: {option.default})" if option.show_default and option.default is not None else ""
    text = _words(option.help or "").replace("|", "\\|").replace("[default: ", "(default: ").replace("]", ")")
    return f"| {names}{value} | {text}{default} |\n"


_KINDS = {"IntRange": "N", "IntParamType": "N", "FloatRange": "NUMBER", "FloatParamType": "NUMBER"}
_KINDS |= {"Path": "PATH", "ExistingDirectory": "DIRECTORY"}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
