"""Each source's objects and the events in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from claude_agent_sdk import AssistantMessage, TextBlock, UserMessage

from mala_context.tracking import readers
from mala_context.tracking.events import (
    Appended,
    Compaction,
    CompactionStatus,
    ContextEdited,
    Link,
    Refusal,
    Reset,
    Response,
    SessionStart,
    SubagentStart,
    Summary,
    TotalTokens,
    TurnEnd,
    WindowReport,
)
from mala_context.tracking.readers import READERS, read_message, read_openai, read_row, read_stream_json
from mala_context.tracking.readers.parts import parse_context_text, window_report
from mala_context.tracking.usage import Usage
from tests.helpers.sdk_stream import assistant, boundary, init, result, stream, task_started, tool_result, usage

REFUSED = "API Error: 400 prompt is too long: 203,114 tokens > 200,000 maximum"


def test_the_table_is_whole() -> None:
    assert set(READERS) == {"sdk", "stream-json", "transcript", "openai"}
    assert set(readers.__all__) >= {reader.__name__ for reader in READERS.values()}


@pytest.mark.parametrize("reader", READERS.values())
@pytest.mark.parametrize(
    "thing", [None, 1, "x", b"x", [], {}, object(), {"type": []}, {"type": {}}, {"type": "assistant"}]
)
def test_no_reader_raises(reader: Any, thing: Any) -> None:
    for event in reader(thing):
        assert isinstance(event, tuple)


class TestSDK:
    def test_a_response(self) -> None:
        (event,) = read_message(assistant("m1", 41_903, output=7, parent="toolu_1", uuid="u", stop="end_turn"))
        assert isinstance(event, Response)
        assert event[:5] == ("toolu_1", "s1", "m1", "claude-opus-4-8", Usage(3, 900, 41_000, 7))
        assert (event.stop_reason, event.uuid, event.source) == ("end_turn", "u", "message")

    def test_an_api_error_is_no_response(self) -> None:
        assert read_message(assistant("x", 0, model="<synthetic>")) == ()
        (event,) = read_message(assistant("x", 0, model="<synthetic>", content=[TextBlock(REFUSED)]))
        assert event == Refusal(None, "s1", 203_114, 200_000)

    def test_what_is_appended(self) -> None:
        message = tool_result("text", parent="toolu_7")
        (event,) = read_message(message)
        assert event == Appended("toolu_7", None, "user", message.content, None)

    @pytest.mark.parametrize("kind", ["content_block_start", "content_block_delta", "content_block_stop", "ping", None])
    def test_most_stream_events_are_nothing(self, kind: str | None) -> None:
        assert read_message(stream({"type": kind})) == ()

    def test_system_messages(self) -> None:
        assert read_message(init("s9", "claude-opus-4-8[1m]")) == (SessionStart("s9", "init", "claude-opus-4-8[1m]"),)
        assert read_message(task_started("a1", "toolu_1")) == (SubagentStart("s1", "a1", "toolu_1"),)
        (event,) = read_message(boundary(183_500, 9_100))
        assert isinstance(event, Compaction)
        assert (event.trigger, event.pre_tokens, event.post_tokens, event.duration_ms) == (
            "auto",
            183_500,
            9_100,
            1_200,
        )

    def test_a_failed_compaction(self) -> None:
        line = {
            "type": "system",
            "subtype": "status",
            "status": None,
            "compact_result": "failed",
            "compact_error": "no",
        }
        assert read_stream_json(line) == (CompactionStatus(None, None, "failed", "no"),)

    def test_a_result(self) -> None:
        windows = {"claude-opus-4-8": {"contextWindow": 1_000_000}, "bad": {"contextWindow": "x"}, "none": None}
        used = {**usage(300), "iterations": [dict(usage(100, 9), type="message")]}
        message = result(used, model_usage=windows, user_message_uuids=["a", "b"], origin={"kind": "task-notification"})
        (event,) = read_message(message)
        assert isinstance(event, TurnEnd)
        assert event.usage == Usage.parse(used)
        assert event.last_call == Usage.parse(usage(100, 9))
        assert event.windows == {"claude-opus-4-8": 1_000_000}
        assert (event.user_uuids, event.origin) == (("a", "b"), "task-notification")

    def test_only_a_missing_usage_is_missing(self) -> None:
        (missing,), (empty,) = read_message(result(None)), read_message(result({}))
        assert isinstance(missing, TurnEnd)
        assert isinstance(empty, TurnEnd)
        assert missing.usage is None
        assert empty.usage == Usage()

    def test_a_message_whose_fields_are_gone(self) -> None:
        message = AssistantMessage(content=[], model="m")
        del message.model
        assert read_message(message) == ()

    def test_an_older_or_newer_class_of_the_same_name(self) -> None:
        double = type("UserMessage", (SimpleNamespace,), {})
        assert read_message(double(content="hello", uuid=None, parent_tool_use_id=None)) == read_message(
            UserMessage("hello")
        )


class TestRows:
    def test_a_row_names_its_parent(self) -> None:
        row = {"type": "user", "uuid": "u", "parentUuid": "p", "sessionId": "s", "message": {"content": "hi"}}
        assert read_row(row) == (Appended(None, "s", "user", "hi", "u", "p"),)
        assert read_row({**row, "parentUuid": None}) == (Appended(None, "s", "user", "hi", "u", ""),)

    def test_agents(self) -> None:
        row = {"type": "user", "uuid": "u", "isSidechain": True, "sessionId": "s", "message": {"content": "hi"}}
        (chain,), (named,) = read_row(row), read_row({**row, "agentId": "a1"})
        assert isinstance(chain, Appended)
        assert isinstance(named, Appended)
        assert (chain.agent, named.agent) == ("sidechain", "a1")

    def test_a_summary(self) -> None:
        row = {"type": "user", "uuid": "u", "isCompactSummary": True, "sessionId": "s", "message": {"content": "long"}}
        assert read_row(row) == (Summary(None, "s", "long", "u", None),)

    def test_a_boundary(self) -> None:
        meta = {"trigger": "manual", "preTokens": 5, "postTokens": 0, "preservedMessages": {"uuids": ["a", 1]}}
        row = {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "u",
            "parentUuid": None,
            "compactMetadata": meta,
        }
        (event,) = read_row({**row, "logicalParentUuid": "q"})
        assert event == Compaction(None, None, "manual", 5, 0, None, "u", "q", frozenset({"a"}))

    def test_a_microcompact_is_no_compaction(self) -> None:
        row = {"type": "system", "subtype": "microcompact_boundary", "uuid": "u", "parentUuid": "p", "sessionId": "s"}
        assert read_row({**row, "microcompactMetadata": {"preTokens": 9}}) == (
            ContextEdited(None, "s", "microcompaction"),
            Link(None, "s", "u", "p"),
        )

    def test_a_task_and_its_agent(self) -> None:
        content = [{"type": "tool_result", "tool_use_id": "toolu_3", "content": "done"}]
        row = {"type": "user", "sessionId": "s", "message": {"content": content}, "toolUseResult": {"agentId": "a3"}}
        assert read_row(row)[0] == SubagentStart("s", "a3", "toolu_3")
        progress = {"type": "progress", "sessionId": "s", "parentToolUseID": "toolu_4", "data": {"agentId": "a4"}}
        assert read_row(progress)[0] == SubagentStart("s", "a4", "toolu_4")

    def test_progress_is_a_place_in_the_file_and_no_more(self) -> None:
        row = {"type": "progress", "uuid": "u", "parentUuid": "p", "sessionId": "s", "data": {"hookName": "Stop"}}
        assert read_row(row) == (Link(None, "s", "u", "p"),)

    @pytest.mark.parametrize(
        "row",
        [
            {"type": "progress", "data": {"hookEvent": "SessionStart"}},
            {"type": "attachment", "attachment": {"type": "hook_success", "hookEvent": "SessionStart"}},
            {"type": "assistant", "isApiErrorMessage": False, "message": {"model": "<synthetic>", "content": []}},
        ],
        ids=["progress", "attachment", "no answer asked for"],
    )
    def test_a_process_that_goes_on_with_a_session(self, row: dict[str, Any]) -> None:
        assert ContextEdited(None, "s", "resume") in read_row({**row, "sessionId": "s", "uuid": "u"})

    def test_clear_inside_a_file(self) -> None:
        row = {"type": "progress", "uuid": "u", "parentUuid": None, "data": {"hookName": "SessionStart:clear"}}
        assert read_row(row) == (Reset(None, "clear", "u"),)

    def test_a_refusal_is_in_the_details(self) -> None:
        row = {"type": "assistant", "isApiErrorMessage": True, "errorDetails": REFUSED, "message": {"model": "m"}}
        assert read_row(row) == (Refusal(None, None, 203_114, 200_000),)

    def test_stream_json_in_a_file(self) -> None:
        row = {"type": "system", "subtype": "init", "session_id": "s", "model": "m"}
        assert read_row(row) == (SessionStart("s", "init", "m"),)

    def test_the_context_command(self) -> None:
        row = {"type": "system", "subtype": "local_command", "content": "Context Usage 62.5k/1m tokens", "uuid": "u"}
        assert read_row(row) == (WindowReport(None, 1_000_000, 62_500), Link(None, None, "u", None))
        report, printed = read_row({**row, "parentUuid": "p"})
        assert report == WindowReport(None, 1_000_000, 62_500)
        assert printed == Appended(None, None, "user", row["content"], "u", "p")

    def test_what_a_command_of_the_cli_prints_is_sent_to_the_model(self) -> None:
        row = {"type": "system", "subtype": "local_command", "content": "<local-command-stdout>x", "uuid": "u"}
        assert read_row({**row, "parentUuid": "p"}) == (Appended(None, None, "user", row["content"], "u", "p"),)
        for odd in ("", ["x"], None):
            assert read_row({**row, "parentUuid": "p", "content": odd}) == (Link(None, None, "u", "p"),)
        assert read_row({**row, "parentUuid": None}) == (Link(None, None, "u", ""),)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("27k/200k tokens (14%)", (27_000, 200_000)),
        ("62.5k/1m", (62_500, 1_000_000)),
        ("1,234/200,000", (1_234, 200_000)),
        ("**Tokens:** 62.5k / 1M (6%)", (62_500, 1_000_000)),
        ("1.2.3/200k", None),
        ("nothing", None),
        (None, None),
    ],
)
def test_what_the_context_command_prints(text: str | None, read: tuple[int, int] | None) -> None:
    assert parse_context_text(text) == read


def test_an_answer_about_the_context() -> None:
    answer = {
        "totalTokens": 9,
        "maxTokens": 1_000_000,
        "rawMaxTokens": 200_000,
        "model": "m",
        "autoCompactThreshold": 7,
    }
    assert window_report(answer, "s") == WindowReport("s", 1_000_000, 9, "m", 7)
    assert window_report(None) == WindowReport(None, None)


@pytest.mark.parametrize(
    ("source", "window"), [("auto", 200_000), ("model-default", 200_000), ("env", None), (3, None)]
)
def test_a_window_that_somebody_chose_is_not_the_models(source: object, window: int | None) -> None:
    answer = {"maxTokens": 200_000, "rawMaxTokens": 200_000, "autocompactSource": source, "autoCompactThreshold": 9}
    assert window_report(answer) == WindowReport(None, window, None, None, 9)


class TestOpenAI:
    def test_a_dict_and_an_object(self) -> None:
        choices = [{"message": {"content": "hi"}}]
        answer = {
            "model": "q",
            "choices": choices,
            "usage": {"total_tokens": 12, "prompt_tokens": 9, "completion_tokens": 3},
        }
        wanted = (TotalTokens(12, "q", 9, 3, "hi"),)
        assert read_openai(answer) == wanted
        made = SimpleNamespace(
            model="q",
            choices=[SimpleNamespace(message=SimpleNamespace(content="hi"))],
            usage=SimpleNamespace(total_tokens=12, prompt_tokens=9, completion_tokens=3),
        )
        assert read_openai(made) == wanted

    def test_without_usage_there_is_no_total(self) -> None:
        assert read_openai({"choices": [{"delta": {"content": "ab"}}]}) == (TotalTokens(None, None, None, None, "ab"),)

    def test_a_total_that_must_be_added_up(self) -> None:
        (event,) = read_openai({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
        assert isinstance(event, TotalTokens)
        assert event.total_tokens == 12

    @pytest.mark.parametrize("choices", [None, 7, "text", {"message": {"content": "hi"}}])
    def test_choices_of_an_unknown_shape_have_no_text(self, choices: Any) -> None:
        assert read_openai({"choices": choices, "usage": {"total_tokens": 12}}) == (TotalTokens(12, content=""),)

    def test_an_answer_that_cannot_be_looked_into_moves_nothing(self) -> None:
        class Lazy:
            @property
            def usage(self) -> Any:
                raise ValueError("the connection is closed")

        assert read_openai(Lazy()) == ()


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({"input_tokens": 5}, Usage(5)),
        ({"input_tokens": 5, "output_tokens": 2.0, "cache_read_input_tokens": None}, Usage(5, output_tokens=2)),
        ({**usage(100), "cache_read_input_tokens": -1}, Usage(3, 97, 0, 1)),
        ({"output_tokens": 7}, None),
        ({**usage(0), "iterations": [dict(usage(100), type="message")]}, None),
        ({}, None),
        ([1, 2], None),
    ],
)
def test_a_size_is_what_was_counted_or_unknown(counts: Any, wanted: Usage | None) -> None:
    for event in (
        *read_message(AssistantMessage(content=[], model="m", usage=counts)),
        *read_stream_json({"type": "assistant", "message": {"usage": counts}}),
        *read_row({"type": "assistant", "message": {"usage": counts}}),
    ):
        assert isinstance(event, Response)
        assert event.usage == wanted


class TestAttachments:
    @pytest.mark.parametrize(
        ("rendered", "said"),
        [
            ([{"content": "one"}, {"content": "two"}], "one\ntwo"),
            ([{"content": "one"}, {"content": [{"type": "image"}]}, 7], "one"),
            ([], ""),
        ],
    )
    def test_what_the_model_gets_stands_beside_it_in_the_row(self, rendered: Any, said: str) -> None:
        attachment = {"type": "skill_listing"}
        row = {"type": "attachment", "sessionId": "s", "uuid": "u", "attachment": attachment, "rendered": rendered}
        (event,) = read_row(row)
        assert event == Appended(None, "s", "attachment", {**attachment, "rendered": said}, "u", None)

    @pytest.mark.parametrize("rendered", [None, "text", 7])
    def test_without_it_the_attachment_is_as_it_came(self, rendered: Any) -> None:
        attachment = {"type": "skill_listing"}
        row = {"type": "attachment", "sessionId": "s", "uuid": "u", "attachment": attachment, "rendered": rendered}
        assert read_row(row) == (Appended(None, "s", "attachment", attachment, "u", None),)
