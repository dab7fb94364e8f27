"""What the SDK's result says of a turn that went wrong; an older SDK's says less."""

from __future__ import annotations

from typing import Any


def terminal_reason(result: Any) -> str | None:
    """Return why the CLI ended the turn, as `completed` or `prompt_too_long`; `None` where the SDK does not say."""
    reason = getattr(result, "terminal_reason", None)
    return None if reason is None else str(reason)


def why_failed(result: Any) -> str:
    """Return in the CLI's words why a turn that `is_error` failed."""
    errors = getattr(result, "errors", None) or ()
    return str(result.result or "; ".join(map(str, errors)) or terminal_reason(result) or result.subtype)
