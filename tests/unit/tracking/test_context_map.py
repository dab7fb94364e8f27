"""What fills a context: the parts that a snapshot names, which sum up to its size."""

from __future__ import annotations

from typing import Any

import pytest
from claude_agent_sdk import TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.context_map import GROUPS, MOST_PARTS, SIGNED, ContextMap, ContextPart, parts_reported
from mala_context.tracking.events import Appended, Compaction, Event, Reset, Response
from mala_context.tracking.readers.parts import window_report
from mala_context.tracking.snapshot import ContextSnapshot
from mala_context.tracking.token_costs import THINKING, thinking_in
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage
from tests.helpers.redacted import redacted
from tests.helpers.sdk_messages import build

ANSWER: dict[str, Any] = {
    "categories": [
        {"id": "system_prompt", "tokens": 7_000},
        {"id": "system_tools", "tokens": 10_000},
        {"id": "system_tools_deferred", "tokens": 9_000, "isDeferred": True},
        {"id": "mcp_tools", "tokens": 600},
        {"id": "custom_agents", "tokens": 500},
        {"id": "memory_files", "tokens": 11_000},
        {"id": "skills", "tokens": 1_500},
        {"id": "messages", "tokens": 3_000},
        {"id": "free_space", "tokens": 160_000},
    ],
    "memoryFiles": [{"path": "/w/CLAUDE.md", "tokens": 10_000}],
    "mcpTools": [
        {"serverName": "files", "tokens": 300, "isLoaded": True},
        {"serverName": "files", "tokens": 300},
        {"serverName": "wiki", "tokens": 80, "isLoaded": False},
    ],
    "agents": [{"agentType": "helper", "tokens": 500}],
    "maxTokens": 200_000,
}


def response(number: int, tokens: int, *content: Any, output: int = 40) -> Response:
    return Response(None, "s1", f"m{number}", "claude-sonnet-4-5", Usage(3, 0, tokens - 3, output), list(content))


def call(name: str, identity: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": name, "input": given}


def result(identity: str, text: str) -> Appended:
    return Appended(None, "s1", "user", [{"type": "tool_result", "tool_use_id": identity, "content": text}])


def played(*events: Event) -> ContextSnapshot:
    tracker = ContextTracker()
    for event in events:
        tracker.apply(event)
    return tracker.snapshot()


def sizes(snapshot: ContextSnapshot) -> dict[tuple[str, str], int]:
    assert sum(part.tokens for part in snapshot.parts) == (snapshot.tokens or 0)
    return {(part.group, part.name): part.tokens for part in snapshot.parts}


PROMPT = Appended(None, "s1", "user", "x" * 3_000)


def test_the_start_is_what_the_first_request_held_besides_its_messages() -> None:
    assert sizes(played(PROMPT, response(1, 21_000))) == {
        ("start", GROUPS["start"]): 20_000,
        ("prompts", "prompts"): 1_000,
    }


def test_growth_is_divided_by_tool_and_by_file() -> None:
    calls = [call("Read", "t1", file_path="/w/a.py"), call("Read", "t2", file_path="/w/b.py"), call("Bash", "t3")]
    grown = [result("t1", "a" * 3_000), result("t2", "b" * 6_000), result("t3", "c" * 3_000)]
    now = played(PROMPT, response(1, 21_000, *calls, output=100), *grown, response(2, 25_900))
    found = {(part.group, part.name, part.path): part.tokens for part in now.parts}
    assert found["results", "Read", "/w/a.py"] == found["results", "Bash", None] == 1_160
    assert found["results", "Read", "/w/b.py"] == 2_320
    assert found["answers", "answers", None] == 100


def test_what_the_cli_says_is_scaled_to_what_the_api_counts() -> None:
    now = sizes(played(window_report(ANSWER, "s1"), PROMPT, response(1, 31_600)))
    assert now["memory", "/w/CLAUDE.md"] == 10_000
    assert (now["mcp", "files"], now["agents", "helper"]) == (600, 500)
    assert ("mcp", "wiki") not in now
    more = sizes(played(window_report(ANSWER, "s1"), PROMPT, response(1, 62_200)))
    assert more["memory", "/w/CLAUDE.md"] == 20_000
    assert more["prompts", "prompts"] == 1_000


def test_a_compaction_leaves_what_stands_before_the_conversation() -> None:
    told = (window_report(ANSWER, "s1"), PROMPT, response(1, 31_600), PROMPT, response(2, 90_000))
    now = sizes(played(*told, Compaction(None, "s1", "auto", 90_000, 5_000), PROMPT, response(3, 40_000)))
    assert now["memory", "/w/CLAUDE.md"] == 10_000
    assert now["prompts", "prompts"] == 1_000
    assert now["summary", GROUPS["summary"]] == 40_000 - 30_600 - 1_000


def test_a_clear_keeps_what_the_cli_said() -> None:
    now = played(window_report(ANSWER, "s1"), PROMPT, response(1, 31_600), Reset("s1"), PROMPT, response(2, 31_600))
    assert sizes(now)["memory", "/w/CLAUDE.md"] == 10_000


def test_a_conversation_from_before_is_divided_as_the_cli_says() -> None:
    told = {
        "toolCallsByType": [{"name": "Bash", "callTokens": 100, "resultTokens": 4_000}],
        "userMessageTokens": 300,
        "assistantMessageTokens": 700,
    }
    found = {(part.group, part.name): part.tokens for part in parts_reported({**ANSWER, "messageBreakdown": told})}
    assert found["results", "Bash"] == 4_000
    assert found["answers", "answers"] == 800
    assert found["prompts", "prompts"] == 300


@pytest.mark.parametrize("answer", [{}, {"categories": 3}, {"categories": [3, {"id": "skills", "tokens": "x"}]}])
def test_an_answer_without_parts_changes_nothing(answer: dict[str, Any]) -> None:
    assert parts_reported(answer) == ()
    assert ContextMap().reported(()) == {}


def test_the_texts_in_a_transcript_divide_the_start() -> None:
    shot = {
        "type": "prompt_snapshot",
        "systemPrompt": ["p" * 6_000],
        "tools": [
            {"name": "Bash", "schema": {"description": "d" * 3_000}},
            {"name": "mcp__wiki__find", "schema": {"description": "d" * 3_000}},
        ],
    }
    memory = {"type": "instructions", "files": [{"path": "/w/CLAUDE.md", "content": "m" * 9_000}]}
    now = sizes(
        played(
            PROMPT,
            Appended(None, "s1", "attachment", memory),
            response(1, 8_000),
            Appended(None, "s1", "attachment", shot),
            response(2, 8_040),
        )
    )
    assert now["memory", "/w/CLAUDE.md"] == 3_000
    assert now["system", "system prompt"] == pytest.approx(2_000, abs=20)
    assert now["mcp", "wiki"] == now["tools", "tools"] == pytest.approx(1_000, abs=20)
    assert ("start", GROUPS["start"]) not in now


def test_a_snapshot_keeps_its_parts() -> None:
    tracker = ContextTracker()
    for event in (PROMPT, response(1, 21_000)):
        tracker.apply(event)
    early = tracker.snapshot()
    before = early.parts
    for event in (PROMPT, response(2, 22_000), Compaction(None, "s1", "auto", 22_000, 900)):
        tracker.apply(event)
    assert early.parts == before


def test_names_are_bounded() -> None:
    found = ContextMap()
    for number in range(MOST_PARTS + 90):
        used = [call(f"tool {number}", "t1")]
        read = [{"type": "tool_result", "tool_use_id": "t1", "content": 300 * "x"}]
        found.grew([("response", used), ("user", read)], 0, 3.0, told=True)
    parts = found.view().parts((MOST_PARTS + 90) * 100)
    assert len(parts) <= MOST_PARTS + 2
    assert ContextPart("results", "others", 9_100) in parts


ODD: tuple[Any, ...] = ([], {}, ["Read"], 7, None, 1.5, {"name": []})


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("name", ["id", "name", "input", "text", "content", "tool_use_id", "thinking"])
def test_odd_values_of_blocks_raise_nothing(name: str, odd: Any) -> None:
    """Of rows and of the SDK's messages; a row of the archive may hold anything (attack `texts:101-2`)."""
    rows = call("Read", "t1", file_path="/a"), {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
    words = {"type": "text", "text": "Well."}, {"type": "thinking", "thinking": "Hm."}
    said, answered = (
        [{**row, name: odd} for row in (rows[0], *words)],
        [{**row, name: odd} for row in (rows[1], *words)],
    )
    sdk = [build(ToolUseBlock, **said[0]), build(TextBlock, **said[1])]
    results = [build(ToolResultBlock, **answered[0])]
    for parts in ([("response", said), ("user", answered)], [("response", sdk), ("user", results)]):
        found = ContextMap()
        found.grew(parts, 0, 3.0, told=True)
        found.began(parts, 900, 3.0)
        assert sum(part.tokens for part in found.view().parts(900)) == 900


def test_unknown_has_no_parts() -> None:
    assert played(PROMPT).parts == ()
    assert ContextTracker(parts=False).snapshot().parts == ()


TEXTS = st.one_of(
    st.integers(0, 40_000).map(lambda size: "word " * (size // 5)),
    st.sampled_from(["", "字" * 500, None, 3, [{"type": "image", "source": {"data": "x"}}]]),
)
EVENTS = st.one_of(
    st.builds(
        lambda number, tokens, texts, output: response(number, tokens, *texts, output=output),
        st.integers(0, 40),
        st.integers(4, 300_000),
        st.lists(st.builds(lambda text: call("Read", "t1", file_path=text), TEXTS), max_size=3),
        st.integers(0, 5_000),
    ),
    TEXTS.map(lambda text: Appended(None, "s1", "user", text)),
    TEXTS.map(lambda text: result("t1", text)),
    TEXTS.map(
        lambda text: Appended(None, "s1", "attachment", {"type": "nested_memory", "path": "/m", "content": text})
    ),
    st.sampled_from([Compaction(None, "s1", "auto", 9_000, 500), Reset("s1"), window_report(ANSWER, "s1")]),
)


@given(st.lists(EVENTS, max_size=30))
def test_the_parts_sum_up_to_the_tokens_whatever_happens(events: list[Event]) -> None:
    tracker = ContextTracker()
    for event in events:
        tracker.apply(event)
        now = tracker.snapshot()
        assert sum(part.tokens for part in now.parts) == (now.tokens or 0)
        assert all(part.tokens > 0 and part.group in GROUPS for part in now.parts)


def test_a_signature_weighs_what_the_dearest_thinking_costs() -> None:
    """So what came is no less than any model's thinking, and a request with thinking need not be priced."""
    assert max(rate for _, rate in THINKING.values()) <= SIGNED
    block = ThinkingBlock("", "s" * 4_000)
    assert ContextMap().grew([("response", [block])], 1, 3.0, told=False) == pytest.approx(4_000 * SIGNED)


def test_redacted_thinking_weighs_no_less_than_it_costs_and_not_its_envelope() -> None:
    blocks = [redacted(12, header=155) for _ in range(20)]
    came = ContextMap().grew([("response", blocks)], 1, 2.35, told=False)
    assert max(thinking_in(blocks, model) for model in THINKING) <= came == 20 * 16
