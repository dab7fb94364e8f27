"""Where a transcript was compacted, and where it is cut."""

from datetime import UTC, datetime

import pytest

from mala_context.archive.compactions import compactions, cut_before, moment_of
from mala_context.transcripts.rows import rows
from tests.helpers.small_transcripts import boundary, dump, message, session, summary


def found(items):
    return list(compactions(rows([dump(items)])))


def cut(items, **where):
    return cut_before(rows([dump(items)]), **where)


def offset(items, n):
    return len(dump(items[:n]))


def test_compactions_are_numbered_and_say_where_they_begin():
    items = session(2)
    one, two = found(items)
    assert (one.number, two.number) == (1, 2)
    assert (one.offset, two.offset) == (offset(items, 4), offset(items, 10))
    assert (one.trigger, one.tokens_before, one.tokens_after) == ("auto", 180_000, 20_000)
    assert one.time == items[4]["timestamp"]


def test_an_old_compaction_has_only_a_summary():
    items = [
        message(1),
        summary(2),
        message(3, kind="assistant"),
        summary(4),
        message(5, kind="assistant"),
        boundary(6),
        summary(7),
    ]
    assert [each.offset for each in found(items)] == [offset(items, 1), offset(items, 3), offset(items, 5)]


@pytest.mark.parametrize(
    "row",
    [
        boundary(2, isSidechain=True),
        boundary(2, subtype="microcompact_boundary"),
        message(2, 'they say "compact_boundary" and "isCompactSummary"'),
        {"type": "user", "isCompactSummary": False, "uuid": "x"},
    ],
)
def test_what_only_looks_like_a_compaction(row):
    assert found([message(1), row, message(3)]) == []


def test_a_boundary_copied_into_a_resumed_file_counts_once():
    items = [message(1), boundary(2), message(3, kind="assistant"), boundary(2), message(5)]
    assert [each.number for each in found(items)] == [1]


def test_metadata_may_be_anything():
    (one,) = found([boundary(1, compactMetadata=[1], timestamp=7, uuid=None)])
    assert (one.tokens_before, one.trigger, one.time, one.uuid) == (None, None, None, None)


def test_the_cut_is_before_the_nth_and_by_default_before_the_last():
    items = session(3)
    assert cut(items, at=2).offset == offset(items, 10)
    assert cut(items, at=2).compaction.number == 2
    assert cut(items).compaction.number == 3
    assert cut(items, at=4) is None
    assert cut(session(0)).offset is None


def test_the_cut_at_a_time_is_before_the_first_row_stamped_later():
    items = [message(1), message(5), message(3), message(9)]
    at = datetime(2026, 11, 1, 12, 0, 4, tzinfo=UTC)
    assert cut(items, before=at).offset == offset(items, 1)
    assert cut(items, before=datetime(2027, 1, 1, tzinfo=UTC)).offset is None
    assert cut(items, before=datetime(2020, 1, 1, tzinfo=UTC)).offset == 0


@pytest.mark.parametrize("value", [None, 5, "", "yesterday", "9999-99-99", [], b"2026-01-01"])
def test_what_is_no_time(value):
    assert moment_of(value) is None


def test_a_time_has_a_zone():
    assert moment_of("2026-11-01T12:00:00Z") == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert moment_of("2026-11-01T12:00").tzinfo is not None
    assert moment_of(datetime(2026, 11, 1, 12)).tzinfo is not None  # noqa: DTZ001  # that is what it is about
