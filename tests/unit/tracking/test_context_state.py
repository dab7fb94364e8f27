"""One context of an agent: its counts, what is known when it is over, and what an opening held."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.context_state import ContextState, FirstRequest, growth_of
from mala_context.tracking.projection import Ratios
from mala_context.tracking.usage import Usage

BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=50)),
    st.builds(lambda size: {"type": "thinking", "thinking": "", "signature": "s" * size}, st.integers(0, 3_000)),
    st.builds(lambda size: {"type": "redacted_thinking", "data": "d" * size}, st.integers(0, 3_000)),
)
CONTENT = st.text(max_size=50) | st.lists(BLOCKS, max_size=3)
PARTS = st.lists(st.tuples(st.sampled_from(["response", "user"]), CONTENT), max_size=6)


class Somebody:
    """An agent, as far as a context asks."""

    def __init__(self) -> None:
        self.agent_id: str | None = None
        self.tool_use_id: str | None = None
        self.model: str | None = "claude-sonnet-4-5"
        self.ratios = Ratios()


def context(tokens: int | None = 1_000, output: int = 10, *parts: tuple[str, object], model: str = "m") -> ContextState:
    new = ContextState()
    new.owner, new.parts, new.model = Somebody(), list(parts), model
    if tokens is not None:
        new.usage, new.tokens = Usage(tokens, 0, 0, output), tokens
    return new


def test_a_counted_response_is_exact_and_has_its_output() -> None:
    new = context(1_000, 10)
    assert (new.tokens, new.output, new.accuracy, new.cut) == (1_000, 10, "exact", False)
    assert context(None).output is None


@given(PARTS, st.integers(0, 6))
def test_a_prefix_holds_what_was_there_then(parts: list[tuple[str, object]], count: int) -> None:
    whole = context(1_000, 10, *parts)
    before = whole.interval.lengths()
    then = whole.prefix(min(count, len(parts)))
    assert then.interval.lengths() == before[: min(count, len(parts))]
    assert whole.interval.lengths() == before
    assert (then.tokens, then.usage, then.pinned) == (whole.tokens, whole.usage, False)


@given(PARTS, st.integers(0, 6), st.booleans())
def test_of_one_that_may_be_gone_back_to_the_lengths_are_kept(
    parts: list[tuple[str, object]], count: int, asked: bool
) -> None:
    over = context(1_000, 10, *parts)
    over.pinned, over.message_id = True, "m1"
    over.signs(100.0)
    lengths = over.part_lengths()
    if asked:
        assert over.interval.lengths() == lengths
    over.let_go()
    assert (over.parts, over.message_id) == ([], None)
    then = over.prefix(min(count, len(parts)))
    assert then.part_lengths() == lengths[: min(count, len(parts))]
    assert [kind for kind, _ in then.parts] == [kind for kind, _ in parts[: len(then.parts)]]


def test_one_that_nobody_goes_back_to_keeps_nothing() -> None:
    over = context(1_000, 10, ("user", "words"))
    over.let_go()
    assert (over.parts, over.lengths) == ([], None)


def test_whoever_holds_the_interval_of_one_that_is_over_can_still_ask() -> None:
    over = context(1_000, 10, ("user", "x" * 300))
    held = over.interval
    over.let_go()
    assert held.lengths() == [300]
    assert held.projected(1_000, 10, cut=False, parts=1) > 1_010


def test_text_is_counted_by_the_owners_model_where_the_response_named_none() -> None:
    mine = context(1_000, 10, ("user", "!" * 1_000))
    mine.model = None
    classic = mine.interval.projected(1_000, 10, cut=False, parts=1)
    dense = context(1_000, 10, ("user", "!" * 1_000), model="claude-opus-4-7").interval
    assert dense.projected(1_000, 10, cut=False, parts=1) > classic


@pytest.mark.parametrize(
    ("first", "following", "growth"),
    [
        (context(1_000), context(1_700), 700),
        (context(1_000), None, None),
        (context(1_000), context(None), None),
        (context(None), context(1_700), None),
        (context(1_000, model="a"), context(1_700, model="b"), None),
    ],
)
def test_growth_is_known_between_two_counted_requests_of_one_model(
    first: ContextState, following: ContextState | None, growth: int | None
) -> None:
    assert growth_of(first, following) == growth


def test_an_opening_counts_prompts_and_what_is_announced_again() -> None:
    opening = FirstRequest()
    assert (opening.prompt_chars, opening.attachment_chars, opening.known) == (0, None, False)
    opening.add("attachment", {"type": "skill_listing", "rendered": "x" * 40})
    opening.add("attachment", {"type": "model", "rendered": "x" * 2})
    assert (opening.attachment_chars, opening.known) == (42, False)
    opening.add("user", "x" * 300)
    opening.add("user", [{"type": "text", "text": "x" * 7}])
    assert (opening.prompt_chars, opening.attachment_chars, opening.known) == (307, 42, True)


def test_an_opening_holds_no_prompt_once_it_was_counted() -> None:
    class Content(list[dict[str, str]]):
        """Some that can be watched."""

    for count in (FirstRequest.close, lambda opening: opening.prompt_chars):
        opening, content = FirstRequest(), Content([{"type": "text", "text": "x" * 7}])
        opening.add("user", content)
        held = weakref.ref(content)
        del content
        assert held() is not None
        count(opening)
        assert held() is None
        assert opening.prompt_chars == 7


@pytest.mark.parametrize("odd", [None, "x", {"type": "skill_listing"}, {"type": "file", "rendered": "x"}])
def test_an_attachment_without_a_text_of_its_own_is_not_counted(odd: object) -> None:
    opening = FirstRequest()
    opening.add("attachment", odd)
    assert opening.attachment_chars is None
