"""Which ids may become part of a file's name."""

import pytest

from mala_context.errors import InvalidSessionIdError
from mala_context.transcripts.session_ids import check_agent_id, check_session_id


@pytest.mark.parametrize("session_id", ["a", "0e2f4a6c-1b2c-4d5e-8f90-123456789abc", "A_b-1", "n" * 128])
def test_plain_names_are_taken(session_id):
    assert check_session_id(session_id) == session_id


def test_a_refused_id_is_shown_escaped():
    with pytest.raises(InvalidSessionIdError, match=r"'con\\n'"):
        check_session_id("con\n")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not text"),
        (7, "not text"),
        ("", "empty"),
        ("x" * 129, "longer than"),
        ("a/b", "only ASCII"),
        ("-a", "first"),
    ],
)
@pytest.mark.parametrize("check", [check_session_id, check_agent_id])
def test_why_an_id_cannot_name_a_file_is_said(check, value, reason):
    with pytest.raises(InvalidSessionIdError, match=reason):
        check(value)


def test_an_error_says_whose_id_it_is():
    with pytest.raises(InvalidSessionIdError, match=r"^agent id"):
        check_agent_id("../x")
    with pytest.raises(InvalidSessionIdError, match=r"^session id"):
        check_session_id("../x")
