"""The demo as a user runs it, on the real CLI."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys

import pytest

from mala_context.cli import demo as demo_module
from mala_context.cli.app import app
from mala_context.cli.scenarios import compaction
from mala_context.cli.scenarios.report import Check, Lines, Report, Table
from mala_context.testing.api import ANOTHER_ACCOUNT
from tests.helpers.terminals import without_codes
from tests.helpers.variants import variants

DEMO = (sys.executable, "-W", "error", "-m", "mala_context.cli", "demo")
KEYS = {
    *("scenario", "scripted_api", "ok", "turns", "seconds", "kept", "checks"),
    *("model", "window", "window_source", "session_id", "cli_version", "responses", "compactions", "archive"),
}


@pytest.fixture
def temporary(tmp_path):
    """Where the demo makes its temporary directory."""
    path = tmp_path / "temporary"
    path.mkdir()
    return path


@pytest.fixture
def env(temporary):
    """A user's environment without any account, so that nothing but the scripted API can have answered."""
    kept = {name: value for name, value in os.environ.items() if name not in {*ANOTHER_ACCOUNT, "ANTHROPIC_API_KEY"}}
    kept.pop("NO_COLOR", None)
    return {**kept, "TMPDIR": os.fspath(temporary), "MALA_RUNS_DIR": os.fspath(temporary.parent / "runs")}


def play(env, *args):
    return subprocess.run([*DEMO, *args], env=env, capture_output=True, text=True, timeout=100)


def test_the_main_job_for_machines(env, temporary):
    done = play(env, "--json", "--turns", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert set(result) == KEYS
    assert result["ok"] is True
    assert result["scripted_api"] is True
    assert 0 < result["seconds"] < 90  # on a busy machine
    assert all(check["ok"] for check in result["checks"])
    rows = result["responses"]
    assert len(rows) == 12
    assert [(row["turn"], row["response"]) for row in rows] == [(turn, n) for turn in (1, 2, 3, 4) for n in (1, 2, 3)]
    assert all(row["exact"] is True and row["difference"] == 0 for row in rows)
    assert all(row["tracked_tokens"] == row["received_tokens"] > 10_000 for row in rows)
    (compacted,) = result["compactions"]
    assert compacted["trigger"] == "auto"
    assert compacted["refused_tokens"] > result["window"]
    assert abs(compacted["error_percent"]) <= 5
    archive = result["archive"]
    assert archive["directory_mode"] == "0700"
    assert {piece["mode"] for piece in archive["pieces"]} == {"0600"}
    assert archive["pieces"][0]["trigger"] == "auto"
    assert archive["rows_held"] == archive["rows_before_compaction"] > 0
    assert archive["whole_transcript"] is True
    assert os.listdir(temporary) == []
    assert not (temporary.parent / "runs").exists()


@pytest.mark.long
def test_the_main_job_for_people(env, temporary):
    done = play(env)
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    assert "scripted" in out.splitlines()[0]
    assert len(re.findall(r"^ +\d +\d +[\d,]+ +[\d,]+ +0$", out, re.MULTILINE)) == 24
    assert len(re.findall(r"^✓ ", out, re.MULTILINE)) == 7
    assert "✗" not in out
    assert "mode 0600" in out
    assert "mode 0700" in out
    assert "All 7 checks passed" in out
    assert "\x1b" not in out + done.stderr
    long = [line for line in out.splitlines() if len(line) > 80]
    assert all(line.startswith(("✓ ", "/")) for line in long), long
    assert all(line == line.rstrip() for line in out.splitlines())
    gauge = re.findall(r"^INFO Context: [\d.]+% \([\d,]+ of 200,000 tokens\)", done.stderr, re.MULTILINE)
    assert len(gauge) == 8
    assert "INFO PreCompact: archived transcript (trigger=auto) to " in done.stderr
    assert re.search(r"^INFO Compaction: [\d,]+ → [\d,]+ tokens \(trigger=auto", done.stderr, re.MULTILINE)
    assert os.listdir(temporary) == []


@pytest.mark.long
@pytest.mark.long
def test_plain_surroundings(env):
    """No home, no PATH, no characters but ASCII, and nobody who reads the gauge."""
    bare = {name: env[name] for name in ("TMPDIR", "MALA_RUNS_DIR")} | {"PYTHONIOENCODING": "ascii"}
    script = f"exec {' '.join(DEMO)} --turns 2 2>&-"
    done = subprocess.run(["/bin/bash", "-c", script], env=bare, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stdout
    assert re.search(rb"\n-- [0-9,]+ refused, compacted", done.stdout)
    assert b"\nok archive: " in done.stdout


@pytest.mark.long
def test_keep_and_estimators(env, tmp_path):
    kept = tmp_path / "new" / "kept"
    done = play(env, "--keep", os.fspath(kept), "--estimators", "--turns", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert set(result) == {*KEYS, "estimators"}
    assert list(result["estimators"]) == ["occupancy", "cumulative", "max_cache_read", "total_tokens", "characters"]
    assert result["estimators"]["occupancy"]["worst_error_percent"] == 0
    assert result["estimators"]["cumulative"]["worst_error_percent"] > 90
    assert all(set(row["estimates"]) == set(result["estimators"]) for row in result["responses"])
    assert result["kept"] == os.fspath(kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    for piece in result["archive"]["pieces"]:
        assert stat.S_IMODE(os.stat(piece["path"]).st_mode) == 0o600
    assert list((kept / "project" / "notes").iterdir())
    again = play(env, "--keep", os.fspath(kept))
    assert again.returncode == 2
    assert "is not empty; name a new or an empty directory" in again.stderr


@pytest.mark.parametrize("number", variants([signal.SIGINT, signal.SIGTERM]))
def test_ctrl_c_leaves_nothing_behind(env, temporary, tmp_path, number):
    kept = tmp_path / "kept"
    process = subprocess.Popen(
        [sys.executable, "-m", "mala_context.cli", "demo", "--keep", os.fspath(kept)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first = process.stderr.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert first.startswith("INFO Context: "), first + err
    assert process.returncode == 130
    assert out == ""
    assert err.endswith("mala-context: interrupted\n")
    assert "Traceback" not in err
    assert os.listdir(temporary) == []
    assert not kept.exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


LEAVING = """
import os, signal, sys
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport as Transport
from mala_context.cli import main
close = Transport.close
async def interrupted(self):
    os.kill(os.getpid(), signal.SIGINT)
    await close(self)
Transport.close = interrupted
sys.argv = ["mala-context", "demo", "--turns", "2"]
main()
"""


@pytest.mark.long
def test_ctrl_c_while_the_cli_is_being_left_waits_for_it(env, temporary):
    command = [sys.executable, "-c", LEAVING]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, start_new_session=True)
    assert (done.returncode, done.stdout) == (130, "")
    archived, empty, last = done.stderr.splitlines()[-3:]
    assert archived.startswith("INFO Archived transcript (trigger=session_end) to ")
    assert (empty, last) == ("", "mala-context: interrupted")
    assert os.listdir(temporary) == []


def on_a_terminal(env, *args, columns=80):
    """Run the demo on a terminal of so many columns and return its exit status and what it showed."""
    control, terminal = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([*DEMO, *args], env=env, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    while select.select([control], [], [], 60)[0]:
        try:
            part = os.read(control, 65536)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not part:
            break
        shown += part
    os.close(control)
    return process.wait(60), shown.decode()


@pytest.mark.long
def test_a_terminal_gets_a_bar(env):
    env = {name: value for name, value in env.items() if name not in {"COLUMNS", "LINES"}}
    status, shown = on_a_terminal({**env, "TERM": "xterm-256color"}, "--turns", "2")
    assert status == 0, shown
    assert re.search(r"turn 1 of 2 .*━", shown)
    assert re.search(r"[\d.]+% \([\d,]+ of 200,000\)", shown)
    assert "INFO PreCompact: archived" in shown
    assert "INFO Context" not in shown
    assert "\x1b[33m" in shown
    assert "✓" in shown
    plain = without_codes(shown)
    table = plain[plain.index("turn  response") : plain.index("Archive\r")]
    assert max(len(line) for line in table.splitlines()) <= 80


@pytest.mark.long
@pytest.mark.long
def test_a_terminal_without_colour(env):
    status, shown = on_a_terminal({**env, "TERM": "xterm-256color", "NO_COLOR": "1"}, "--turns", "2")
    assert status == 0, shown
    assert "━" in shown
    assert not re.search(r"\x1b\[(3[0-9]|9[0-7]|38;)", shown)


class TestUsage:
    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["--turns", "1"], "1 is not in the range 2<=x<=60"),
            (["--turns", "many"], "'many' is not a valid integer"),
            (["--scenario", "nothing"], "'nothing' is not"),
            (["--keep"], "requires an argument"),
            (["more"], "unexpected extra argument (more)"),
        ],
    )
    def test_wrong_usage(self, env, args, words):
        done = play(env, *args)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stdout == ""

    @pytest.mark.parametrize("name", ["", " "])
    def test_keep_names_nothing(self, env, tmp_path, name):
        """As `--keep "$UNSET"` does: the working directory is not what was meant."""
        done = subprocess.run(
            [*DEMO, "--keep", name], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert "--keep" in done.stderr

    def test_keep_names_what_another_demo_fills(self, env, tmp_path):
        place = tmp_path / "place"
        place.mkdir()
        other = os.open(place, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        done = play(env, "--keep", os.fspath(place))
        os.close(other)
        assert done.returncode == 2
        assert "used by another demo" in done.stderr
        assert place.is_dir()

    def test_keep_names_a_file(self, env, tmp_path):
        file = tmp_path / "file"
        file.write_text("mine")
        done = play(env, "--keep", os.fspath(file))
        assert done.returncode == 2
        assert "is a file" in done.stderr
        assert file.read_text() == "mine"

    def test_keep_lies_below_a_file(self, env, tmp_path):
        (tmp_path / "file").write_text("mine")
        done = play(env, "--keep", os.fspath(tmp_path / "file" / "kept"))
        assert done.returncode == 2
        assert "'--keep'" in done.stderr


class TestVerdict:
    """What the command makes of a scenario's report, without a CLI."""

    @pytest.fixture
    def report(self, monkeypatch):
        def give(**checks):
            parts = [
                Table("Numbers", ("<name", "size"), [["a", 1234], ["between"], ["b", None]]),
                Lines("Words", ["w"]),
            ]
            found = Report({"answer": 42}, parts, [Check(name, ok=ok, words=name) for name, ok in checks.items()])

            async def play(stage):
                stage.on_turn(1)
                return found

            monkeypatch.setattr(compaction, "play", play)

        return give

    def run(self, *args):
        return app.main(["demo", *args], prog_name="mala-context", standalone_mode=False)

    def test_all_checks_hold(self, report, capsys):
        report(first=True, second=True)
        assert self.run() == 0
        out = capsys.readouterr().out
        assert "✓ first\n✓ second\n" in out
        assert "All 2 checks passed" in out
        assert "name   size\na     1,234\n── between\nb         -\n" in out

    def test_a_failed_check_is_exit_status_1(self, report, capsys):
        report(first=True, second=False)
        assert self.run() == 1
        out = capsys.readouterr().out
        assert "✓ first\n✗ second\n" in out
        assert "1 of 2 checks failed" in out

    def test_a_failed_check_for_machines(self, report, capsys):
        report(first=False)
        assert self.run("--json") == 1
        result = json.loads(capsys.readouterr().out)
        assert result["ok"] is False
        assert result["checks"] == [{"name": "first", "ok": False, "words": "first"}]
        assert result["answer"] == 42

    def test_an_empty_directory_of_the_users_stays_when_the_run_fails(self, monkeypatch, tmp_path):
        async def play(stage):
            stage.place("project")
            raise RuntimeError("no")

        monkeypatch.setattr(compaction, "play", play)
        with pytest.raises(RuntimeError):
            self.run("--keep", os.fspath(tmp_path))
        assert os.listdir(tmp_path) == []

    def test_the_table_of_scenarios_is_in_the_help(self, capsys):
        assert self.run("--help") == 0
        words = capsys.readouterr().out
        assert all(name in words for name in demo_module.SCENARIOS)


@pytest.mark.parametrize(
    ("seconds", "took"), [(0.04, "0.0"), (9.94, "9.9"), (9.96, "10"), (11.3, "11"), (123.4, "123"), (999, "999")]
)
def test_the_last_line_fits_however_slow_the_machine_is(capsys, seconds, took):
    checks = [Check(f"check-{number}", ok=True, words="as it should be") for number in range(7)]
    demo_module._print_text(Report({}, [], checks), "compaction", seconds, None)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"All 7 checks passed, in {took} s. What it made is removed; --keep DIR keeps it."
    assert len(last) <= 80


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["reference", "survive"])
def test_compaction_by_reference(env, scenario):
    done = play(env, "--scenario", scenario, "--turns", "4", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert all(check["ok"] for check in result["checks"])
    assert result["reference"]["model_requests"] == 0
