"""What still runs in a session, from its messages."""

from types import SimpleNamespace

import pytest
from claude_agent_sdk import AssistantMessage, ResultMessage, SystemMessage, TextBlock
from claude_agent_sdk.types import TaskNotificationMessage, TaskStartedMessage

from mala_context.agent.running_tasks import RunningTasks
from tests.helpers.sdk_messages import task_updated


def started(task_id="t1", task_type="local_agent"):
    return TaskStartedMessage("task_started", {}, task_id, "work", "u", "s", None, task_type)


def notified(status="completed", task_id="t1"):
    return TaskNotificationMessage("task_notification", {}, task_id, status, "", "", "u", "s")


def updated(status=None, patch=None, task_id="t1"):
    return task_updated(task_id, status, patch)


def said(parent=None, model="claude-sonnet-4-5"):
    return AssistantMessage([TextBlock("words")], model, parent_tool_use_id=parent)


def result():
    return ResultMessage("success", 1, 1, is_error=False, num_turns=1, session_id="s")


def after(*messages):
    outstanding = RunningTasks()
    for message in messages:
        outstanding.see(message)
    return outstanding


def test_nothing_runs_at_first():
    assert not after().tasks
    assert not after().subagents
    assert not after().in_turn


def test_a_subagent_is_out_until_it_ends():
    assert after(started()).subagents
    assert not after(started(), notified()).subagents
    assert not after(started(), updated("killed")).subagents
    assert not after(started(), updated(patch={"status": "failed"})).tasks
    assert after(started(), started("t2"), notified()).subagents


def without_a_class(patch, **fields):
    return SystemMessage("task_updated", {"patch": patch, **fields})


def test_an_older_sdk_has_no_class_for_a_task_s_change():
    assert not after(started(), without_a_class({"status": "killed"}, task_id="t1")).tasks
    for nothing in (
        without_a_class({"status": "running"}, task_id="t1"),
        without_a_class({"status": "killed"}, task_id="t2"),
        without_a_class({"status": "killed"}),
        without_a_class(None, task_id="t1"),
        SystemMessage("task_updated", None),
        SystemMessage("init", {"task_id": "t1", "patch": {"status": "killed"}}),
    ):
        assert after(started(), nothing).subagents


@pytest.mark.parametrize(
    "message", [updated("running"), updated(patch={"is_backgrounded": True}), notified(task_id="x")]
)
def test_what_is_no_end_ends_nothing(message):
    assert after(started(), message).subagents


def test_what_the_turn_waits_for_ends_with_it():
    front = started()
    front.data["is_backgrounded"] = False
    assert after(front).subagents
    assert not after(front, result()).tasks
    assert after(front, updated(patch={"is_backgrounded": True}), result()).subagents
    assert after(started(), result()).subagents


def test_a_shell_command_is_a_task_but_no_subagent():
    outstanding = after(started(task_type="local_bash"))
    assert list(outstanding.tasks) == ["t1"]
    assert not outstanding.subagents
    assert after(started(task_type=None)).subagents


def test_a_turn_goes_on_until_its_result():
    assert after(said()).in_turn
    assert not after(said(), result()).in_turn
    assert not after(said(parent="toolu_1")).in_turn
    assert not after(said(model="<synthetic>")).in_turn


def test_other_messages_say_nothing():
    assert not after(object(), None, SimpleNamespace(task_id="t")).tasks


def test_memory_stays_flat():
    outstanding = after(*(started(f"t{number}") for number in range(3_000)))
    assert len(outstanding.tasks) <= 1_024
    assert "t2999" in outstanding.tasks
