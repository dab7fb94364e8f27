"""Sessions on disk and a terminal of one's own, for the tests of `watch` and its benchmark."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from tests.helpers.recordings import Rows, dump

WATCH = (sys.executable, "-m", "mala_context.cli", "watch")


def session_id(number):
    return f"{number:08x}-0000-4000-8000-000000000000"


def session(projects, number=1, turns=3, start=20_000, step=1_000, folder=None, **fields):
    """Write a session of some turns; returns its rows and its path."""
    rows = Rows(session_id(number))
    more = {"cwd": f"/home/dev/project-{number}", "gitBranch": "main"} | fields
    for turn in range(turns):
        rows.prompt(**more)
        rows.response(f"m-{number}-{turn}", start + step * turn, **more)
    path = projects / f"-home-dev-project-{number // 2 if folder is None else folder}" / f"{rows.session_id}.jsonl"
    rows.write(path)
    return rows, path


def subagent(path, agent_id="a1", tokens=9_000):
    """Write a subagent's transcript beside a session's."""
    rows = Rows(path.stem, agent=agent_id)
    rows.prompt()
    rows.response(f"s-{path.stem}-{agent_id}", tokens)
    there = path.with_suffix("") / "subagents" / f"agent-{agent_id}.jsonl"
    rows.write(there)
    return there


def append(path, *rows):
    with open(path, "ab") as file:
        file.write(dump(rows))


class Terminal:
    """A process on a terminal of a given size; what it writes is kept as text."""

    def __init__(self, *command, columns=80, lines=60, stderr=None, **environment):
        self.master, slave = pty.openpty()
        self.slave = slave
        self.resize(columns, lines)
        env = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES", "NO_COLOR"}}
        env |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"} | environment
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=stderr or slave, env=env, start_new_session=True, close_fds=True
        )
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        if self.master is not None:
            self.read(0)
            self.hang_up()

    def hang_up(self):
        """Close the terminal under the process."""
        os.close(self.master)
        os.close(self.slave)
        self.master = None

    def read(self, seconds):
        """Take what is written within so many seconds, or at once."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            self.text += os.read(self.master, 1 << 16).decode("utf-8", "replace")
        return bool(ready)

    def resize(self, columns, lines):
        """Give the terminal another size, as a window that is drawn larger."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, words, seconds=20.0, times=1):
        """Read until these words were written so often; returns how many seconds that took."""
        begun = time.perf_counter()
        while self.text.count(words) < times:
            left = begun + seconds - time.perf_counter()
            assert left > 0, f"{words!r} is not in {self.text[-3000:]!r}"
            self.read(left)
        return time.perf_counter() - begun

    def write(self, keys):
        os.write(self.master, keys)

    def ended(self, seconds=20.0):
        """Read until the process has ended and return its exit status."""
        end = time.perf_counter() + seconds
        while self.process.poll() is None and time.perf_counter() < end:
            self.read(0.02)
        while self.read(0):
            pass
        return self.process.wait(0)
