"""Which context window a model has, and which source said so.

The first source that answers wins::

    config → a refusal by the API → model_usage → get_context_usage → suffix or beta → table → 200,000, a guess

Sources differ in how much they know: the API's refusal states the limit that the next request meets, the CLI's
`model_usage` is what the CLI goes by, names and tables age. A request that was accepted above the window refutes it:
the window is then at least that request, and doubtful.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

DEFAULT_WINDOW: Final = 200_000
"""The guess for a model that nothing is known about, in tokens."""
LONG_WINDOW: Final = 1_000_000
"""The window behind `[1m]` and the `context-1m` beta, in tokens."""
OPENAI_WINDOW: Final = 128_000
"""The guess for a model of an OpenAI-compatible server, in tokens."""
AUTO_COMPACT_BUFFER: Final = 33_000
"""What the CLI keeps free where it compacts proactively, in tokens."""

SOURCES: Final = ("config", "api_error", "model_usage", "context_usage", "suffix", "beta", "table", "guess")
"""Names of the sources, the strongest first."""

_TABLE: Final = (
    (re.compile(r"(?:opus|sonnet|haiku|fable)-(?:[5-9]|\d\d)(?!\d)(?!-\d{1,2}(?!\d))"), LONG_WINDOW),
    (re.compile(r"opus-4-(?:[6-9]|\d\d)(?!\d)"), LONG_WINDOW),
    (re.compile(r"sonnet-4-(?:[6-9]|\d\d)(?!\d)"), DEFAULT_WINDOW),
    (re.compile(r"claude"), DEFAULT_WINDOW),
)
_SUFFIX: Final = re.compile(r"\[1m\]|\(1M context\)", re.IGNORECASE)


class Window(NamedTuple):
    """A context window and where it comes from."""

    tokens: int
    """Most tokens that one request may hold."""
    source: str
    """One of `SOURCES`."""
    doubtful: bool = False
    """Whether something was seen that this window does not explain."""


def from_name(model: str | None, betas: Sequence[str] = ()) -> Window:
    """Tell a model's window from its name alone; ids of Bedrock and Vertex work too."""
    name = model or ""
    if _SUFFIX.search(name):
        return Window(LONG_WINDOW, "suffix")
    if any(beta.startswith("context-1m") for beta in betas):
        return Window(LONG_WINDOW, "beta")
    for pattern, tokens in _TABLE:
        if pattern.search(name):
            return Window(tokens, "table")
    return Window(DEFAULT_WINDOW, "guess")
