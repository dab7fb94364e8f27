"""Log lines without the cost of logging."""

import subprocess
import sys

import pytest

from mala_context.archive import log


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_each_level_reaches_the_logger_of_the_archive(level, caplog):
    caplog.set_level(10, logger="mala_context.archive")
    getattr(log, level)("%s!", "hello")
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == ("mala_context.archive", level.upper(), "hello!")
    assert record.filename == "test_log.py"


def test_importing_and_archiving_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; known = set(sys.modules)\n"
        "from mala_context.archive.store import TranscriptArchive\n"
        "import mala_context.archive.increment, mala_context.archive.writer\n"
        "loaded = lambda names: sorted(names & set(sys.modules) - known)\n"
        "heavy = {'logging', 'dataclasses', 'pathlib', 'inspect', 'typing', '_strptime', 'threading', 'datetime'}\n"
        "assert not loaded(heavy | {'json', 'hashlib'}), loaded(heavy | {'json', 'hashlib'})\n"
        "archive = TranscriptArchive(sys.argv[1] + '/archives')\n"
        "for step in range(3):\n"
        "    with open(sys.argv[1] + '/s1.jsonl', 'a') as file:\n"
        "        file.write('{}\\n' * min(step, 1))\n"
        "    hook_input = {'session_id': 's1', 'transcript_path': sys.argv[1] + '/s1.jsonl', 'trigger': 'auto'}\n"
        "    if step:\n"
        "        assert mala_context.archive.increment.archive_from_hook(archive, hook_input).archived\n"
        "assert not loaded(heavy), loaded(heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
