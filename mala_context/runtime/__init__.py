"""Wiring: from options to an agent whose context is tracked, archived and guarded.

`instrument` is for those who have their options already, `AgentRuntimeBuilder` for those who start from nothing. Both
give an `AgentRuntime`; neither touches what it was given.
"""

from __future__ import annotations

from mala_context.runtime.agent import AgentRuntime
from mala_context.runtime.builder import AgentRuntimeBuilder, instrument
from mala_context.runtime.sdk import SDKClientFactory

__all__ = ["AgentRuntime", "AgentRuntimeBuilder", "SDKClientFactory", "instrument"]
