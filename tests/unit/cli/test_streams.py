"""Standard streams that are closed, full, or lack the characters that are written to them."""

import io
import json
import os
import subprocess
import sys

import pytest

from mala_context.cli import streams

ODD = "→ ✓ é 😀 \udce9"
"""Arrows and marks, an accent, a character beyond 16 bits, and a byte of a file's name that is no text."""
ENCODINGS = ("ascii", "latin-1", "cp1252", "utf-8", "utf-16")


def run(script, encoding="utf-8", **more):
    program = f"from mala_context.cli import streams\nstreams.prepare()\nimport json, sys\nODD = {ODD!a}\n{script}"
    env = {"PYTHONIOENCODING": encoding, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        timeout=30,
        env=env,
        **{"stdout": subprocess.PIPE, **more},
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_is_written_whatever_the_encoding(encoding):
    done = run("print(ODD); print(ODD, file=sys.stderr)", encoding)
    assert done.returncode == 0
    for written in (done.stdout, done.stderr):
        assert "\\udce9" in written.decode(encoding)
    if encoding == "ascii":
        assert done.stdout == b"\\u2192 \\u2713 \\u00e9 \\ud83d\\ude00 \\udce9\n"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_stays_json(encoding):
    done = run("print(json.dumps({'words': ODD}, ensure_ascii=False))", encoding)
    assert json.loads(done.stdout.decode(encoding)) == {"words": ODD}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device(closed, tmp_path):
    """The next file that is opened must not take its number: what is printed would end up in it."""
    script = tmp_path / "script.py"
    script.write_text(
        "from mala_context.cli import streams\nstreams.prepare()\nimport sys\n"
        f"file = open({str(tmp_path / 'file')!r}, 'w')\nassert file.fileno() > 2\n"
        "print('words', flush=True); print('words', file=sys.stderr, flush=True)\nassert sys.stdin.read() == ''\n"
    )
    done = subprocess.run(["bash", "-c", f"{sys.executable} {script} {closed}"], stdin=subprocess.DEVNULL, timeout=30)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == ""


def test_output_that_cannot_be_written_is_dropped(tmp_path):
    full = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    with open(tmp_path / "file", "w") as file:
        done = run(f"{full}print('words'); streams.end_output()", stdout=file)
    assert (done.returncode, done.stderr) == (0, b"")


def test_streams_of_others_are_left_alone(capsys):
    streams.prepare()
    streams.prepare()
    print("words")
    assert capsys.readouterr().out == "words\n"


@pytest.mark.parametrize(
    ("is_terminal", "term", "can"),
    [(True, "xterm", True), (True, "dumb", False), (True, "", False), (False, "xterm", False)],
)
def test_a_line_is_drawn_over_on_a_real_terminal_only(monkeypatch, is_terminal, term, can):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setenv("TERM", term)
    assert streams.can_redraw(stream) is can


@pytest.mark.parametrize(
    ("encoding", "text", "written"),
    [
        ("ascii", "\u00e9", "\\u00e9"),
        ("latin-1", "\N{GRINNING FACE}", "\\ud83d\\ude00"),
        ("utf-8", "\udce9", "\\udce9"),
    ],
)
def test_what_an_encoding_lacks_is_spelt_as_json_does(encoding, text, written):
    streams.prepare()
    assert text.encode(encoding, streams.ESCAPE).decode(encoding) == written
    assert json.loads(f'"{written}"') == text


def test_bytes_that_are_no_text_stay_an_error():
    streams.prepare()
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("utf-8", streams.ESCAPE)


def test_what_a_full_disk_did_not_take_goes_nowhere(tmp_path, monkeypatch):
    """In this process: Python would complain at its end of what standard output still holds."""

    class Full(io.TextIOWrapper):
        def flush(self):
            if not where:
                raise OSError(28, "No space left on device")
            super().flush()

    where = []
    monkeypatch.setattr(streams.os, "dup2", lambda new, old: where.append(old))
    with open(tmp_path / "out", "wb") as file:
        out = Full(file, encoding="utf-8")
        monkeypatch.setattr(sys, "stdout", out)
        streams.end_output()
        assert where == [file.fileno()]


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_stream_that_is_closed_is_the_null_device_from_then_on(name, monkeypatch):
    monkeypatch.setattr(sys, name, None)
    streams.prepare()
    with getattr(sys, name) as stream:
        assert stream.name == os.devnull
