"""One session in `watch`."""

import gzip
import pathlib
import shlex
import subprocess
from dataclasses import replace

import pytest

from mala_context.analysis.watch.archived import LastArchive
from mala_context.cli import watch_session
from mala_context.cli.watch_session import describe
from mala_context.cli.watch_table import Look
from tests.helpers.recordings import SID, Rows, plain
from tests.unit.cli.test_watch_table import HOSTILE, NOW, made


def about(row, width=100):
    return [line.plain for line in describe(row, Look(width, NOW))]


@pytest.fixture
def row(tmp_path):
    rows = plain()
    for number in range(12):
        rows.row("assistant", message={**_call(number), "usage": _usage(30_000 + number)}, requestId=f"q{number}")
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "a line of the file\n" * 300}
        rows.row("user", message={"role": "user", "content": [result]})
    path = rows.write(tmp_path / f"{SID}.jsonl")
    return replace(made(rows.rows), path=str(path), first_prompt="Fix\nthe cart")


def _usage(tokens):
    return {"input_tokens": tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 9}


def _call(number):
    block = {"type": "tool_use", "id": f"t{number}", "name": f"Tool{number}", "input": {}}
    return {"id": f"c{number}", "model": "claude-sonnet-4-5", "role": "assistant", "content": [block]}


def test_what_fills_the_context_its_compactions_and_commands(row):
    found = about(replace(row, archived=LastArchive(NOW, "auto", None)))
    assert found[0] == f"project {SID}"
    assert "Prompt    Fix the cart" in found
    start = found.index("What fills the context, about:")
    assert "system prompt, tools and memory" in found[start + 1]
    assert "tool results: Tool" in found[start + 2]
    assert "more" in found[start + 9]
    assert "Not as projected: 1 request; the last:" in found
    assert "Compactions: 1" in found
    assert any(line.startswith("  1. ") and " tokens" in line for line in found)
    assert f"  $ cd /home/dev/project && mala-context archives restore {SID}" in found
    assert f"  $ cd /home/dev/project && claude --resume {SID}" in found


def test_without_an_archive_no_restore_is_offered(row):
    found = "\n".join(about(row))
    assert "restore" not in found
    assert "no archive of this session is known" in found


@pytest.mark.parametrize("fault", ["gone", "long"])
def test_a_transcript_that_is_gone_or_too_long(row, monkeypatch, fault):
    if fault == "gone":
        row = replace(row, path="/nowhere")
    else:
        monkeypatch.setattr(watch_session, "MOST_BYTES", 10)
    assert any("too long to read here, or gone" in line for line in about(row))


def test_an_empty_transcript_and_an_unknown_session(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("")
    row = replace(made([], number=None, cwd=None), path=str(path), threshold=None)
    found = about(row)
    assert "Compactions: none" in found
    assert not any(line.startswith("  $") for line in found)


@pytest.mark.parametrize("width", [20, 45, 80])
def test_lines_fit_except_commands_which_are_for_copying(row, width):
    lines = about(row, width)
    begin, end = lines.index("Commands:"), next(at for at, line in enumerate(lines) if line.startswith("Compactions"))
    assert max(len(line) for line in lines[:begin] + lines[end:]) <= width


@pytest.mark.parametrize("width", [20, 45, 80, 200])
@pytest.mark.parametrize("cwd", ["/home/dev/project", "/home/dev/it's my  project", "/home/dev/" + "long" * 30])
def test_a_copy_of_a_commands_lines_runs_as_one_command(row, width, cwd):
    lines = about(replace(row, cwd=cwd), width)
    start = next(at for at, line in enumerate(lines) if line.startswith("  $ cd") or line == "  $ \\")
    end = next(at for at in range(start, len(lines)) if not lines[at].endswith("\\"))
    shown = lines[start : end + 1]
    assert all(len(line) <= width or len(shlex.split(line.rstrip("\\"))) == 1 for line in shown)
    copied = "\n".join(shown).replace("  $ ", "", 1)
    echo = """cd() { printf '%s|' cd "$@"; }; claude() { printf '%s|' claude "$@"; };"""
    ran = subprocess.run(["sh", "-c", echo + copied], capture_output=True, text=True, check=True)
    assert ran.stdout == f"cd|{cwd}|claude|--resume|{SID}|"


def test_hostile_text_moves_no_terminal(tmp_path):
    rows = Rows()
    rows.prompt("x")
    rows.response("m", 20_000, model=HOSTILE)
    path = rows.write(tmp_path / "h.jsonl")
    row = replace(
        made(rows.rows, cwd=HOSTILE), path=str(path), session_id=HOSTILE, first_prompt=HOSTILE, branch=HOSTILE
    )
    assert "".join(about(row)).isprintable()


def test_compactions_by_reference_are_named_and_their_kept_text_is_looked_into(tmp_path, row):
    data = pathlib.Path(__file__).parents[2] / "data/by_reference/manual.jsonl.gz"
    path = tmp_path / "kept.jsonl"
    path.write_bytes(gzip.decompress(data.read_bytes()))
    lines = [line for line in about(replace(row, path=str(path))) if " manual " in line]
    assert len(lines) == 2
    assert all(" manual by reference " in line for line in lines)
    assert all(line.endswith(" tokens, 0 things not in the kept text") for line in lines)
