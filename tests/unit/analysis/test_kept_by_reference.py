"""What a compaction by reference would have kept of a recorded session."""

import pytest

from mala_context.analysis.kept_by_reference import RecordedConversation

WINDOW, PER_TOKEN = 200_000, 4.0


def said(kind, content, uuid=None, **fields):
    return {"type": kind, "uuid": uuid, "message": {"role": kind, "content": content}, **fields}


def call(number, text, **fields):
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"step {number}"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text, **fields}
    return [said("assistant", [use], f"a{number}"), said("user", [result], f"r{number}")]


def compacted(*rows, budget=None, before=150_000):
    conversation = RecordedConversation(budget)
    for row in rows:
        conversation.row(row)
    return conversation, conversation.compact(7, before, WINDOW, PER_TOKEN)


def test_words_stay_and_calls_become_pointers():
    rows = [said("user", "Never use tabs.", "u1"), said("assistant", [{"type": "text", "text": "I will not."}], "a0")]
    _, kept = compacted(*rows, *call(1, "x" * 40_000), *call(2, "boom", is_error=True))
    assert (kept.row, kept.before, kept.calls, kept.pointed_at) == (7, 150_000, 2, 0)
    assert 200 < kept.tokens < 500


@pytest.mark.parametrize(
    "left_out",
    [
        {"isMeta": True},
        {"isSidechain": True},
        {"isCompactSummary": True},
        {"uuid": "u1"},
        {"type": "attachment"},
        {"message": None},
    ],
)
def test_what_nobody_said_is_left_out(left_out):
    _, alone = compacted(said("user", "Never use tabs.", "u1"))
    _, kept = compacted(said("user", "Never use tabs.", "u1"), {**said("user", "words " * 2_000, "u2"), **left_out})
    assert kept.tokens == alone.tokens


def test_what_was_kept_before_stays_and_counts():
    conversation, first = compacted(said("user", "word " * 400, "u1"))
    conversation.row(said("user", "word " * 400, "u2"))
    second = conversation.compact(9, None, WINDOW, PER_TOKEN)
    assert second.tokens > first.tokens + 450


def test_the_budget_counts():
    _, kept = compacted(*(said("user", "word " * 400, f"u{n}") for n in range(10)), budget=1_000)
    assert kept.pointed_at == 9


def test_without_a_conversation_there_is_nothing_to_compact():
    conversation, kept = compacted()
    assert kept is None
    conversation.row(said("user", "Never use tabs.", "u1"))
    conversation.reset()
    assert conversation.compact(9, None, WINDOW, PER_TOKEN) is None
