"""What a script says: replies of the model and refusals of the API, as plain data.

A reply is a frozen value. Replies are joined with `+` (a text and two tool calls in one response) and changed with
`but` (`text("…").but(stop_reason="max_tokens")`), since the keyword arguments of `tool` are the tool's own input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

if TYPE_CHECKING:
    import threading

Block: TypeAlias = Mapping[str, Any]
"""A content block as the Messages API sends it; a tool call without an `id` gets one."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What replies and failures share: when they are sent, and with which headers."""

    delay: float = 0.0
    """Seconds to wait before the answer starts."""
    hold: threading.Event | None = None
    """Keep the answer open until this is set, its last block unfinished; None sends it at once.

    A client that hangs up, or the end of the `with` block, ends the wait too.
    """
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further response headers."""

    def but(self, **changes: Any) -> Self:
        """Return the same with other fields, e.g. `.but(delay=0.5)`; an unknown field is a TypeError."""
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class Reply(Timed):
    """One response of the model."""

    content: tuple[Block, ...] = ()
    """The content blocks, in order."""
    stop_reason: str | None = None
    """None means `tool_use` when there is a tool call and `end_turn` otherwise."""
    output_tokens: int | None = None
    """Tokens of the response; None counts its characters."""
    usage_in: Literal["start", "delta"] | None = None
    """Where a stream carries the sizes; `delta` leaves zeros in message_start. None takes the API's own setting."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Keys that replace or extend the usage that was counted: for tests of readers, since it may then be untrue."""
    breaks_with: Failure | None = None
    """An error that a stream ends with, its last block unfinished; a response that is not streamed is that error."""
    iterations: tuple[tuple[Block, ...], ...] = ()
    """What each model call of a server-side loop said, the last one left out; see `looped`."""

    def __add__(self, other: Reply) -> Reply:
        """Join two replies into one response; fields other than the content come from the left one."""
        if not isinstance(other, Reply):
            return NotImplemented
        return replace(self, content=self.content + other.content)


@dataclass(frozen=True, kw_only=True)
class Failure(Timed):
    """An answer that is no message: an HTTP error with the API's error body."""

    status: int = 500
    """The HTTP status."""
    type: str = "api_error"
    """The type of the error in the body."""
    message: str = "Internal server error"
    """The error's message in the body."""


def text(words: str) -> Reply:
    """Return a reply that says these words."""
    return Reply(content=({"type": "text", "text": words},))


def thinking(words: str, signature: str = "c2NyaXB0ZWQ=") -> Reply:
    """Return a thinking block of these `words`; add a text or a tool call to it with `+`.

    The CLI sends the `signature` back and the scripted API does not look at it.
    """
    return Reply(content=({"type": "thinking", "thinking": words, "signature": signature},))


def tool(name: str, /, **arguments: Any) -> Reply:
    """Return a call of the tool `name` with these `arguments`; join several with `+` to call them in parallel."""
    return Reply(content=({"type": "tool_use", "name": name, "input": arguments},))


def looped(*steps: Reply) -> Reply:
    """Return one response that took several model calls on the server (such as a search), one for each step.

    Each call is given what the earlier steps said; the usage has a row of `iterations` for each and their sums on top.
    """
    joined = Reply()
    for step in steps:
        joined += step
    return joined.but(iterations=tuple(step.content for step in steps[:-1]))


def block(content: Block) -> Reply:
    """Return a reply of one content block of any type, as the API would send it."""
    return Reply(content=(dict(content),))


def summary(words: str, analysis: str = "The conversation so far.") -> Reply:
    """Return what the CLI expects of a compaction request.

    `words` is all that stays of the conversation; the CLI drops the `analysis`.
    """
    return text(f"<analysis>{analysis}</analysis>\n\n<summary>{words}</summary>")


ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""The type that the API gives with each status."""


def api_error(status: int, message: str = "scripted error", *, retry: bool | None = None) -> Failure:
    """Return an HTTP error of this `status` with a `message`.

    `retry` asks the client to try again or not to; `None` leaves it to the client.

    Clients repeat 429 and 5xx by themselves after a pause, and each try takes one reply from the script.
    """
    headers = {} if retry is None else {"x-should-retry": "true" if retry else "false"}
    if retry:
        headers["retry-after-ms"] = "10"
    return Failure(status=status, type=ERROR_TYPES.get(status, "api_error"), message=message, headers=headers)


def refuse(message: str, status: int = 400) -> Failure:
    """Return a refusal of the request in the words of `message`: of `status` 400, `invalid_request_error`."""
    return Failure(status=status, type=ERROR_TYPES.get(status, "invalid_request_error"), message=message)


def too_long(tokens: int, maximum: int) -> Failure:
    """Return the API's refusal of a request of `tokens` tokens where `maximum` is the window, word for word."""
    return refuse(f"prompt is too long: {tokens} tokens > {maximum} maximum")


Spoken: TypeAlias = Reply | Failure | str
"""One answer of a script; a plain string is a text."""


def as_answer(spoken: Spoken | Sequence[Reply | str]) -> Reply | Failure:
    """Return one answer for anything that a script may hold.

    A sequence is joined into one response. Raises TypeError for anything else: that is a mistake in the script.
    """
    if isinstance(spoken, Reply | Failure):
        return spoken
    if isinstance(spoken, str):
        return text(spoken)
    if isinstance(spoken, Sequence):
        joined = Reply()
        for part in spoken:
            one = as_answer(part)
            if isinstance(one, Failure):
                raise TypeError("a failure cannot be joined with other replies in one response")
            joined += one
        return joined
    raise TypeError(f"a script holds replies, failures and strings, not {type(spoken).__name__}: {spoken!r}")
