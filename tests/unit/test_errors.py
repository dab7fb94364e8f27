"""The tree in the docstring, and what each error carries."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from mala_context import errors
from mala_context.errors import (
    ArchiveUnavailableError,
    ConfigError,
    ConfigProblem,
    ContextPressureError,
    CorruptArchiveError,
    InvalidSessionIdError,
    MalaContextError,
    SessionNotFoundError,
)

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
PRESSURE = ContextPressureError("s1", 300, 300, 0, 0.6)
EXAMPLES = [
    PRESSURE,
    ConfigError("bad", problems=(ConfigProblem("context.warn_at", "found 7", 3),), path="mala.yaml"),
    ArchiveUnavailableError("no place", path="/x"),
    InvalidSessionIdError("../x", "it has a slash"),
    SessionNotFoundError("s1", "/x"),
    CorruptArchiveError("cut", path="/x"),
    errors.BaselineError("no count"),
    errors.RecordingNotFoundError("/x/*.jsonl"),
    errors.ClusterError("no scheduler"),
    errors.ArchiveBusyError("s1", 1.5),
    errors.TranscriptError("/x", "unreadable", "it is a secret"),
    errors.PartNotFoundError("s1", "compaction 9", "it has 2"),
    errors.ObjectStoreError("s3://b/p", "it does not answer", installed=False),
]


def test_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert set(re.findall(r"\b\w+Error\b", errors.__doc__)) >= {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize("cls", CLASSES)
def test_one_base_and_a_docstring(cls: type[Exception]) -> None:
    assert issubclass(cls, MalaContextError)
    assert cls.__doc__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_a_process_boundary(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_pressure_carries_the_totals() -> None:
    assert (PRESSURE.session_id, PRESSURE.input_tokens, PRESSURE.output_tokens) == ("s1", 300, 300)
    assert (PRESSURE.cache_read_tokens, PRESSURE.pressure_ratio) == (0, 0.6)
    assert "60.0%" in str(PRESSURE)


def test_a_hostile_session_id_makes_a_short_message() -> None:
    assert len(str(InvalidSessionIdError("\x00" * 10_000, "it is too long"))) < 300


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.RecordingNotFoundError("/x/*.jsonl"), "no such file, folder or match: /x/*.jsonl"),
        (errors.ClusterError("no scheduler"), "cluster: no scheduler"),
        (errors.ArchiveBusyError("s1", 1.52), "the archive of session s1 is held by another process (waited 1.5 s)"),
        (errors.TranscriptError("/x", "unreadable", "no right"), "transcript '/x': unreadable (no right)"),
        (errors.TranscriptError(None, "empty path"), "transcript None: empty path"),
        (errors.PartNotFoundError("s1", "compaction 9", "it has 2"), "session s1 has no compaction 9; it has 2"),
        (errors.ObjectStoreError("s3://b/p", "it does not answer"), "object store s3://b/p: it does not answer"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_says_what_was_found_and_where(error: Exception, words: str) -> None:
    assert str(error) == words


def test_a_hostile_transcript_path_makes_a_short_message() -> None:
    assert len(str(errors.TranscriptError("\x1b" * 10_000, "missing"))) < 400
