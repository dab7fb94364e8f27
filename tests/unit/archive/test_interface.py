"""The interface: a store in memory, written from its text alone, passes the battery too."""

import pytest

from mala_context.archive import layout
from mala_context.testing.battery import STORE_CHECKS
from tests.helpers.archive_memory import MemoryStore


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_store_in_memory_passes_the_battery(check):
    check(MemoryStore)


def test_a_store_without_leftovers_need_not_say_so():
    assert list(MemoryStore().unfinished()) == []


def test_a_store_that_only_lists_its_files_lists_its_sessions_too():
    store = MemoryStore()
    for number, session_id in enumerate(("s1", "s2", "t1")):
        with store.lock(session_id, 1.0) as files:
            name = layout.piece_name(session_id, None, 1, layout.stamp(10**15), ".jsonl")
            files.publish(name, lambda write: write(b"{}\n"), mtime_ns=number + 1)
    assert [each.session_id for each in store.summaries()] == ["t1", "s2", "s1"]
    assert [(each.session_id, each.pieces, each.stored) for each in store.summaries("s")] == [
        ("s2", 1, 3),
        ("s1", 1, 3),
    ]
    assert list(store.listed().summaries()) == list(store.summaries())
    assert list(store.recent(0.0)) == ["t1", "s2", "s1"]
