"""Check session ids and agent ids before they become part of a file's name.

A session id comes from a hook's input, so only a plain name is accepted: ASCII letters, digits, `_` and `-`, with a
letter or digit first, at most 128 characters.
"""

from __future__ import annotations

SESSION_ID_MAX = 128
AGENT_ID_MAX = 48


def check_session_id(session_id: object) -> str:
    """Return the id if it can name a file; raises `InvalidSessionIdError` otherwise."""
    return _plain_name(session_id, SESSION_ID_MAX)


def check_agent_id(agent_id: object) -> str:
    """Return a subagent's id if it can be part of a file's name; raises `InvalidSessionIdError` otherwise."""
    return _plain_name(agent_id, AGENT_ID_MAX, "agent")


def _plain_name(value: object, most: int, whose: str = "session") -> str:
    if not isinstance(value, str):
        reason = "it is not text"
    elif not value:
        reason = "it is empty"
    elif len(value) > most:
        reason = f"it is longer than {most} characters"
    elif not is_plain(value, most):
        reason = "only ASCII letters, digits, '_' and '-' are taken, and a letter or digit first"
    else:
        return value
    from mala_context.errors import InvalidSessionIdError

    raise InvalidSessionIdError(value, reason, whose)


def is_plain(value: str, most: int) -> bool:
    """Return whether an id of at most `most` characters is a plain name."""
    if not 0 < len(value) <= most or value[0] in "-_" or not value.isascii():
        return False
    return value.replace("-", "").replace("_", "").isalnum()


def session_in(session_id: object, transcript_path: object) -> str:
    """Return a hook's session id; else the transcript's name, if that is a plain name; else `unknown`.

    An id that is a text is returned as it is, valid or not.
    """
    if isinstance(session_id, str) and session_id:
        return session_id
    name = transcript_path.rpartition("/")[2].rpartition(".")[0] if isinstance(transcript_path, str) else ""
    return name if is_plain(name, SESSION_ID_MAX) else "unknown"
