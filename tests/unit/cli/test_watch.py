"""`mala-context watch`: on a terminal, in a pipe, as JSON, and how it ends."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import click
import pytest
from click.testing import CliRunner

from mala_context.cli import progress
from mala_context.cli import watch as watch_module
from mala_context.cli.watch import watch
from mala_context.errors import MalaContextError, TranscriptError
from mala_context.tracking.auto_compact import AUTO_COMPACT_WINDOW
from tests.helpers.recordings import SID, plain
from tests.helpers.watch_sessions import WATCH, Terminal, append, session, session_id, subagent

HOSTILE = "\x1b]0;title\x07\x1b[2J <script>alert(1)</script> \u202e"


@pytest.fixture
def projects(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv(AUTO_COMPACT_WINDOW, raising=False)
    monkeypatch.setattr("mala_context.analysis.watch.places.PAUSE", 0.0)
    (tmp_path / "projects").mkdir()
    return tmp_path / "projects"


def polls(seconds=20.0):
    """Yield until something has had so many seconds to happen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.05)


def once(*arguments, status=0):
    result = CliRunner().invoke(watch, ["--once", *map(str, arguments)])
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def test_one_table(projects):
    session(projects, 1)
    session(projects, 2)
    found = once().stdout.splitlines()
    assert found[0].startswith("PROJECT")
    assert [line.split()[0] for line in found[1:3]] == ["project-1", "project-2"]
    assert max(map(len, found)) <= 80


def test_one_object_a_session(projects):
    _, path = session(projects, 1)
    subagent(path)
    (line,) = once("--json").stdout.splitlines()
    found = json.loads(line)
    assert (found["session_id"], found["tokens"], found["auto_compact_source"]) == (session_id(1), 22_000, "reported")
    assert [each["agent_id"] for each in found["subagents"]] == ["a1"]


def test_of_many_sessions_the_newest(projects):
    for number in range(3):
        session(projects, number)
    found = once("--most", "2")
    assert "1 older session not shown (--most)" in found.output
    assert "2 sessions" in found.output
    found = once("--most", "2", "--json")
    assert "and 1 that were active before these: --most shows more" in found.stderr
    assert len(found.stdout.splitlines()) == 2


def test_nothing_to_show(projects):
    assert once("--json").output == ""
    result = once()
    assert result.stdout == ""
    assert f" UTC in {projects}; --since 30d looks further back" in result.stderr
    assert once("--since", "3650d").stderr.endswith(f" UTC in {projects}\n")


def test_sessions_by_id_prefix_and_path(projects):
    for number in (0x10, 0x11, 0x20):
        session(projects, number)
    paths = {path.stem: path for path in projects.rglob("*.jsonl")}

    def shown(*arguments):
        return [json.loads(line)["session_id"] for line in once("--json", *arguments).stdout.splitlines()]

    assert shown(session_id(0x10)) == [session_id(0x10)]
    assert shown("0000002") == [session_id(0x20)]
    assert shown(paths[session_id(0x11)], "0000002") == [session_id(0x11), session_id(0x20)]
    with pytest.raises(MalaContextError, match="no session"):
        once("ffff")
    with pytest.raises(TranscriptError, match="missing"):
        once("nowhere.jsonl")
    assert "2 sessions begin with 0000001" in once("0000001", status=2).stderr


def test_of_a_session_in_two_folders_the_newer_file_counts(projects):
    session(projects, 1, folder=1)
    _, path = session(projects, 1, folder=2, start=50_000)
    os.utime(path, (time.time() + 5,) * 2)
    assert json.loads(once("--json", session_id(1)).stdout)["tokens"] == 52_000


def test_how_far_back(projects):
    _, path = session(projects)
    past = time.time() - 7_200
    os.utime(path, (past, past))
    assert once("--json", "--since", "3h").stdout
    assert not once("--json", "--since", "1h").stdout
    assert "is no time" in once("--since", "soon", status=2).stderr


def test_other_projects_directories(projects, tmp_path):
    session(tmp_path / "other", 5)
    assert session_id(5) in once("--json", "--projects", tmp_path / "other").stdout
    with pytest.raises(FileNotFoundError):
        once("--projects", tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        once("--projects", tmp_path / "file")


@pytest.mark.parametrize(
    ("option", "variable", "threshold"),
    [
        ((), "", (167_000, "reported")),
        ((), "150000", (117_000, "given")),
        ((), "many", (167_000, "reported")),
        (("--auto-compact-window", "180000"), "150000", (147_000, "given")),
    ],
)
def test_where_the_threshold_comes_from(projects, monkeypatch, option, variable, threshold):
    session(projects)
    monkeypatch.setenv(AUTO_COMPACT_WINDOW, variable)
    found = json.loads(once("--json", *option).stdout)
    assert (found["auto_compact_threshold"], found["auto_compact_source"]) == threshold


def test_a_transcript_that_cannot_be_read_is_one_line(projects, monkeypatch):
    from mala_context.analysis.watch import tail

    session(projects)

    def refuse(path):
        raise PermissionError(13, "Permission denied", path + "\x1b[2J")

    monkeypatch.setattr(tail, "open_regular", refuse)
    error = once().stderr
    assert "Permission denied" in error
    assert "\x1b" not in error


def test_no_home_at_all(projects, monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", "/")
    assert "HOME names no home directory" in once().stderr


def test_hostile_text_moves_no_terminal(projects):
    session(projects, cwd="/home/" + HOSTILE, gitBranch=HOSTILE, model=HOSTILE)
    for output in (once().stdout, once("--json").stdout):
        assert output.replace("\n", "").isprintable()
    assert "\\x1b" in once().stdout


class Pipe(io.StringIO):
    """Standard output that ends the command after so many lines."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def write(self, text):
        super().write(text)
        if self.getvalue().count("\n") >= self.most:
            raise KeyboardInterrupt
        return len(text)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_pipe_gets_a_line_for_each_change(projects, monkeypatch, as_json):
    rows, path = session(projects, 1)
    subagent(path)
    lines = 2 if as_json else 3
    pipe = Pipe(lines)
    monkeypatch.setattr(sys, "stdout", pipe)
    steps = iter([lambda: append(path, rows.prompt()), lambda: append(path, rows.response("new", 55_000))])
    monkeypatch.setattr(watch_module.time, "sleep", lambda seconds: next(steps)())
    with pytest.raises(click.Abort):
        watch.main(["--json"] if as_json else [], standalone_mode=False)
    found = pipe.getvalue().splitlines()
    assert len(found) == lines
    if as_json:
        assert [json.loads(line)["tokens"] for line in found] == [22_000, 55_000]
    else:
        assert "project-1 00000001: 11.0% (22,000 of" in found[0]
        assert "agent a1 of 00000001: 4.5%" in found[1]
        assert "27.5% (55,000 of 200,000 tokens)" in found[2]


def terminal(*arguments, **more):
    return Terminal(*WATCH, *map(str, arguments), **more)


def test_a_terminal_follows_a_session_until_q(projects):
    rows, path = session(projects)
    with terminal() as screen:
        screen.until("22,000")
        append(path, rows.response("new", 55_555))
        screen.until("55,555")
        screen.write(b"q")
        assert screen.ended() == 0
        assert "\x1b[?1049l" in screen.text
        assert "\x1b[?25h" in screen.text


def test_keys_filter_sort_open_and_go_back(projects):
    for number in range(30):
        session(projects, number, start=20_000 + 1_000 * number)
    with terminal(lines=12) as screen:
        screen.until("fullest project-29 25.5%")
        screen.until("lines 1-8 of 30")
        screen.write(b"\x1b[F")
        screen.until("lines 23-30 of 30")
        screen.write(b"/project-7\r")
        screen.until("1 with /project-7,")
        screen.write(b"\r")
        screen.until(f"mala-context report {session_id(7)}")
        screen.write(b"q")
        screen.until("1 with /project-7,", times=2)
        screen.write(b"\x1b")
        screen.until("of 30", times=3)
        screen.write(b"3?")
        screen.until("page up, page down")
        screen.write(b"x")
        screen.until("s sort: by project")
        screen.write(b"q")
        assert screen.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_restores_the_terminal(projects, number):
    import termios

    session(projects)
    with terminal() as screen:
        before = termios.tcgetattr(screen.slave)
        screen.until("22,000")
        assert termios.tcgetattr(screen.slave) != before
        screen.process.send_signal(number)
        assert screen.ended() == 130
        assert termios.tcgetattr(screen.slave) == before
        assert "\x1b[?1049l" in screen.text


def test_ctrl_z_gives_the_terminal_back_and_draws_again_afterwards(projects):
    session(projects)
    with terminal() as screen:
        screen.until("22,000")
        screen.write(b"\x1a")
        screen.until("\x1b[?1049h", times=2)  # nobody can let a process without a shell go on, so it is not stopped
        screen.until("22,000", times=2)
        assert screen.text.count("\x1b[?1049l") == 1
        screen.write(b"q")
        assert screen.ended() == 0


def test_without_colour_and_on_a_dumb_terminal(projects):
    session(projects)
    with terminal("--once", NO_COLOR="1") as screen:
        assert screen.ended() == 0
        assert "\x1b[32m" not in screen.text
        assert "22,000" in screen.text
    with terminal(TERM="dumb") as screen:
        screen.until("(22,000 of 200,000 tokens)")
        assert "\x1b[?1049h" not in screen.text


def test_the_terminals_own_size_counts_and_not_what_a_parent_exported(projects):
    session(projects)
    with terminal(COLUMNS="200", LINES="90", columns=100, lines=12) as screen:
        screen.until("22,000")
        screen.resize(columns=90, lines=9)
        screen.until("PROJECT", times=2)
        screen.write(b"q")
        assert screen.ended() == 0
    frames = [frame for frame in screen.text.split("\x1b[H") if "PROJECT" in frame]
    assert [frame.count("\n") + 1 for frame in (frames[0], frames[-1])] == [12, 9]


def test_a_reader_that_has_seen_enough(projects):
    plain().write(projects / "-p" / f"{SID}.jsonl")
    command = f"'{sys.executable}' -m mala_context.cli watch --once | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


@pytest.fixture
def tmux(tmp_path):
    """A tmux server of our own; its sockets are in a short folder, since their paths may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mala") as folder:
        command = ["tmux", "-f", "/dev/null", "-S", os.path.join(folder, "s")]
        yield lambda *words: subprocess.run([*command, *words], capture_output=True, text=True, check=True).stdout
        subprocess.run([*command, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def pane(tmux, tmp_path):
    """A function that opens a terminal of some columns, and one that waits until its screen holds some words."""

    def opened(columns, *command):
        variables = ("MALA_RUNS_DIR", "CLAUDE_CONFIG_DIR")
        places = [word for name in variables for word in ("-e", f"{name}={os.environ[name]}")]
        tmux("new-session", "-d", "-x", str(columns), "-y", "20", *places, *command)

    def until(words):
        for _ in polls():
            screen = tmux("capture-pane", "-p")
            if words in screen:
                return screen
        raise AssertionError(f"{words!r} is not in {screen!r}")

    return opened, until


@pytest.mark.system
@pytest.mark.parametrize("columns", [80, 200])
def test_in_tmux_the_table_fits_and_q_ends_it(projects, tmux, pane, tmp_path, columns):
    session(projects, 1)
    opened, until = pane
    errors = tmp_path / "errors"
    script = tmp_path / "watch.sh"
    script.write_text(f"{shlex.join(WATCH)} 2>{errors}; echo ended with $?; exec sleep 100\n")
    opened(columns, "sh", str(script))
    screen = until("project-1")
    assert screen.startswith("1 session, 1 active, fullest project-1 11.0%")
    assert 60 < max(map(len, screen.splitlines())) <= columns
    tmux("send-keys", "q")
    assert until("ended with 0").startswith("ended")
    assert errors.read_text() == ""


@pytest.mark.system
@pytest.mark.parametrize("columns", [45, 80, 120, 200])
def test_in_tmux_250_sessions_answer_to_the_keys(projects, tmux, pane, columns):
    for number in range(250):
        session(projects, number)
    opened, until = pane
    opened(columns, *WATCH)
    tmux("resize-window", "-x", str(columns), "-y", "24")
    screen = until("250 sessions")
    assert max(map(len, screen.splitlines())) <= columns
    tmux("send-keys", "?")
    until("move the selection")
    tmux("send-keys", "Escape")
    tmux("send-keys", "s")
    until("last active first")
    tmux("send-keys", "/")
    tmux("send-keys", "-l", "project-249")
    tmux("send-keys", "Enter")
    lines = until("1 with /project-249,").splitlines()
    assert [line.split()[0] for line in lines if line.startswith("project-")] == ["project-249"]
    tmux("send-keys", "Enter")
    until("scroll, escape: back")
    tmux("send-keys", "Escape")
    until("1 with /project-249,")


@pytest.mark.system
def test_in_tmux_it_stops_goes_on_and_follows_a_new_size(projects, tmux, pane):
    session(projects, 1)
    opened, until = pane
    opened(80, "bash", "--norc")
    tmux("send-keys", shlex.join(WATCH), "Enter")
    until("22,000")
    tmux("send-keys", "C-z")
    assert "22,000" not in until("Stopped")
    tmux("send-keys", "fg", "Enter")
    assert until("22,000").startswith("1 session")
    tmux("resize-window", "-x", "120", "-y", "10")
    assert until("FIRST PROMPT").startswith("1 session")
    tmux("send-keys", "q")
    until("Stopped")


def test_a_terminal_that_is_closed_ends_it_without_a_traceback(projects, tmp_path):
    session(projects, 1)
    errors = tmp_path / "errors"
    with open(errors, "w") as file, Terminal(*WATCH, stderr=file) as terminal:
        terminal.until("project-1")
        terminal.hang_up()
        assert terminal.process.wait(20) == 3
    assert "Traceback" not in errors.read_text()


class Watched:
    """Stands in for a watcher: `steps` says for each tick whether something changed, and what is still to be read."""

    older = 0
    known = 1_200

    def __init__(self, steps, problems=()):
        self.steps = iter(steps)
        self.waiting = 0
        self.busy = True
        self._problems = problems

    def tick(self):
        changed, self.waiting = next(self.steps)
        self.busy = self.waiting > 0
        return changed

    def rows(self):
        return []

    def problems(self):
        return list(self._problems)


def test_reading_says_how_far_it_is(monkeypatch):
    words = []
    monkeypatch.setattr(progress.Wait, "say", lambda self, said: words.append(said))
    watch_module._settle(Watched([(True, 30), (True, 1), (True, 0)]))
    assert words == [f"1,200 transcripts found; {left} to read" for left in (30, 1)]


def test_a_problem_is_told_once_however_long_one_follows(capsys):
    gone = PermissionError(13, "Permission denied", "/a\x1b.jsonl")
    steps = [(True, 0), *[(False, 0), (True, 0)] * 3]
    with pytest.raises(StopIteration):
        watch_module._follow(Watched(steps, [gone]), 0.0, str)
    assert capsys.readouterr().err == "mala-context: /a\\x1b.jsonl: Permission denied\n"


def test_a_session_is_not_found_where_there_is_nothing(projects):
    (projects / "file").write_text("")
    with pytest.raises(MalaContextError, match="no session"):
        once("abc")
    (projects / "file").unlink()
    projects.rmdir()
    with pytest.raises(MalaContextError, match="no session"):
        once("abc")
