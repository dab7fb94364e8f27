"""Scripts and their places: who is answered from which."""

import json
import threading

import pytest

from mala_context.testing.replies import Reply, text, tool
from mala_context.testing.requests import Request
from mala_context.testing.scripting import AUTOMATIC_SUMMARY, RAN_OUT, Casting, Cursor


def asked(kind="main", *, agent=None, prompt="hello", **body):
    return Request(
        number=7,
        kind=kind,
        path="",
        headers={},
        time=0.0,
        id="req",
        received_tokens=0,
        agent_id=agent,
        body={"messages": [{"role": "user", "content": prompt}], **body},
    )


def words(casting, request):
    answer, _ = casting.answer(request)
    return answer.content[0]["text"]


@pytest.mark.parametrize("script", [["a", "b"], ("a", "b"), iter(["a", "b"])])
def test_a_script_is_said_in_order(script):
    casting = Casting(script, None, None)
    assert [words(casting, asked()) for _ in range(2)] == ["a", "b"]


def test_a_single_reply_is_a_script_too():
    assert words(Casting("hello", None, None), asked()) == "hello"
    assert words(Casting(text("hello"), None, None), asked()) == "hello"


def test_a_callable_is_given_the_request():
    casting = Casting(lambda request: f"re: {request.prompt}", None, None)
    assert words(casting, asked(prompt="x")) == "re: x"
    assert words(casting, asked(prompt="y")) == "re: y"


def test_a_script_that_ran_out_ends_the_turn_and_says_so():
    answer, problem = Casting([], None, None).answer(asked(prompt="please go on"))
    assert answer == text(RAN_OUT)
    assert problem == "request 7: the script has no further reply, asked after 'please go on'"


def test_none_in_a_script_is_a_plain_text():
    assert Casting([None], None, None).answer(asked()) == (text("Done."), None)
    assert Casting(lambda _: None, None, None).answer(asked()) == (text("Done."), None)


def test_side_requests_never_eat_the_script():
    schema = {"type": "object", "required": ["title"]}
    casting = Casting(["main"], None, None)
    assert words(casting, asked("side")) == "ok"
    titled = words(casting, asked("side", output_config={"format": {"schema": schema}}))
    assert json.loads(titled) == {"title": "Scripted session"}
    assert words(casting, asked()) == "main"


def test_summaries_are_automatic_until_they_are_scripted():
    casting = Casting(["main"], None, ["first", None, Reply()])
    answers = [casting.answer(asked("compaction"))[0] for _ in range(4)]
    assert answers == [text("first"), AUTOMATIC_SUMMARY, Reply(), AUTOMATIC_SUMMARY]
    assert words(casting, asked()) == "main"


def test_each_subagent_plays_the_script_from_its_start():
    casting = Casting([], [tool("Bash", command="x"), "found"], None)
    one = [casting.answer(asked("subagent", agent="a"))[0], casting.answer(asked("subagent", agent="b"))[0]]
    assert one == [tool("Bash", command="x")] * 2
    assert words(casting, asked("subagent", agent="a")) == "found"
    _, problem = casting.answer(asked("subagent", agent="a"))
    assert "the script of subagent a has no further reply" in problem


def test_subagents_are_told_apart_by_their_first_prompt():
    casting = Casting([], {"ALPHA": ["a1", "a2"], "BETA": lambda _: "b"}, None)
    assert words(casting, asked("subagent", agent="x", prompt="find ALPHA")) == "a1"
    assert words(casting, asked("subagent", agent="x", prompt="a later prompt")) == "a2"
    assert words(casting, asked("subagent", agent="y", prompt="find BETA")) == "b"
    answer, problem = casting.answer(asked("subagent", agent="z", prompt="find GAMMA"))
    assert answer == text(RAN_OUT)
    assert "'find GAMMA'" in problem


def test_without_a_script_subagents_just_finish():
    assert Casting([], None, None).answer(asked("subagent", agent="a")) == (text("Done."), None)


def test_no_line_is_said_twice_to_threads_at_once():
    cursor, said, lock = Cursor(str(n) for n in range(400)), [], threading.Lock()

    def ask():
        for _ in range(100):
            _, line = cursor.next(asked())
            with lock:
                said.append(line)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said, key=int) == [str(n) for n in range(400)]
