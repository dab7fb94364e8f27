"""Nothing that a session holds acts on the terminal that `watch` draws on, or forges a line of what a pipe gets."""

import json
import os
import select
import subprocess
import time

import pytest

from tests.helpers.watch_sessions import WATCH, Terminal
from tests.security.hostile import EVIL, Machine, dump, on_a_terminal, rows

ACTS = ("\x1b]", "\x1b[2J", "\x1b[31m", "\x9b", "\u202e", "\u2066", "\x7f", "\u2028", "\x07")
"""What of the hostile text acts on a terminal; the table itself is drawn with other sequences."""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_on_a_terminal(columns, machine):
    """While it follows the sessions, where a hostile row comes, and at its end; as wide as it may be."""
    with Terminal(*WATCH, columns=columns, NO_COLOR="1") as screen:
        screen.until("owned" if columns > 100 else "sessions")
        with machine.transcript.open("ab") as file:
            file.write(dump([{**row, "uuid": f"new-{number}"} for number, row in enumerate(rows())]))
        screen.until("180,000")
        screen.write(b"q")
        assert screen.ended() == 0
        for each in ACTS:
            assert each not in screen.text, (each, screen.text)
        assert "Traceback" not in screen.text


def lines_of(machine, *words):
    """Start `watch`, write to a session once its lines came, and return all that was written till the next one."""
    with subprocess.Popen([*WATCH, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.set_blocking(process.stdout.fileno(), False)
        found, written = b"", False
        until = time.monotonic() + 30
        while time.monotonic() < until and (not written or b"200,555" not in found.replace(b"200555", b"200,555")):
            select.select([process.stdout], [], [], 0.2)
            found += process.stdout.read() or b""
            if b"180" in found and not written:
                written = True
                new = [row for row in rows() if row["type"] == "assistant" and "usage" in row["message"]][-1]
                new["message"]["id"], new["message"]["usage"] = EVIL + "new", {"input_tokens": 200_555}
                with machine.transcript.open("ab") as file:
                    file.write(json.dumps({**new, "uuid": EVIL + "new"}).encode() + b"\n")
        process.terminate()
        _, errors = process.communicate(timeout=30)
    return found.decode(), errors.decode()


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["lines", "json"])
def test_what_a_pipe_gets(words, machine):
    out, errors = lines_of(machine, *words)
    assert "200" in out, "the change was not seen"
    assert on_a_terminal(out), out
    assert on_a_terminal(errors), errors
    for text in out.splitlines():
        if words:
            assert isinstance(json.loads(text), dict)
        else:
            assert text[2] == text[5] == ":", "each line begins with a time"
