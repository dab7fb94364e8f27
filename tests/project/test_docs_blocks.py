"""Every code block of the pages runs, or says in a comment why it cannot.

Python blocks of a page run one after the other in one namespace, against a scripted API on the real CLI; test functions
in them are called with their fixtures. Commands of pages that `walkthrough` does not play are held against the command
line's own parser. Configurations are parsed, and those that are to be refused are refused in the words behind them.
"""

import ast
import asyncio
import inspect
import json
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from importlib import import_module
from itertools import pairwise

import claude_agent_sdk
import click
import pytest
import yaml

import mala_context
from mala_context.cli.app import COMMANDS
from mala_context.config import parse
from mala_context.errors import ConfigError
from mala_context.testing import ScriptedMessagesAPI, text, tool
from mala_context.testing.scripts import fill_until_compaction
from tests.helpers import doc_pages
from tests.helpers.doc_pages import BLOCKS, FILE, NOT_RUN, PLAYED, REFUSED, ROOT, of_kind
from tests.helpers.small_transcripts import SID, dump, session

MOST_NOT_RUN = 3
"""Blocks that may say that they cannot run."""
KINDS = {
    "python",
    "yaml",
    "json",
    "jsonl",
    "console",
    "sh",
    "bash",
    "markdown",
    "text",
    "",
    "{eval-rst}",
    "toml",
    "ini",
}
PROGRAMS = {"mala-context", "pip", "python3", "python", "git", "find", "claude", "cd", "export", "zstd", "source", "."}
PROGRAMS |= {"pytest", "opentelemetry-instrument", "echo", "ruff", "mypy", "lint-imports"}
"""First words of commands that pages may use."""
LOGGED = re.compile(
    r"\s*(?:(?:INFO|WARNING|ERROR) )?(?:Context|PreCompact|Compaction|Archived|Tool output|Session \S+): "
)
GIVEN = ("ClaudeAgentOptions", "ClaudeSDKClient", "query")
LOG_PAGE = (ROOT / "docs/reference/log-lines.md").read_text(encoding="utf-8")
LOG_LINES = re.findall(r"^\| [A-Z]+ \| `([^`]+)`", LOG_PAGE, re.MULTILINE)


def each(blocks):
    return [pytest.param(block, id=block.id) for block in blocks]


class TestWhatIsNotRun:
    def test_is_little_and_says_why(self):
        left_out = [block for block in BLOCKS if block.mark == NOT_RUN]
        assert all(block.words and len(block.words.split()) >= 3 for block in left_out)
        assert len(left_out) <= MOST_NOT_RUN, [block.id for block in left_out]

    @pytest.mark.parametrize("block", each(BLOCKS))
    def test_no_block_is_of_a_kind_that_nobody_looks_at(self, block):
        assert block.kind in KINDS
        assert block.kind != "python" or ast.parse(block.body)

    def test_a_fence_is_closed(self):
        for path in doc_pages.PAGES:
            assert len(re.findall(r"^ *```", path.read_text(encoding="utf-8"), re.MULTILINE)) == 2 * len(
                doc_pages.read(path)
            )


def python_pages(*, apart):
    """Return the pages with blocks of Python that are not written to a file and run from there.

    Those that set up OpenTelemetry do that for the whole process, and want one of their own.
    """
    pages = {}
    for block in of_kind("python"):
        if block.mark != FILE:
            pages.setdefault(block.path, []).append(block)
    return [
        pytest.param(blocks, id=str(path.relative_to(ROOT)))
        for path, blocks in pages.items()
        if any("opentelemetry" in block.body for block in blocks) == apart
    ]


async def read(client, prompt):
    """Send a prompt and read its answer; the page on tests leaves this to its reader."""
    await client.query(prompt)
    async for _ in client.receive_response():
        pass


@pytest.fixture
def given(mala_api, mala_options, mala_project, mala_home, mala_runs, monkeypatch):
    """Return the names that blocks take as given, in a project with an archived session and a scripted account."""
    api = mala_api((f"Answer {number}." for number in range(1_000)), strict=False)
    for name, value in api.env(mala_home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(mala_project)
    (mala_project / "again.md").write_text("Go on.\n{checkpoint}\n")
    transcript = mala_project.parent / f"{SID}.jsonl"
    transcript.write_bytes(dump([row | {"cwd": str(mala_project)} for row in session(2)]))
    mala_context.TranscriptArchive(repo_path=mala_project).archive(transcript, SID, trigger="auto")
    names = {name: getattr(claude_agent_sdk, name) for name in GIVEN}
    names |= {"ScriptedMessagesAPI": ScriptedMessagesAPI, "text": text, "tool": tool, "read": read}
    names |= {"fill_until_compaction": fill_until_compaction, "asyncio": asyncio, "threading": threading}
    names |= {"mala_api": mala_api, "mala_options": mala_options, "mala_project": mala_project, "home": mala_home}
    names |= {"project": mala_project, "options": api.options(cwd=mala_project, home=mala_home), "session_id": SID}
    return names | {"prompts": ["One.", "Two."], "ContextPressureError": mala_context.ContextPressureError}


@pytest.mark.parametrize("blocks", python_pages(apart=False))
async def test_python_runs(blocks, given, request):
    for block in blocks:
        known = set(given)
        code = compile(block.body, block.id, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, given)
        if inspect.iscoroutine(waiting):
            await waiting
        for name in sorted(set(given) - known):
            if name.startswith("test_"):
                test = given[name]
                fixtures = {each: request.getfixturevalue(each) for each in inspect.signature(test).parameters}
                await test(**fixtures)


@pytest.mark.parametrize("blocks", python_pages(apart=True))
def test_python_runs_in_a_process_of_its_own(blocks, given):
    """Nothing is exported at its end: it ends at once."""
    program = "import os\n" + "\n\n".join(block.body for block in blocks) + "\nprint('done', flush=True)\nos._exit(0)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize("block", each(block for block in of_kind("yaml") if block.mark is None))
def test_a_configuration_is_read(block):
    if block.body.startswith(("context:", "#")) and "context:" in block.body:
        parse(block.body)
    else:
        assert yaml.safe_load(block.body)


@pytest.mark.parametrize(
    ("block", "behind"),
    [pytest.param(*pair, id=pair[0].id) for pair in pairwise(BLOCKS) if pair[0].mark == REFUSED],
)
def test_a_configuration_is_refused_in_these_words(block, behind):
    with pytest.raises(ConfigError) as error:
        parse(block.body, path="mala.yaml")
    assert str(error.value) == behind.body.rstrip("\n")


@pytest.mark.parametrize("block", each(of_kind("json", "jsonl")))
def test_json_is_json(block):
    """One value, or one a line."""
    try:
        json.loads(block.body)
    except ValueError:
        for line in block.body.splitlines():
            json.loads(line)


@pytest.mark.parametrize("block", each(of_kind("markdown")))
def test_a_template_has_a_place_for_the_checkpoint(block):
    assert "{checkpoint}" in block.body


def command_lines(block):
    """Return the commands of a block that a shell would run one by one."""
    lines = block.body.replace("\\\n", " ").splitlines()
    lines = [line[2:] for line in lines if line.startswith("$ ")] if block.kind == "console" else lines
    lines = [line.partition(" # ")[0].strip() for line in lines]
    parts = [part.strip() for line in lines for part in re.split(r"&&|\|\||(?<!\\)\||;", line)]
    return [part for part in parts if part and not part.startswith("#")]


def commands():
    return [
        pytest.param(line, id=f"{block.id}: {line}"[:100])
        for block in of_kind("console", "sh", "bash")
        if not PLAYED.search(block.path.read_text(encoding="utf-8"))
        for line in command_lines(block)
    ]


def parse_arguments(command, arguments):
    """Hold arguments against a command's parser; raises `click.UsageError` for what it does not know."""
    context = click.Context(command)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, name
        context = click.Context(command, parent=context)
    options, _, _ = command.make_parser(context).parse_args(list(arguments))
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and parameter.name in options:
            value = options[parameter.name]
            for each in value if isinstance(value, list | tuple) else [value]:
                parameter.type.convert(each, parameter, context)


@pytest.mark.parametrize("line", commands())
def test_a_command_is_one_that_there_is(line):
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    words = shlex.split(re.sub(r"(?<!\w)[\d&]?>+\s*\S+|<\s*\S+", "", line).replace("…", "x"))
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words:
        return
    program = pathlib.Path(words[0]).name
    assert program in PROGRAMS, f"{line}: is it checked?"
    if program == "pip":
        named = re.findall(r"\[([\w,]+)\]", line)
        assert words[1] == "install"
        assert {extra for each in named for extra in each.split(",")} <= extras
    if program == "mala-context" and words[1:]:
        if words[1].startswith("-"):
            return
        module, _ = COMMANDS[words[1]]
        parse_arguments(getattr(import_module(module), words[1].replace("-", "_")), words[2:])


def log_patterns():
    """Return the documented log lines as patterns; what may follow a line is in its own row's words."""
    parts = [[re.escape(part) for part in re.split(r"\{[^}]*\}", line)] for line in LOG_LINES]
    return [re.compile(".+".join(part) + ".*") for part in parts]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=f"{block.id}: {line}"[:100])
        for block in of_kind("", "text", "console")
        for line in block.body.splitlines()
        if LOGGED.match(line)
    ],
)
def test_a_log_line_that_a_page_shows_is_one_that_there_is(line):
    said = re.sub(r"^\s*(?:(?:INFO|WARNING|ERROR) )?", "", line)
    assert any(pattern.fullmatch(said) for pattern in log_patterns()), said
