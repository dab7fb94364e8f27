"""The log of what the server received: one record a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mala_context.testing.classify import Kind, last_user_text
from mala_context.testing.replies import Failure, Reply
from mala_context.testing.token_counts import block_text, request_text

State = Literal["received", "holding", "answered", "abandoned"]
"""`holding`: sent up to its held block; `abandoned`: the client hung up, or the server closed, before the end."""


@dataclass(eq=False)
class Request:
    """One request, what it held, and what it was answered. It fills as the answer goes out."""

    number: int
    """From 1, over all kinds, in order of arrival."""
    kind: Kind
    """What the CLI asks for with it; `classify` tells it by the request's form."""
    path: str
    """The path of the URL."""
    headers: Mapping[str, str] = field(repr=False)
    """Header names are lower case."""
    body: Mapping[str, Any] = field(repr=False)
    """The parsed request."""
    time: float
    """When it arrived, in seconds since the epoch."""
    id: str
    """What the API calls it in its `request-id` header and in errors."""
    received_tokens: int
    """The size of the request as it arrived."""
    agent_id: str | None = None
    """The subagent that sent it; None for the main thread."""
    tokens: int = 0
    """What the model was given: `received_tokens`, or more where the answer is a server-side loop's last call."""
    answer: Reply | Failure | None = None
    """What the script answered."""
    status: int | None = None
    """The HTTP status; None until the answer starts."""
    message_id: str | None = None
    """The response's own id; `None` for a failure."""
    usage: Mapping[str, Any] | None = None
    """The usage at the end of the response; None for a failure."""
    again: int = 0
    """Tokens that it wrote to the cache although the conversation's request before had left them there."""
    again_cause: str | None = None
    """Why these were not there any more: `lapsed`, `model` or `prefix`."""
    state: State = "received"
    """How far the answer is."""

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model", ""))

    @property
    def session_id(self) -> str | None:
        """The CLI's session, where the client names it."""
        return self.headers.get("x-claude-code-session-id")

    @property
    def text(self) -> str:
        """All that the model was shown: tools, system, messages, decoded."""
        return request_text(self.body)

    @property
    def tool_results(self) -> list[str]:
        """The text of each tool's result that the model was shown, in order."""
        contents = [message.get("content") for message in self.body.get("messages") or ()]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        return [block_text(block) for block in blocks if block.get("type") == "tool_result"]

    @property
    def prompt(self) -> str:
        """The text of the last message if it is the user's, without tool results; empty otherwise."""
        return last_user_text(self.body)

    def contains(self, words: str) -> bool:
        """Whether the model was shown these words."""
        return words in self.text
