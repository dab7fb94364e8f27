"""A final turn while it goes on: what is asked of its gate, and how it ended.

The gate counts denials by responses. A model may ask for many tools at once, and has read none of the words that deny
the first of them when it asks for the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mala_context.agent.telemetry.records import FinalTurn

if TYPE_CHECKING:
    from mala_context.guard import FinalGate, Verdict

MOST_AT_ONCE: Final = 32
"""Denials in one response that count as one; past them each counts, so that nobody depends on a count of responses."""


class FinalTurnProgress:
    """A final turn that is going on.

    Args:
        gate: answers its tool calls.
        session_id: whose turn it is.
        ratio: what reached `final_at`.

    Attributes:
        batches: how many batches of tools have run in it.
        heard: whether the agent was told of it, by a note or by what a tool was answered.
        told: whether observers were told how it ended.
    """

    def __init__(self, gate: FinalGate, session_id: str | None, ratio: float) -> None:
        self.gate = gate
        self.batches = 0
        self.told = self.heard = False
        self._session_id = session_id
        self._ratio = ratio
        self._denied = 0
        self._saved = self._stopped = False
        self._denied_in: tuple[object, int] | None = None
        self._at_once = 0

    def new_prompt(self) -> None:
        """Begin to count denials anew."""
        self.gate.denials = self._denied = 0
        self.told = self._stopped = False
        self._denied_in = None

    def ask(self, tool: str, tool_input: Mapping[str, Any], response: object) -> Verdict:
        """Answer one call; those that one response asked for beside a denied one count with it."""
        place = (response, self.batches)
        again = place == self._denied_in and self._at_once < MOST_AT_ONCE
        verdict = self.gate.ask(tool, tool_input, again=again)
        if verdict.action == "allow":
            self._saved = True
            return verdict
        self._at_once = self._at_once + 1 if place == self._denied_in else 1
        self._denied_in = place
        self._denied += 1
        self._stopped = self._stopped or verdict.action == "stop"
        return verdict

    def record(self) -> FinalTurn:
        """Return how it ended."""
        missing = [
            name for name, there in (("saved work", self._saved), ("final answer", not self._stopped)) if not there
        ]
        return FinalTurn(self._session_id, "context", self._ratio, self._stopped, self._denied, tuple(missing))
