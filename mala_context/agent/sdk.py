"""The SDK's own types, and what may stand in for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mala_context.agent.hooks import HOOK_SECONDS

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher


class SDKClientFactory(Protocol):
    """Stands in for the SDK's own types."""

    def create_options(self, **fields: Any) -> Any:
        """Return options with these fields set, as `ClaudeAgentOptions(**fields)` does."""

    def create_hook_matcher(self, matcher: str | None, hooks: list[Any]) -> Any:
        """Return a matcher, as `HookMatcher(matcher=…, hooks=…)` does."""


class SDK:
    """The SDK's own types, imported when the first one is made."""

    def create_options(self, **fields: Any) -> ClaudeAgentOptions:
        """Return the SDK's options with these fields set."""
        from claude_agent_sdk import ClaudeAgentOptions

        return ClaudeAgentOptions(**fields)

    def create_hook_matcher(self, matcher: str | None, hooks: list[Any]) -> HookMatcher:
        """Return the SDK's matcher, which waits for a callback of ours for longer than it ever takes."""
        from claude_agent_sdk import HookMatcher

        return HookMatcher(matcher=matcher, hooks=hooks, timeout=HOOK_SECONDS)
