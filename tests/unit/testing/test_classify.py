"""Which request is which, on bodies as the real CLI sends them."""

import pytest

from mala_context.testing.classify import agent_id, last_user_text, recognise, wanted_schema

MESSAGES = "/v1/messages"
TOOLS = [{"name": "Bash"}]
SUMMARY = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n"
    "Your task is to create a detailed summary of the conversation so far, paying close attention to …"
)
PARTIAL = "Your task is to create a detailed summary of the RECENT portion of the conversation."
TITLE = {"type": "json_schema", "schema": {"type": "object", "required": ["title"]}}


def said(words, **fields):
    return {"messages": [{"role": "user", "content": words}], **fields}


@pytest.mark.parametrize(
    ("kind", "path", "body", "headers"),
    [
        ("main", MESSAGES, said("hello", tools=TOOLS), {}),
        ("main", MESSAGES, said("hello", tools=[], max_tokens=32_000), {}),
        ("main", MESSAGES, said("please summarise our conversation", tools=TOOLS), {}),
        ("main", MESSAGES, {}, {}),
        ("subagent", MESSAGES, said("hello", tools=TOOLS), {"x-claude-code-agent-id": "a1"}),
        ("compaction", MESSAGES, said(SUMMARY, tools=TOOLS), {}),
        ("compaction", MESSAGES, said(PARTIAL, tools=TOOLS), {}),
        ("compaction", MESSAGES, said(SUMMARY, tools=TOOLS), {"x-claude-code-agent-id": "a1"}),
        ("compaction", MESSAGES, said([{"type": "text", "text": SUMMARY}], tools=TOOLS), {}),
        ("side", MESSAGES, said("name this", tools=[], max_tokens=32_000, output_config={"format": TITLE}), {}),
        ("side", MESSAGES, said("quota", max_tokens=1), {}),
        ("count_tokens", "/v1/messages/count_tokens", said(SUMMARY), {}),
    ],
)
def test_each_kind_is_recognised(kind, path, body, headers):
    assert recognise(path, body, headers) == kind


def test_a_summary_request_in_the_past_does_not_count():
    body = said(SUMMARY, tools=TOOLS)
    body["messages"] += [{"role": "assistant", "content": "…"}, {"role": "user", "content": "go on"}]
    assert recognise(MESSAGES, body, {}) == "main"


def test_the_last_users_text_leaves_tool_results_out():
    result = {"type": "tool_result", "tool_use_id": "t", "content": SUMMARY}
    assert last_user_text(said([result, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}])) == "b\nc"
    assert last_user_text(said("words")) == "words"
    reminder = {"role": "system", "content": "<total_tokens>9 tokens left</total_tokens>"}
    assert last_user_text({"messages": [*said("words")["messages"], reminder, reminder]}) == "words"
    assert last_user_text({"messages": [{"role": "assistant", "content": "no"}]}) == ""
    assert last_user_text({}) == ""


def test_an_empty_agent_id_is_none():
    assert agent_id({"x-claude-code-agent-id": ""}) is None
    assert agent_id({"x-claude-code-agent-id": "a"}) == "a"


def test_the_schema_is_found_where_the_cli_puts_it():
    assert wanted_schema({"output_config": {"format": TITLE}}) == TITLE["schema"]
    assert wanted_schema({"output_format": TITLE}) == TITLE["schema"]
    assert wanted_schema({"output_config": {"effort": "low"}}) is None
