"""A finding, and a check that makes some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

from mala_context.analysis.doctor.facts import Facts

Severity = Literal["error", "warning"]
"""`error`: something does not work, or is lost or shown to others; `warning`: it will, or may."""
F = TypeVar("F")
"""What a check looks at."""


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
class Check(Generic[F]):
    """One check: what it looks at, what it finds there, what it says where all is well."""

    name: str
    """For machines."""
    title: str
    """For people."""
    fact: Callable[[Facts], F | None]
    """Returns what the check looks at, `None` where nobody gathered it: then the other two are not asked."""
    find: Callable[[F], Iterable[Finding]]
    """The fact to findings; pure."""
    well: Callable[[F], str]
    """What was looked at, in words; asked only where nothing was found."""
