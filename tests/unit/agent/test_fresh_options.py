"""Options of a session that continues no other one."""

import dataclasses

import pytest
from claude_agent_sdk import ClaudeAgentOptions

from mala_context.agent.fresh_options import fresh, resumes_at

FLAGS = ["resume", "resume-session-at", "resume-drops-turn", "fork-session", "continue", "session-id"]


def test_every_field_of_the_sdk_that_names_a_session_is_reset():
    """An SDK may add one: the CLI does not start with a place in a session and no session."""
    fields = {field.name: field for field in dataclasses.fields(ClaudeAgentOptions)}
    naming = {name for name in fields if name.startswith(("resume", "fork", "continue", "session_id"))}
    changes = fresh(ClaudeAgentOptions())
    assert naming <= set(changes)
    assert all(changes[name] == fields[name].default for name in naming)


@pytest.mark.parametrize("flag", FLAGS)
def test_so_is_every_flag(flag):
    given = ClaudeAgentOptions(extra_args={flag: "x", "verbose": None})
    assert fresh(given)["extra_args"] == {"verbose": None}
    assert flag in given.extra_args


def test_options_without_flags_keep_them():
    assert "extra_args" not in fresh(object())
    assert "extra_args" not in fresh(ClaudeAgentOptions())


class Options:
    """Options of an SDK that has the field, whatever the installed one has."""

    def __init__(self, field=None, flags=None):
        self.resume_session_at, self.extra_args = field, flags


@pytest.mark.parametrize(
    ("options", "at"),
    [
        (object(), None),
        (Options(), None),
        (Options("u1"), "u1"),
        (Options(flags={"resume-session-at": "u2"}), "u2"),
        (Options("u1", {"resume-session-at": "u2"}), "u1"),
        (Options(flags={"resume-session-at": None}), None),
        (Options(""), None),
    ],
)
def test_the_place_that_a_session_is_resumed_at(options, at):
    assert resumes_at(options) == at
