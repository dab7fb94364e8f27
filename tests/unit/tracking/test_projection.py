"""What text costs, and how a session teaches it."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.tracking import projection
from mala_context.tracking.projection import PLACEHOLDER, Interval, Ratios, after_compaction, answer_cost
from mala_context.tracking.text_counts import Countable, count_text
from mala_context.tracking.token_costs import FAMILIES, UNITS, family, text_tokens
from tests.helpers.redacted import HEADERS, redacted


def interval(ratios: Ratios | None = None) -> Interval:
    return Interval(ratios or Ratios(), "claude-opus-4-5")


@pytest.mark.parametrize("content", ["base64", "image", "model"])
def test_what_says_nothing_of_other_text_teaches_nothing(content: str) -> None:
    ratios = Ratios()
    parts: list[Any] = [("user", "word " * 4_000)]
    if content == "base64":
        parts.append(("user", base64.b64encode(random.Random(3).randbytes(30_000)).decode()))
    elif content == "image":
        parts.append(("user", [{"type": "image"}]))
    one = made(parts, ratios)
    one.measure()
    one.learn(round(one.projected(0, 0, cut=True, parts=len(parts)) * 1.4), 0, cut=True, parts=len(parts))
    assert (ratios.get("prompt") == 1.0) is (content != "model")


def test_only_the_first_result_of_an_interval_is_cheap() -> None:
    result = [{"type": "tool_result", "tool_use_id": "t", "content": ""}]
    one = made([("user", result), ("user", result * 2)])
    first, further = UNITS["classic"]["first result"], UNITS["classic"]["result"]
    assert one.projected(0, 0, cut=True, parts=1) == first
    assert one.projected(0, 0, cut=True, parts=2) == first + 2 * further
    assert one.prefix(1).projected(0, 0, cut=True, parts=1) == first


def test_the_answer_counts_by_its_output_unless_that_is_a_placeholder() -> None:
    one = interval()
    one.add("response", "word " * 400)
    base = 10_000
    assert one.projected(10_000, 900, cut=False, parts=1) == base + 900
    assert one.projected(10_000, 1, cut=False, parts=1) > base + 300
    assert one.projected(10_000, 900, cut=True, parts=1) == base
    assert (
        one.projected(10_000, 1, cut=False, told=True, parts=1)
        == base + 1
        == one.by_table(10_000, 1, cut=False, told=True, parts=1)
    )
    assert one.projected(10_000, PLACEHOLDER, cut=False, parts=0) == base + PLACEHOLDER


def test_parts_that_came_later_do_not_count_for_an_earlier_look() -> None:
    one = interval()
    one.add("user", "word " * 100)
    before = one.projected(1_000, 100, cut=False, parts=1)
    one.add("user", "word " * 100)
    assert one.projected(1_000, 100, cut=False, parts=1) == before
    assert one.projected(1_000, 100, cut=False, parts=2) > before
    assert one.chars(2) == 1_000


def test_a_later_answer_without_counts_is_text() -> None:
    one = interval()
    one.add("answer", "word " * 100)
    assert one.projected(1_000, 500, cut=False, parts=1) > 1_500 + 100
    new = one.split(0, "claude-opus-4-5")
    assert new.projected(1_000, 500, cut=False, parts=1) == 1_500
    assert len(one) == 1


def test_length_is_what_counting_says() -> None:
    one = interval()
    one.add("user", [{"type": "tool_result", "content": "abc"}])
    one.add("user", "de")
    assert sum(one.lengths()) >= 5
    assert one.chars(1) == 3


def test_closing_teaches_and_lets_the_text_go() -> None:
    ratios = Ratios()
    one = interval(ratios)
    one.add("user", "word\n" * 20_000)
    expected = one.projected(10_000, 500, cut=False, parts=1)
    grown = round((expected - 10_000) * 1.5)
    one.measure()
    one.learn(grown, 500, cut=False, parts=1)
    assert [content for _, content in one.parts] == [None]
    assert 1.2 < ratios.get("prompt") < 1.5
    assert 1.2 < ratios.get("a tool not seen yet") < 1.5
    assert one.projected(10_000, 500, cut=False, parts=1) == expected


def test_context_that_no_row_shows_teaches_nothing() -> None:
    ratios = Ratios()
    ratios.learn({"Bash": 1_000.0}, 50_000, 4_000)
    ratios.learn({"Bash": 1_000.0}, 10, 4_000)
    ratios.learn({}, 10, 0)
    assert ratios.get("Bash") == 1.0
    assert ratios.chars_per_token("claude-opus-4-5") == 3.0


def test_characters_a_token_come_to_what_the_session_shows() -> None:
    ratios = Ratios()
    ratios.learn({"Bash": 50_000.0}, 50_000, 200_000)
    assert ratios.chars_per_token("claude-opus-4-5") == pytest.approx(4.0, abs=0.03)
    assert ratios.get("Bash") == 1.0


def test_a_prefix_is_an_interval_of_its_own() -> None:
    one = interval()
    one.add("user", "abc")
    one.add("user", "defg")
    new = one.prefix(1)
    new.add("user", "x")
    assert (len(new), new.chars(2)) == (2, 4)
    assert (len(one), one.chars(2)) == (2, 7)


def test_a_thousand_names_of_models_are_told_apart_and_not_kept() -> None:
    for number in range(1_000):
        assert family(f"claude-opus-4-{number:04d}") == "classic"
        assert family(f"claude-opus-5-{number:04d}") == "dense"
    assert projection.family.cache_info().currsize <= 256


@pytest.mark.parametrize(
    ("first", "post", "prompt", "attachments", "wanted"),
    [
        (20_000, 9_000, 300, 6_000, (20_000 - 100 + 10_000, "estimate")),
        (20_000, 9_000, 300, 0, (20_000 - 100 + 12_000, "estimate")),
        (20_000, 9_000, 300, None, (29_000, "rough")),
        (20_000, 0, 0, 0, (20_000, "estimate")),
        (100, 0, 30_000, 0, (1, "estimate")),
        (None, 9_000, 0, 0, (None, "unknown")),
        (20_000, None, 0, 0, (None, "unknown")),
    ],
)
def test_after_a_compaction_a_request_holds_what_the_first_did_and_the_rest(
    first: int | None, post: int | None, prompt: int, attachments: int | None, wanted: tuple[int | None, str]
) -> None:
    assert after_compaction(first, post, prompt, attachments, 3.0) == wanted


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**7), st.integers(0, 10**7), st.floats(0.5, 8))
def test_after_a_compaction_a_known_size_is_never_zero(
    first: int, post: int, prompt: int, attachments: int, per_token: float
) -> None:
    tokens, _ = after_compaction(first, post, prompt, attachments, per_token)
    assert tokens is not None
    assert tokens >= 1


@pytest.mark.parametrize(
    ("output", "cut", "wanted"),
    [
        (PLACEHOLDER, False, (True, 0)),
        (PLACEHOLDER + 1, False, (False, PLACEHOLDER + 1)),
        (1, True, (False, 0)),
        (8_000, True, (False, 0)),
    ],
)
def test_what_an_answer_costs_besides_its_text(output: int, *, cut: bool, wanted: tuple[bool, float]) -> None:
    assert answer_cost(output, cut=cut) == wanted
    assert answer_cost(output, cut=cut, told=True) == (False, 0 if cut else output)


class TestTheCLIsOwnEstimate:
    """Characters by four on top of the last request and its answer."""

    def test_an_answer_counts_by_its_output_and_by_the_table_where_that_is_a_placeholder(self) -> None:
        one = interval()
        one.add("response", "word " * 400)
        assert one.cli_estimate(10_000, 900, parts=1) == 10_000 + 900
        assert one.cli_estimate(10_000, 7, parts=1) == one.projected(10_000, 7, cut=False, parts=1) > 10_300

    def test_what_was_appended_counts_by_four(self) -> None:
        one = interval()
        one.add("response", "x" * 400)
        one.add("user", [{"type": "tool_result", "tool_use_id": "t", "content": "y" * 4_000}, {"type": "image"}])
        one.add("attachment", {"type": "queued_command", "prompt": "z" * 40})
        assert one.cli_estimate(10_000, 900, parts=3) == 10_000 + 900 + 1_000 + 2_000 + 10
        assert one.cli_estimate(10_000, 900, parts=1) == 10_000 + 900

    def test_words_around_an_attachment_count(self) -> None:
        one = interval()
        one.add("attachment", {"type": "companion_intro", "name": "x"})
        one.add("attachment", {"type": "mcp_instructions_delta", "addedBlocks": ["y" * 400]})
        assert one.cli_estimate(10_000, 900, parts=2) == 10_000 + 900 + 129 + 100 + 40

    def test_the_later_rows_of_an_answer_count_twice(self) -> None:
        one = interval()
        one.add("response", "x" * 400)
        one.add("response", "y" * 800)
        assert one.cli_estimate(10_000, 900, parts=2) == 10_000 + 900 + 200

    def test_a_call_counts_by_its_name_and_its_json(self) -> None:
        given = {"command": 'echo "one\\two"\n', "description": "says it"}
        one = interval()
        one.add("response", "x")
        one.add("response", [{"type": "tool_use", "id": "t", "name": "Bash", "input": given}])
        json_like = json.dumps(given, separators=(",", ":"))
        assert one.cli_estimate(10_000, 900, parts=2) == 10_000 + 900 + round(len("Bash" + json_like) / 4)

    def test_a_first_row_of_hidden_thinking_is_a_row(self) -> None:
        """Case core-28: its size of 0 was taken for none seen, and the text after it for the first row's."""
        one = interval()
        one.add("response", [{"type": "thinking", "thinking": "", "signature": "s" * 900}])
        one.add("response", [{"type": "text", "text": "y" * 4_000}])
        assert one.cli_estimate(10_000, 700, parts=2) == 10_000 + 700 + 1_000

    @pytest.mark.parametrize(
        ("version", "output", "wanted"),
        [
            ("2.1.7", 900, 10_900),
            ("2.1.8", 900, 10_900),
            ("2.1.39", 900, 10_900),
            ("2.1.40", 900, 11_100),
            ("2.1.332", 900, 11_100),
            (None, 900, 11_100),
            ("a newer name", 900, 11_100),
            ("2.1.17", 1, 10_001),
        ],
    )
    def test_older_clis_counted_otherwise(self, version: str | None, output: int, wanted: int) -> None:
        one = interval()
        one.add("response", "x" * 400)
        one.add("response", "y" * 800)
        one.counted_by(version)
        assert one.cli_estimate(10_000, output, parts=2) == wanted

    def test_a_placeholder_was_left_in_its_place_by_some(self) -> None:
        estimates = []
        for version in ("2.1.7", "2.1.8", "2.1.29", "2.1.30"):
            one = interval()
            one.add("response", "word " * 400)
            one.counted_by(version)
            estimates.append(one.cli_estimate(10_000, 1, parts=1) - 10_000)
        real, left, also_left, again = estimates
        assert (left, also_left) == (1, 1)
        assert real == again > 300


PARTS = st.lists(
    st.tuples(
        st.sampled_from(["response", "answer", "user", "attachment"]),
        st.text(max_size=200)
        | st.text(max_size=200).map(lambda said: [{"type": "tool_result", "tool_use_id": "t", "content": said}])
        | st.text(max_size=200).map(lambda said: {"type": "queued_command", "prompt": said})
        | st.just([{"type": "image"}, {"type": "document"}]),
    ),
    max_size=6,
)


def made(parts: list[tuple[str, Any]], ratios: Ratios | None = None, model: str = "claude-opus-4-5") -> Interval:
    one = Interval(ratios or Ratios(), model)
    for kind, content in parts:
        one.add(kind, content)
    return one


@settings(max_examples=40)
@given(PARTS, st.integers(0, 1_000), st.booleans())
def test_a_session_that_taught_nothing_is_projected_by_the_table(
    parts: list[tuple[str, Any]], output: int, cut: bool
) -> None:
    one, count = made(parts), len(parts)
    assert one.projected(9_000, output, cut=cut, parts=count) == one.by_table(9_000, output, cut=cut, parts=count)


@settings(max_examples=40)
@given(PARTS, st.integers(0, 1_000))
def test_nothing_that_is_appended_makes_a_request_smaller(parts: list[tuple[str, Any]], output: int) -> None:
    one = made(parts)
    for said in (
        [one.projected(9_000, output, cut=False, parts=count) for count in range(len(parts) + 1)],
        [one.by_table(9_000, output, cut=False, parts=count) for count in range(len(parts) + 1)],
        [one.cli_estimate(9_000, output, parts=count) for count in range(len(parts) + 1)],
    ):
        assert said == sorted(said)
        assert said[0] >= 9_000 + output


@settings(max_examples=40)
@given(PARTS)
def test_a_question_changes_no_length(parts: list[tuple[str, Any]]) -> None:
    asked, silent = made(parts), made(parts)
    asked.cli_estimate(9_000, 7, parts=len(parts) // 2)
    assert [kind for kind, _ in asked.measured(len(parts))] == [kind for kind, _ in parts]
    assert asked.lengths() == silent.lengths()
    counted = [sum(piece.counts.chars for piece in found) for _, found in asked.measured(len(parts))]
    assert all(said >= true for said, true in zip(silent.lengths(), counted, strict=True))
    silent.measure()
    assert silent.lengths() == counted


def test_a_look_at_the_table_does_not_follow_what_the_session_taught() -> None:
    ratios = Ratios()
    ratios.learn({"prompt": 50_000.0}, 75_000, 160_000)
    one = made([("user", "word " * 1_000)], ratios)
    by_table, projected = (ask(9_000, 100, cut=False, parts=1) for ask in (one.by_table, one.projected))
    assert by_table == round(9_100 + text_tokens(Countable("", count_text("word " * 1_000)), FAMILIES["classic"]))
    assert projected - 9_100 == pytest.approx((by_table - 9_100) * 85_000 / 60_000, abs=1)


def test_what_an_answer_counted_by_its_output_says_is_not_learned() -> None:
    ratios = Ratios()
    one = made([("response", "word " * 2_000), ("user", "word " * 2_000)], ratios)
    cost = one.by_table(0, 0, cut=True, parts=2)
    one.measure()
    one.learn(round(3_000 + cost * 2), 3_000, cut=False, parts=2)
    assert ratios.get("prompt") == pytest.approx((10_000 + 2 * cost) / (10_000 + cost), abs=0.01)
    assert ratios.get("response") == ratios.get("any other")


def test_thinking_teaches_nothing() -> None:
    ratios = Ratios()
    one = made([("response", [{"type": "thinking", "thinking": "word " * 2_000}]), ("user", "word " * 2_000)], ratios)
    one.measure()
    one.learn(9_000, 1, cut=False, parts=2)
    assert ratios.get("prompt") == 1.0


def test_what_may_still_be_asked_of_a_measured_interval_needs_no_text() -> None:
    one, other = made([("user", "word 12," * 50), ("answer", "abc")]), made([("user", "word 12," * 50)])
    one.measure()
    assert [content for _, content in one.parts] == [None, None]
    assert one.projected(900, 5, cut=False, parts=1) == other.projected(900, 5, cut=False, parts=1)
    assert one.cli_estimate(900, 5, parts=1) == other.cli_estimate(900, 5, parts=1)


@pytest.mark.parametrize("output", [1, 900])
def test_an_answer_that_was_not_priced_can_be_asked_for_when_its_text_is_gone(output: int) -> None:
    parts = [("response", "word 12," * 50), ("user", "word " * 9)]
    one, other = made(parts), made(parts)
    assert one.projected(900, output, cut=False, parts=1) == other.projected(900, output, cut=False, parts=1)
    one.measure()
    assert one.projected(900, 1, cut=False, parts=2) == other.projected(900, 1, cut=False, parts=2)


def test_random_characters_cost_a_token_each() -> None:
    """Case core-26: a data URL of a million characters was taken for 435,000 tokens."""
    run = base64.b64encode(random.Random(3).randbytes(784_000)).decode()
    one = made([("user", [{"type": "tool_result", "tool_use_id": "t", "content": f"data:image/png;base64,{run}"}])])
    assert one.projected(0, 0, cut=False, parts=1) == pytest.approx(len(run), rel=0.01)


@pytest.mark.parametrize(
    ("model", "signature", "tokens"),
    [
        ("claude-opus-5", 20_000, 6_000),
        ("claude-sonnet-4-5-20250929", 20_000, 3_500),
        ("claude-newest-9", 20_000, 3_800),
        ("claude-opus-5", 0, 0),
        ("claude-opus-5", 20, 0),
    ],
)
def test_hidden_thinking_is_told_from_its_signature(model: str, signature: int, tokens: int) -> None:
    """Case core-24: outputs read 1 while the answer is streamed; then the real output takes its place."""
    block = {"type": "thinking", "thinking": "", "signature": "s" * signature}
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    one = made([("response", [block]), ("response", [call])], model=model)
    said = one.projected(30_000, 1, cut=False, parts=2)
    assert said == pytest.approx(30_000 + tokens + UNITS[family(model)]["tool_use"], abs=100)
    assert one.projected(30_000, 6_050, cut=False, parts=2) == 36_050


@pytest.mark.parametrize(("model", "tokens"), [("claude-opus-5", 8_000), ("claude-sonnet-4-5", 4_800)])
def test_redacted_thinking_is_told_from_its_data(model: str, tokens: int) -> None:
    blocks = [redacted(size, header) for header in HEADERS for size in (9_000, 900, 100)]
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    one = made([*(("response", [block]) for block in blocks), ("response", [call])], model=model)
    said = one.projected(30_000, 1, cut=False, parts=7)
    assert said == pytest.approx(30_000 + tokens + UNITS[family(model)]["tool_use"], abs=20)
    assert one.projected(30_000, 9_050, cut=False, parts=7) == 39_050


def test_the_cli_counts_the_data_of_redacted_thinking_as_text() -> None:
    block = redacted(1_000)
    one = made([("response", [{"type": "text", "text": "So."}]), ("response", [block])])
    assert one.cli_estimate(30_000, 1, parts=2) == pytest.approx(30_000 + 2 * len(block["data"]) / 4, abs=300)
