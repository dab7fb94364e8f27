"""The window, the buffer and the limit of one model of one provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mala_context.tracking.auto_compact import LARGEST_WINDOW

DEFAULT_WINDOW: Final = 131_072
"""Window in tokens of a target if no level is set."""
DEFAULT_BUFFER: Final = 256
"""Tokens kept free if no level is set."""

_WINDOW_LEVELS: Final = ("session_window", "window", "provider_window")
_BUFFER_LEVELS: Final = ("buffer_tokens", "provider_buffer_tokens", "default_buffer_tokens")


def is_count(value: object) -> bool:
    """Tell whether a value is a whole number, 0 or more; `True` is no number."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetContextConfig:
    """One model of one provider, with the levels that its window and its buffer come from. All sizes are in tokens.

    The first level that is set counts. For the window these are session, model, provider, and then 131,072; for the
    buffer model, provider, defaults, and then 256. A level must be a positive whole number up to 100,000,000. 0, -1 or
    a text raises `ValueError` with provider and model in it, and is never read as "no limit". A buffer or an output
    that leaves no room raises `ValueError` too.
    """

    provider: str
    """Name of the provider, for messages and for `ContextGuard.evaluate_target`."""
    model: str
    """Name of the model."""
    session_window: int | None = None
    """Window that the session was started with."""
    window: int | None = None
    """Window of the model."""
    provider_window: int | None = None
    """Window of the provider's models where the model itself is not known."""
    buffer_tokens: int | None = None
    """Buffer for the model."""
    provider_buffer_tokens: int | None = None
    """Buffer for the provider."""
    default_buffer_tokens: int | None = None
    """Buffer from the defaults."""
    max_output_tokens: int = 0
    """Tokens that the answer may take; 0 where the window does not hold the answer."""
    tokenizer: Callable[[str], int] | None = None
    """Counts the tokens of a text for this model; `None` for a quarter of the characters."""
    context_window: int = field(init=False)
    """The window in force."""
    buffer: int = field(init=False)
    """The buffer in force."""
    limit: int = field(init=False)
    """Most tokens of a request: window, less buffer and output. A request of just that size fits."""

    def __post_init__(self) -> None:
        window = self._first(_WINDOW_LEVELS, DEFAULT_WINDOW)
        buffer = self._first(_BUFFER_LEVELS, DEFAULT_BUFFER)
        output = self.max_output_tokens
        if not is_count(output):
            raise self._wrong("max_output_tokens", output, "a whole number of tokens, 0 or more")
        limit = window - buffer - output
        if limit <= 0:  # opencode#49965: a reserve as large as the window would make every turn final
            raise ValueError(
                f"target {self.provider}/{self.model}: window {window:,} less buffer {buffer:,} less max_output_tokens "
                f"{output:,} leaves {limit:,} tokens for a request, wanted more than 0"
            )
        set_once = object.__setattr__
        set_once(self, "context_window", window)
        set_once(self, "buffer", buffer)
        set_once(self, "limit", limit)

    def _first(self, levels: tuple[str, ...], default: int) -> int:
        """Return the first level that is set; every level is checked, also those after it."""
        answer = None
        for level in levels:
            value = getattr(self, level)
            if value is None:
                continue
            if not is_count(value) or not 0 < value <= LARGEST_WINDOW:
                raise self._wrong(level, value, f"a positive whole number of tokens, up to {LARGEST_WINDOW:,}, or None")
            answer = value if answer is None else answer
        return default if answer is None else answer

    def _wrong(self, level: str, value: object, right: str) -> ValueError:
        return ValueError(f"target {self.provider}/{self.model}: {level} is {value!r:.80}, wanted {right}")
