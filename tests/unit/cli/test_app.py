"""The command line's frame: its help, its table of commands, and how it ends."""

import os
import subprocess
import sys
from importlib import import_module

import click
import pytest

from mala_context.cli import app as app_module
from mala_context.cli.app import COMMANDS, app, run
from mala_context.errors import ArchiveBusyError, MalaContextError

MAIN = (sys.executable, "-m", "mala_context.cli")


def call(*args, **more):
    return subprocess.run([*MAIN, *args], capture_output=True, text=True, timeout=60, **more)


@pytest.fixture
def fake(monkeypatch):
    """Put a command named `fake` into the table that does what the test says."""

    def install(body):
        module = type(sys)("fake_command")
        module.fake = click.Command("fake", callback=body)
        monkeypatch.setitem(sys.modules, "fake_command", module)
        monkeypatch.setitem(app_module.COMMANDS, "fake", ("fake_command", "A fake."))
        monkeypatch.setattr(sys, "argv", ["mala-context", "fake"])

    return install


def raising(error):
    def body():
        raise error

    return body


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_and_has_help(name, capsys):
    module, line = COMMANDS[name]
    command = getattr(import_module(module), name.replace("-", "_"))
    assert isinstance(command, click.Command)
    assert line.endswith(".")
    app.main([name, "--help"], prog_name="mala-context", standalone_mode=False)
    assert f"Usage: mala-context {name}" in capsys.readouterr().out


def test_help_lists_every_command_without_importing_any():
    script = (
        "import sys\nfrom mala_context.cli import main\nsys.argv = ['mala-context', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "heavy = {'rich', 'claude_agent_sdk', 'structlog', 'anyio', 'yaml', 'mala_context.cli.demo'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "HEAVY []" in done.stdout
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


def test_archives_loads_neither_tracker_nor_report():
    """One of its commands makes a page, and needs both: they would double the start of each."""
    script = (
        "import sys, mala_context.cli.archives\n"
        "heavy = {'mala_context.tracking.tracker', 'mala_context.analysis.report', 'rich', 'claude_agent_sdk'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "HEAVY []\n"


def test_help_is_quick():
    """A shell's completion waits for it; processor time, since other tests run meanwhile, against a bare Python's."""

    def seconds(*command):
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    bare, ours = (min(seconds(*command) for _ in range(5)) for command in (("-c", "pass"), (*MAIN[1:], "--help")))
    assert ours < 0.15
    assert ours < 10 * bare, (ours, bare)


def test_an_unknown_command_is_wrong_usage_and_names_the_nearest():
    done = call("dmo")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Did you mean 'demo'?" in done.stderr


def test_an_unknown_command_like_no_other_is_wrong_usage():
    done = call("zzzzzz")
    assert done.returncode == 2
    assert "No such command 'zzzzzz'" in done.stderr
    assert "Did you mean" not in done.stderr


def test_an_unknown_flag_is_wrong_usage_and_names_the_nearest():
    done = call("demo", "--jsn")
    assert done.returncode == 2
    assert "--json" in done.stderr


def test_version():
    done = call("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("mala-context, version ")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (lambda: 1, 1, ""),
        (lambda: 0, 0, ""),
        (lambda: None, 0, ""),
        (raising(MalaContextError("no such thing")), 3, "mala-context: no such thing\n"),
        (raising(click.UsageError("not like this")), 2, "not like this"),
        (raising(KeyboardInterrupt()), 130, "mala-context: interrupted\n"),
        (raising(OSError(28, "No space left on device")), 3, "mala-context: No space left on device\n"),
        (raising(PermissionError(13, "Permission denied", "/x")), 3, "mala-context: /x: Permission denied\n"),
        (raising(ArchiveBusyError("s", 1.0)), 3, "mala-context: the archive of session s is held"),
    ],
)
def test_how_a_command_ends(fake, capsys, body, status, words):
    fake(body)
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == status
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_a_reader_that_has_seen_enough_is_no_error():
    script = f"{sys.executable} -m mala_context.cli --help | :; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_no_command_at_all_is_wrong_usage_and_shows_the_help():
    done = call()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


@pytest.mark.parametrize("args", ["--help", "--version", "demo --help"])
def test_output_that_cannot_be_written_is_said_in_a_line(args, tmp_path):
    script = f"trap '' XFSZ; ulimit -f 0; exec {sys.executable} -m mala_context.cli {args} > {tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", script], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr == "mala-context: File too large\n"


@pytest.mark.parametrize(("args", "status"), [("--version", 0), ("replay /nowhere", 3), ("replay --odd", 2)])
def test_a_status_is_the_same_where_errors_cannot_be_written(args, status):
    script = f"exec {sys.executable} -m mala_context.cli {args} 2>/dev/full"
    assert subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, timeout=60).returncode == status


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed):
    script = f"exec {sys.executable} -m mala_context.cli demo --help {closed}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_in_a_command_ends_it_in_peace(fake):
    fake(raising(BrokenPipeError()))
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == 0


def test_names_and_options_are_completed():
    context = click.Context(app)
    assert [each.value for each in app.shell_complete(context, "do")] == ["doctor"]
    assert "--version" in [each.value for each in app.shell_complete(context, "--")]


def test_the_help_is_what_no_command_at_all_gets(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mala-context"])
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == 2
    assert "Commands:" in capsys.readouterr().err
