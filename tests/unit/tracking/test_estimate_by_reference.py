"""The estimate right after a compaction by reference, from transcripts that the real CLI wrote (2.1.332)."""

import gzip
import json
import pathlib

import pytest

from mala_context.agent.claude_code.statusline.recorded import from_transcript
from mala_context.analysis.replay import replay
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.watch.state import TranscriptState
from mala_context.tracking.usage import Usage
from mala_context.transcripts.compactions import is_boundary, kept_text

DATA = pathlib.Path(__file__).parents[2] / "data/by_reference"
WITHIN = 0.05


def recorded(name):
    return [json.loads(line) for line in gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).splitlines()]


def compactions():
    """Yield each compaction: the rows up to the last that it kept, and the size of the next request."""
    for name in ("manual", "mid-turn"):
        rows = recorded(name)
        for place in (place for place, row in enumerate(rows) if is_boundary(row)):
            end = next(end for end in range(place + 1, len(rows)) if not kept_text(rows[end]))
            usages = (Usage.parse(row["message"]["usage"]) for row in rows[end:] if row["type"] == "assistant")
            yield pytest.param(rows[:end], next(usages).context_tokens, id=f"{name}-{place}")


def write(folder, rows):
    path = folder / "session.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def of_replay(path, rows):
    (session,) = replay([path], jobs=1)
    return session.main.tokens


def of_careful_reader(path, rows):
    return RecordingReader(next(iter(find([path])))).run()[-1].main.tokens


def of_watch(path, rows):
    state = TranscriptState()
    state.take(rows)
    return state.snapshot().tokens


def of_status_line(path, rows):
    return from_transcript(path)[0]


@pytest.mark.parametrize("measure", [of_replay, of_careful_reader, of_watch, of_status_line])
@pytest.mark.parametrize(("rows", "truth"), list(compactions()))
def test_it_counts_what_the_transcript_kept(tmp_path, rows, truth, measure):
    tokens = measure(write(tmp_path, rows), rows)
    assert abs(tokens - truth) <= WITHIN * truth, (tokens, truth)


@pytest.mark.parametrize("measure", [of_replay, of_watch])
def test_the_next_response_is_exact_again(tmp_path, measure):
    rows = recorded("manual")
    last = Usage.parse(next(row for row in reversed(rows) if row["type"] == "assistant")["message"]["usage"])
    assert measure(write(tmp_path, rows), rows) == last.context_tokens


@pytest.mark.parametrize("size", [1, 200_000], ids=["short", "longer than a block of the reader"])
def test_a_row_of_any_length_counts_in_the_status_line(tmp_path, size):
    rows = next(compactions()).values[0]
    before = of_status_line(write(tmp_path, rows), rows)
    rows[-2]["message"]["content"] += "x" * size
    assert of_status_line(write(tmp_path, rows), rows) == pytest.approx(before + size / 3.0, abs=2)
