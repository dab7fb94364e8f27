"""A final turn: what it still needs, and which tools it may use.

Finishing tools are always allowed, so that the agent is never trapped. Every other tool is denied, and the denial says
what to do instead. An agent that asks for another tool a fourth time in a row is stopped, so that it cannot loop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple

from mala_context.tracking.windows import WindowState

MAX_DENIALS: Final = 3
"""Denials in a row after which the session is stopped."""

_OPERATORS: Final = "();<>|&\n"
_SHELL: Final = re.compile(r"""[();<>|&\n]++|(?:[^'"\\();<>|&\n]++|'[^']*+'|"(?:[^"\\]|\\.)*+"|\\.)+""", re.DOTALL)
"""Runs of operators, and the words between them with their quotes."""
_PATTERN_FIELDS: Final = ("command", "file_path", "notebook_path", "path", "url", "pattern", "query", "prompt")


class Requirement(NamedTuple):
    """Something that a final turn must deliver."""

    name: str
    """Its name in words for the agent, e.g. `the report`."""
    tools: tuple[str, ...]
    """Tools that deliver it."""
    main: bool = False
    """Whether this is the result itself: after it, only the tools for other missing requirements are offered."""


def _check_list(tools: Sequence[str]) -> None:
    """Raise `TypeError` for one text: as a list it is its letters, and the agent would be denied every tool."""
    if isinstance(tools, str):
        raise TypeError(f"{tools!r:.80} is a text, wanted a list of tools")


class FinalTurnState:
    """State of a guard's final turn.

    Attributes:
        requirements: what must be there before the session is finished.
        reason: why the turn is final; `None` while it is not.
        still_over: whether the request exceeds the limit even with the finishing tools alone.
    """

    __slots__ = ("_met", "reason", "requirements", "still_over")

    def __init__(self, requirements: tuple[Requirement, ...] = ()) -> None:
        for item in requirements:
            _check_list(item.tools)
        self.requirements = requirements
        self.reason: str | None = None
        self.still_over = False
        self._met: set[str] = set()

    def meet(self, name: str) -> None:
        """Mark a requirement as met; raises `LookupError` for an unknown name."""
        if all(item.name != name for item in self.requirements):
            raise LookupError(f"no requirement {name!r}")
        self._met.add(name)

    @property
    def missing(self) -> tuple[Requirement, ...]:
        """Requirements that are not there yet, in their order."""
        return tuple(item for item in self.requirements if item.name not in self._met)

    @property
    def ready(self) -> bool:
        """Whether nothing is missing: the session may be finished."""
        return not self.missing

    def tools(self, finishing: Sequence[str]) -> tuple[str, ...]:
        """Return the tools to offer in the final turn, each once.

        These are the finishing tools and those of each requirement. After the main requirements are met, they are only
        the tools for the missing ones, and none if nothing is missing. Without requirements: the finishing tools.
        """
        _check_list(finishing)
        if not self.requirements:
            return tuple(dict.fromkeys(finishing))
        missing = self.missing
        result_is_there = any(item.main for item in self.requirements) and not any(item.main for item in missing)
        base = () if result_is_there or not missing else tuple(finishing)
        return tuple(dict.fromkeys([*base, *(tool for item in missing for tool in item.tools)]))


class Verdict(NamedTuple):
    """The answer to one tool call."""

    action: Literal["allow", "deny", "stop"]
    """`stop` means deny and end the session."""
    reason: str = ""
    """Words for the agent; empty where it is allowed."""


@dataclass(slots=True)
class FinalGate:
    """Answers tool calls in a final turn. One a session; `denials` counts those in a row."""

    finishing_tools: Sequence[str]
    """Tools that are allowed, each `Name` or `Name(pattern)`."""
    max_denials: int = MAX_DENIALS
    """Denials in a row after which the session is stopped."""
    denials: int = 0
    """Denials since the last tool that was allowed."""

    def __post_init__(self) -> None:
        _check_list(self.finishing_tools)

    def ask(self, tool: str, tool_input: Mapping[str, Any] | None = None, *, again: bool = False) -> Verdict:
        """Answer one call; carry out the verdict before the next call.

        `again`: the same response had a denied call already, so this denial does not count.
        """
        if any(matches_tool(rule, tool, tool_input or {}) for rule in self.finishing_tools):
            self.denials = 0
            return Verdict("allow")
        allowed = ", ".join(self.finishing_tools) or "no tools"
        if self.denials >= self.max_denials and not again:
            return Verdict("stop", f"The context is full; {tool} is no finishing tool. The session ends here.")
        self.denials += not again
        words = f"The context is full, this is the final turn: {tool} is not available. Save the work and finish"
        return Verdict("deny", f"{words} with {allowed}, then give your final answer.")


def matches_tool(rule: str, tool: str, tool_input: Mapping[str, Any]) -> bool:
    """Tell whether a rule (`Write`, `mcp__report__*`, `Bash(git *)`) covers a tool call.

    The pattern is compared with the call's command, path, address or query. In a command line with several commands
    each must match, except `cd`. This keeps honest agents to the finishing tools; it is no sandbox.
    """
    name, bracket, rest = rule.partition("(")
    if not fnmatchcase(tool, name):
        return False
    if not bracket:
        return True
    pattern = rest.removesuffix(")").strip()
    if pattern in {"*", ""}:
        return True
    value = next((tool_input[key] for key in _PATTERN_FIELDS if isinstance(tool_input.get(key), str)), None)
    if value is None:
        return False
    parts = _commands(value) if "command" in tool_input else [value.strip()]
    return bool(parts) and all(_covers(pattern, part) for part in parts)


def _covers(pattern: str, value: str) -> bool:
    prefix = pattern.removesuffix(":*").removesuffix(" *")
    return fnmatchcase(value, pattern) or (prefix != pattern and (value == prefix or value.startswith(prefix + " ")))


def _commands(line: str) -> list[str]:
    """Return the commands of a shell line without `cd`; a line that cannot be parsed is one command."""
    # Redirections stay in their command: `git log > file` must not match the rule `git log`.
    commands = [""]
    end = 0
    for match in _SHELL.finditer(line):
        if match.start() != end:
            break
        end = match.end()
        text = match[0]
        if text[0] not in _OPERATORS or "<" in text or ">" in text:
            commands[-1] += text
        else:
            commands.append("")
    if end != len(line):
        return [line.strip()]
    stripped = [command.strip() for command in commands]
    return [command for command in stripped if command and command.split(None, 1)[0] != "cd"]


MOST_AT_ONCE: Final = 32
"""Up to this many denials within one response count as one, since the model could not read the first denial yet. Beyond
it each one counts, so that a single response cannot loop for ever."""


class FinalTurnProgress:
    """The state of a present final turn.

    Args:
        gate: answers its tool calls.
        session_id: the session of the turn.
        ratio: the ratio that reached `final_at`.
        window_state: how well the window of `ratio` is known.

    Attributes:
        batches: how many batches of tools have run in it.
        heard: whether the agent knows of it, by a note or by the answer to a tool call.
        told: whether its end was reported to observers.
        denied: how many tool calls were denied since the last prompt.
        stopped: whether the turn was ended by force.
    """

    def __init__(
        self, gate: FinalGate, session_id: str | None, ratio: float, *, window_state: WindowState = "known"
    ) -> None:
        self.gate = gate
        self.window_state = window_state
        self.batches = 0
        self.told = self.heard = False
        self.session_id = session_id
        self.ratio = ratio
        self.denied = 0
        self._saved = self.stopped = False
        self._denied_in: tuple[object, int] | None = None
        self._at_once = 0

    def new_prompt(self) -> None:
        """Count denials from zero again."""
        self.gate.denials = self.denied = 0
        self.told = self.stopped = False
        self._denied_in = None

    def ask(self, tool: str, tool_input: Mapping[str, Any], response: object) -> Verdict:
        """Answer one call. Denied calls of one response count as one denial, up to `MOST_AT_ONCE`."""
        place = (response, self.batches)
        again = place == self._denied_in and self._at_once < MOST_AT_ONCE
        verdict = self.gate.ask(tool, tool_input, again=again)
        if verdict.action == "allow":
            self._saved = True
            return verdict
        self._at_once = self._at_once + 1 if place == self._denied_in else 1
        self._denied_in = place
        self.denied += 1
        self.stopped = self.stopped or verdict.action == "stop"
        return verdict

    @property
    def missing(self) -> tuple[str, ...]:
        """What the turn did not deliver: `saved work` (no finishing tool was used), `final answer`."""
        return tuple(
            name for name, there in (("saved work", self._saved), ("final answer", not self.stopped)) if not there
        )
