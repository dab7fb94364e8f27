"""A finding, and a check that makes findings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mala_context.analysis.doctor.facts import Facts

Severity = Literal["error", "warning"]
"""`error`: something does not work, is lost, or can be read by others; `warning`: that will happen, or may."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. Texts may hold what others wrote: escape them before they reach a terminal."""

    severity: Severity
    found: str
    """What was found, in words."""
    where: str
    """A path, or a variable's name."""
    fix: str = ""
    """How to fix it by hand, in words; empty if `commands` are enough."""
    items: tuple[str, ...] = ()
    """The files, models or problems, if the finding is about several."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands that fix it, each a list of arguments. They remove nothing, so `doctor --fix` may run them."""
    check: str = ""
    """Name of the check, which `examine` sets."""

    def steps(self) -> list[str]:
        """Return how to fix it, a line each; commands can be pasted into a shell."""
        return [*map(shlex.join, self.commands), *([self.fix] if self.fix else [])]

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        lists = {"items": list(self.items), "commands": [list(each) for each in self.commands]}
        return {"check": self.check, **asdict(self), **lists, "fix": "; ".join(self.steps())}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One check: the fact that it examines, and the function that finds what is wrong with it."""

    name: str
    """For machines."""
    title: str
    """For people."""
    fact: Callable[[Facts], Any]
    """Returns the fact that the check examines; `None` if it was not gathered, and then the check is skipped."""
    look: Callable[[Any], Iterable[Finding | str]]
    """Yields each finding, and last a text that names what was examined, shown if nothing is wrong. Pure."""
