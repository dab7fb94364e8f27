"""What `replay --totals` adds up: the counts of a reading of everything, without one.

That both agree on whatever is odd is seen in `test_replay_scan`.
"""

import json
import random
import subprocess
import sys

import pytest

from mala_context.analysis.replay import files, replay
from mala_context.analysis.replay.counts import CountReader, read_counts
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.row_runs import NeedsFullReader
from mala_context.analysis.replay.scan import read
from mala_context.cli.session_lines import sum_of
from tests.benchmarks import shapes
from tests.helpers.recordings import OTHER, dump, generated, plain


def recording(path):
    (found,) = find([str(path)])
    return found


def totals(path):
    return [sum_of(replay([str(path)], jobs=1, estimates=estimates)) for estimates in (False, True)]


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_every_shape_is_counted_by_its_columns_alone(tmp_path, name):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(generated(3, 120_000)) + "\n")
    shapes.reshape(path, name, random.Random(1))
    assert CountReader(recording(path)).run(files.new_buffer()).main.responses > 3
    counted, whole = totals(path)
    assert counted == whole


def streamed(rows):
    rows.rows[3]["session_id"] = rows.rows[3].pop("sessionId")


def of_two_sessions(rows):
    rows.rows[3]["sessionId"] = OTHER


def used_again(rows):
    responses = [row for row in rows.rows if row["type"] == "assistant"]
    for number, row in enumerate(responses[:2]):
        row["message"]["id"], row["requestId"] = "m", f"r{number}"


def of_two_agents(rows):
    responses = [row for row in rows.rows if row["type"] == "assistant"]
    responses[1]["message"]["id"] = responses[0]["message"]["id"]
    responses[1]["isSidechain"] = True


def without_id(rows):
    del next(row for row in rows.rows if row["type"] == "assistant")["message"]["id"]


@pytest.mark.parametrize("change", [streamed, of_two_sessions, used_again, of_two_agents, without_id])
def test_where_columns_are_not_enough_everything_is_read(tmp_path, change):
    rows = plain()
    change(rows)
    path = recording(rows.write(tmp_path / "a.jsonl"))
    with pytest.raises(NeedsFullReader):
        CountReader(path).run(files.new_buffer())
    assert read_counts(path) == read(path)
    counted, whole = totals(path.path)
    assert counted == whole


def test_a_response_whose_row_is_not_plain_is_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    data = dump(plain().rows).replace(b'"type": "assistant"', b'"type": "\\u0061ssistant"')
    assert b"\\u0061" in data
    path.write_bytes(data)
    assert CountReader(recording(path)).run(files.new_buffer()).main.responses == 3
    counted, whole = totals(path)
    assert counted == whole


def test_a_recording_that_is_gone_is_named_as_ever(tmp_path):
    path = recording(plain().write(tmp_path / "a.jsonl"))
    gone = path._replace(path=f"{path.path}x.jsonl", parts=(f"{path.path}x.jsonl",))
    assert [each.problems[0].problem for each in read_counts(gone)] == [each.problems[0].problem for each in read(gone)]


def test_each_byte_is_told_once(tmp_path, monkeypatch):
    rows = plain()
    of_two_sessions(rows)
    path, told = recording(rows.write(tmp_path / "a.jsonl")), []
    monkeypatch.setattr(files, "_spare", [bytearray(512)])
    read_counts(path._replace(watch=told.append))
    assert told == sorted(told)


def test_the_tracker_is_not_loaded(tmp_path):
    """A third of the time that a folder of small sessions takes is that of imports."""
    plain().write(tmp_path / "a.jsonl")
    script = (
        "import json, sys; from mala_context.cli.session_lines import fast; "
        f"fast(['--totals', {str(tmp_path)!r}]); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    sums, modules = map(json.loads, done.stdout.splitlines())
    assert sums["responses"] == 3
    assert not [each for each in modules if each.startswith(("mala_context.tracking", "click", "rich"))]
