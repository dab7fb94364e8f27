"""The record of one request."""

from mala_context.testing.requests import Request


def request(**fields):
    given = {"number": 1, "kind": "main", "path": "/v1/messages", "headers": {}, "body": {}, "time": 0.0, "id": "req_1"}
    return Request(**{**given, "received_tokens": 5, **fields})


def test_a_request_says_what_the_model_was_shown():
    body = {
        "model": "m",
        "system": "be brief",
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "user", "content": [{"type": "tool_result", "content": "out"}, {"type": "text", "text": "go"}]},
        ],
    }
    one = request(body=body)
    assert one.contains("be brief")
    assert one.contains("out")
    assert not one.contains("absent")
    assert one.prompt == "go"
    assert one.model == "m"


def test_what_is_not_there_is_empty_and_not_an_error():
    one = request()
    assert (one.model, one.session_id, one.text, one.prompt) == ("", None, "", "")


def test_the_session_is_the_clients_own_word():
    assert request(headers={"x-claude-code-session-id": "s"}).session_id == "s"


def test_a_record_prints_short():
    assert "x" * 100 not in repr(request(body={"system": "x" * 100}))


def test_tool_results_in_order():
    parts = [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]
    first = [{"type": "text", "text": "look"}, {"type": "tool_result", "content": "one"}]
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": "words"},
        {"role": "user", "content": [{"type": "tool_result", "content": parts}]},
    ]
    assert request(body={"messages": messages}).tool_results == ["one", "two parts"]
    assert request().tool_results == []
