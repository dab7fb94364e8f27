"""Names, sources and what refutes them."""

from __future__ import annotations

import pytest

from mala_context.tracking.auto_compact import LARGEST_WINDOW
from mala_context.tracking.windows import SOURCES, Window, Windows, from_name, plain_name


@pytest.mark.parametrize(
    ("name", "tokens", "source"),
    [
        ("claude-sonnet-4-5", 200_000, "table"),
        ("claude-sonnet-4-5-20250929", 200_000, "table"),
        ("claude-sonnet-4-5[1m]", 1_000_000, "suffix"),
        ("Sonnet 4.5 (1M context)", 1_000_000, "suffix"),
        ("claude-haiku-4-5-20251001", 200_000, "table"),
        ("claude-opus-4-5-20251101", 200_000, "table"),
        ("claude-opus-4-8", 1_000_000, "table"),
        ("claude-opus-5", 1_000_000, "table"),
        ("claude-sonnet-5", 1_000_000, "table"),
        ("claude-opus-4-20250514", 1_000_000, "guess"),
        ("claude-opus-4-1-20250805", 1_000_000, "guess"),
        ("claude-opus-4-6", 200_000, "guess"),
        ("claude-opus-4-6[1m]", 1_000_000, "suffix"),
        ("us.anthropic.claude-fable-5-v1:0", 1_000_000, "table"),
        ("anthropic/claude-opus-4.8", 1_000_000, "table"),
        ("haiku", 1_000_000, "table"),
        ("claude-newest-9", 1_000_000, "guess"),
        ("claude-opus-4-8-turbo", 1_000_000, "guess"),
        ("an-almost-claude-of-somebody", 1_000_000, "guess"),
        ("claude-3-5-sonnet-20241022", 200_000, "table"),
        ("us.anthropic.claude-opus-4-8-v1:0", 1_000_000, "table"),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", 200_000, "table"),
        ("claude-sonnet-4-5@20250929", 200_000, "table"),
        ("qwen3-coder", 200_000, "guess"),
        ("", 200_000, "guess"),
        (None, 200_000, "guess"),
    ],
)
def test_what_a_name_says(name: str | None, tokens: int, source: str) -> None:
    assert from_name(name) == Window(tokens, source)


def test_the_beta_in_the_options() -> None:
    assert from_name("claude-sonnet-4-5", ["context-1m-2025-08-07"]) == Window(1_000_000, "beta")


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5[1m]",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5@20250929",
        "anthropic/claude-sonnet-4-5",
    ],
)
def test_one_model_of_many_names(name: str) -> None:
    assert plain_name(name) == "claude-sonnet-4-5"


def test_the_first_source_that_answers_wins() -> None:
    sizes = {source: 100_000 + rank for rank, source in enumerate(SOURCES)}
    windows = Windows()
    for source in ("context_usage", "model_usage", "api_error"):
        assert windows.learn("claude-opus-4-8", sizes[source], source)
        assert windows.of("claude-opus-4-8") == Window(sizes[source], source)
    for weaker in ("model_usage", "context_usage"):
        assert not windows.learn("claude-opus-4-8", 7, weaker)
    assert windows.of("us.anthropic.claude-opus-4-8-v1:0").source == "api_error"
    assert Windows(5).of("claude-opus-4-8") == Window(5, "config")


def test_what_was_asked_for_with_a_suffix_sticks() -> None:
    windows = Windows()
    windows.named("claude-sonnet-4-5[1m]")
    assert windows.of("claude-sonnet-4-5-20250929") == Window(1_000_000, "suffix")


def test_a_new_beta_is_heard() -> None:
    windows = Windows()
    assert windows.of("claude-sonnet-4-5").source == "table"
    windows.asked(["context-1m-2025-08-07"])
    assert windows.of("claude-sonnet-4-5").source == "beta"


def test_reports_say_whether_they_are_news() -> None:
    windows = Windows()
    assert windows.reported({"claude-opus-4-8": 1_000_000})
    assert not windows.reported({"claude-opus-4-8": 1_000_000})
    assert not windows.reported({"claude-opus-4-8": 0})


def test_an_accepted_request_above_the_window() -> None:
    windows = Windows()
    windows.accepted("claude-sonnet-4-5", 671_400)
    assert windows.of("claude-sonnet-4-5") == Window(1_000_000, "table", doubtful=True)
    windows.accepted("claude-sonnet-4-5", 1_500_000)
    assert windows.of("claude-sonnet-4-5").tokens == 1_500_000
    configured = Windows(100_000)
    configured.accepted("m", 150_000)
    assert configured.of("m") == Window(100_000, "config", doubtful=True)


@pytest.mark.parametrize(
    ("model", "pre_tokens", "window"),
    [
        ("claude-opus-4-6", 167_181, Window(200_000, "compaction")),
        ("claude-opus-4-6", 196_585, Window(200_000, "compaction")),
        ("claude-newest-9", 188_000, Window(200_000, "compaction")),
        ("claude-newest-9", 967_000, Window(1_000_000, "compaction")),
        ("claude-opus-4-1", 155_000, Window(200_000, "compaction")),
        ("claude-opus-4-6", 67_000, Window(200_000, "guess", doubtful=True)),
        ("claude-opus-4-6", 967_000, Window(200_000, "guess")),
        ("claude-sonnet-4-5", 167_000, Window(200_000, "table")),
        ("claude-opus-4-8", 967_000, Window(1_000_000, "table")),
        ("claude-opus-4-8", 167_000, Window(1_000_000, "table", doubtful=True)),
        ("claude-opus-4-8[1m]", 167_000, Window(1_000_000, "suffix", doubtful=True)),
    ],
)
def test_an_automatic_compaction_shows_the_window_of_a_guessed_model(
    model: str, pre_tokens: int, window: Window
) -> None:
    """Case core-22: 24 of 24 recorded sessions that were called 1M compacted at 167,000 to 188,000."""
    windows = Windows()
    windows.compacted(model, pre_tokens)
    assert windows.of(model) == window


def test_a_compaction_shows_no_window_where_the_window_or_the_threshold_is_told() -> None:
    windows = Windows()
    windows.learn("claude-opus-4-6", 1_000_000, "model_usage")
    windows.compacted("claude-opus-4-6", 167_000)
    assert windows.of("claude-opus-4-6") == Window(1_000_000, "model_usage", doubtful=True)
    windows.compacted("claude-newest-9", 167_000, 200_000)
    assert windows.of("claude-newest-9") == Window(1_000_000, "guess")
    windows.compacted("claude-newest-9", 67_000, 200_000)
    assert windows.of("claude-newest-9") == Window(1_000_000, "guess", doubtful=True)


def test_a_larger_request_rules_the_smaller_window_out_before_a_compaction_and_after() -> None:
    windows = Windows()
    windows.accepted("claude-opus-4-6", 300_000)
    windows.compacted("claude-opus-4-6", 190_000)
    assert windows.of("claude-opus-4-6").tokens == 1_000_000
    windows.compacted("claude-newest-9", 190_000)
    windows.accepted("claude-newest-9", 300_000)
    assert windows.of("claude-newest-9") == Window(1_000_000, "compaction", doubtful=True)


def test_doubt() -> None:
    windows = Windows()
    windows.doubt("claude-opus-4-8")
    assert windows.of("claude-opus-4-8").doubtful
    assert not windows.of("claude-opus-5").doubtful


@pytest.mark.parametrize("repeated", ["-latest", " ", "[1m]", "@1", "-v1"])
@pytest.mark.timeout(20)
def test_a_name_that_goes_on_and_on_takes_no_time(repeated: str) -> None:
    """Names come from transcripts; taking off one part after the other took an hour for a megabyte."""
    name = f"claude-opus-5{repeated * 200_000}x"
    assert plain_name(name) == name
    assert from_name(name) == Window(200_000, "guess")


@pytest.mark.timeout(20)
def test_any_number_of_models_is_followed_in_bounded_time_each() -> None:
    windows = Windows()
    for number in range(3_000):
        windows.accepted(f"x-{number}", 1_500_000 + number)
    assert windows.of("x-0") == Window(1_500_000, "guess", doubtful=True)
    assert windows.of("another") == Window(200_000, "guess")


@pytest.mark.parametrize("others", [1, 100])
def test_no_window_is_smaller_than_the_smallest(others: int) -> None:
    windows = Windows()
    models = ["claude-sonnet-4-5", *(f"claude-opus-5-{number}" for number in range(others))]
    for model in models:
        windows.of(model)
    assert all(windows.smallest <= windows.of(model).tokens for model in models)
    windows.learn("claude-sonnet-4-5", 100_000, "api_error")
    assert windows.smallest <= 100_000


@pytest.mark.parametrize("tokens", [LARGEST_WINDOW + 1, 2**50 - 1, 10**400])
@pytest.mark.parametrize("source", SOURCES[1:])
def test_a_number_that_no_window_has_is_none(tokens: int, source: str) -> None:
    windows = Windows()
    assert not windows.learn("claude-sonnet-4-5", tokens, source)
    windows.accepted("claude-sonnet-4-5", tokens)
    assert windows.of("claude-sonnet-4-5") == Window(200_000, "table")
    assert windows.learn("claude-sonnet-4-5", LARGEST_WINDOW, "api_error")
