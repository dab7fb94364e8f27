"""What a hook answers the CLI: its few shapes, in one place for the SDK's callbacks and for command hooks.

An answer is a mapping in the SDK's spelling, which is the CLI's own but for `continue_`. This module imports nothing at
run time: a command hook lives for milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Answer = Mapping[str, Any] | None
    """What an action has to say to the CLI; `None` or empty for nothing."""


def told(event: str, words: str) -> dict[str, Any]:
    """Hand words to the agent with the next request; `event` is the hook's own name, or the CLI ignores the answer."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": words}}


def denied(reason: str) -> dict[str, Any]:
    """Deny a tool call (PreToolUse); the agent reads the reason in place of a result."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def replaced(output: Any) -> dict[str, Any]:
    """Show the agent this in place of a tool's result (PostToolUse); it has to have the result's own shape."""
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": output}}


def stopped(reason: str) -> dict[str, Any]:
    """End the turn. In PreToolUse the call itself would still run: join it with `denied`."""
    return {"continue_": False, "stopReason": reason}


def merged(answers: Iterable[Answer]) -> dict[str, Any]:
    """Return several actions' answers as one: words for the agent one below the other, of the rest the last wins."""
    whole: dict[str, Any] = {}
    for answer in answers:
        output = dict((answer or {}).get("hookSpecificOutput") or {})
        before = whole.get("hookSpecificOutput", {})
        if "additionalContext" in output and "additionalContext" in before:
            output["additionalContext"] = f"{before['additionalContext']}\n\n{output['additionalContext']}"
        whole.update(answer or {})
        if before or output:
            whole["hookSpecificOutput"] = {**before, **output}
    return whole
