"""A finding, and a check that makes some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mala_context.doctor.facts import Facts

Severity = Literal["error", "warning"]
"""`error`: something does not work, or is lost or shown to others; `warning`: it will, or may."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. Texts may hold what others wrote: escape them before they reach a terminal."""

    check: str
    """Name of the check."""
    severity: Severity
    found: str
    """What was found, in words."""
    where: str
    """A path, or a variable's name."""
    mend: str
    """How to mend it: a command, or words."""
    items: tuple[str, ...] = ()
    """The single files, models or problems, where the finding is about several."""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {**asdict(self), "items": list(self.items)}


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it needs to know, what it says where all is well, what it finds."""

    name: str
    """For machines."""
    title: str
    """For people."""
    needs: Callable[[Facts], object]
    """Returns `None` where nobody gathered what the check looks at."""
    find: Callable[[Facts], Iterable[Finding]]
    """Facts to findings; pure."""
    well: Callable[[Facts], str]
    """What was looked at, in words, for when nothing was found."""
