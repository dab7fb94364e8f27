"""Completion, asked by real shells."""

import subprocess
import sys

import click
import pytest

from mala_context.cli.app import COMMANDS
from mala_context.cli.completion import PLACES

HEAVY = {"rich", "claude_agent_sdk", "structlog", "anyio", "yaml", "mala_context.cli.demo", "mala_context.cli.archives"}


@pytest.fixture
def path(tmp_path):
    """A PATH on which `mala-context` is this one."""
    program = tmp_path / "bin" / "mala-context"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mala_context.cli "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:/usr/local/bin:/usr/bin:/bin"


def run(path, *command, **more):
    env = {"PATH": path, "HOME": "/nonexistent", **more.pop("env", {})}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, **more)


def in_bash(path, line, **env):
    """Return what bash offers behind a line, as it would on Tab."""
    script = (
        'eval "$(mala-context completion bash)"\n'
        "complete -p mala-context | grep -q _mala_context_completion || exit 9\n"
        f"COMP_WORDS=({line})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        "_mala_context_completion mala-context\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = run(path, "bash", "--norc", "-c", script, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mala-context arch", {"archives"}),
        ("mala-context ''", set(COMMANDS)),
        ("mala-context replay --form", {"--format"}),
        ("mala-context replay --format nd", {"ndjson"}),
        ("mala-context archives ver", {"verify"}),
        ("mala-context archives verify --rep", {"--repair", "--repo"}),
        ("mala-context completion ''", set(PLACES)),
        ("mala-context zzz", set()),
    ],
)
def test_bash(path, line, offered):
    assert set(in_bash(path, line)) == offered


@pytest.mark.parametrize("line", ["replay --session", "report", "watch", "run --resume"])
def test_session_ids_are_completed(path, tmp_path, line):
    ids = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
    folder = tmp_path / ".claude" / "projects" / "-repo"
    folder.mkdir(parents=True)
    for session_id in ids:
        (folder / f"{session_id}.jsonl").touch()
    assert set(in_bash(path, f"mala-context {line} ''", HOME=str(tmp_path))) == set(ids)
    assert in_bash(path, f"mala-context {line} 7c9", HOME=str(tmp_path)) == [ids[1]]


def test_a_commands_name_is_completed_without_importing_any():
    script = (
        "import os, sys\nos.environ.update(_MALA_CONTEXT_COMPLETE='zsh_complete', COMP_WORDS='mala-context ', "
        "COMP_CWORD='1')\nfrom mala_context.cli import main\nsys.argv = ['mala-context']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("HEAVY []\n")
    for name, (_, line) in COMMANDS.items():
        assert f"plain\n{name}\n{line}\n" in done.stdout


@pytest.mark.parametrize("shell", PLACES)
def test_each_shell_has_lines(path, shell):
    done = run(path, "mala-context", "completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert "_MALA_CONTEXT_COMPLETE" in done.stdout


def test_another_shell_is_wrong_usage(path):
    done = run(path, "mala-context", "completion", "tcsh")
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


def test_a_click_that_cannot(monkeypatch):
    from mala_context.cli.completion import completion

    monkeypatch.setattr("click.shell_completion.get_completion_class", lambda shell: None)
    with pytest.raises(click.ClickException):
        completion.callback("bash")


def with_session(home):
    """Give a home one session; return the first letters of its id."""
    folder = home / ".claude" / "projects" / "-repo"
    folder.mkdir(parents=True)
    (folder / "7c9e6679-7425-40de-944b-e07fc1f90ae7.jsonl").touch()
    return "7c9"


@pytest.mark.system
@pytest.mark.parametrize(("line", "offered"), [("arch", "archives"), ("replay --session {}", "7c9e6679-7425-40de-")])
def test_fish(path, tmp_path, line, offered):
    line = line.format(with_session(tmp_path))
    script = f"mala-context completion fish | source; complete -C 'mala-context {line}'"
    done = run(path, "fish", "--no-config", "-c", script, env={"HOME": str(tmp_path)})
    assert done.stdout.split("\t")[0].strip().startswith(offered), done


@pytest.mark.system
@pytest.mark.parametrize(("line", "offered"), [("arch", "archives"), ("replay --session {}", "7c9e6679-7425-40de-")])
def test_zsh(path, tmp_path, line, offered):
    """In a terminal of its own (zpty), since zsh completes nowhere else."""
    line = line.format(with_session(tmp_path))
    script = tmp_path / "script"
    script.write_text(
        "zmodload zsh/zpty\nzpty shell zsh -f -i\n"
        "zpty -w shell 'autoload -Uz compinit; compinit -u'\n"
        'zpty -w shell \'eval "$(mala-context completion zsh)"; print -r RE"A"DY\'\n'
        "zpty -r -m shell answer '*READY*'\n"
        f"zpty -w -n shell $'mala-context {line}\\t'\n"
        f"zpty -r -m shell answer '*{offered}*' && print -r FOUND\n"
    )
    done = run(path, "zsh", "-f", str(script), env={"HOME": str(tmp_path), "TERM": "dumb"})
    assert done.stdout.endswith("FOUND\n")
