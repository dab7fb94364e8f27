"""What a scenario is given and what it gives back, as plain data: `tables` shows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mala_context.agent.runtime import AgentRuntime
    from mala_context.testing import ScriptedMessagesAPI
    from mala_context.tracking.tracker import ContextSnapshot


class Check(NamedTuple):
    """One thing that was checked."""

    name: str
    """A stable name, for machines."""
    ok: bool
    """Whether it held."""
    words: str
    """What was found, for people."""


class Table(NamedTuple):
    """A table of results; numbers come as numbers."""

    heading: str
    columns: Sequence[str]
    """Headings; cells under one that begins with `<` are aligned to the left, all others to the right."""
    rows: Sequence[Sequence[Any]]
    """Cells; `None` reads as a dash, and a row of one cell runs through the whole width."""


class Lines(NamedTuple):
    """Lines of text under a heading."""

    heading: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Report:
    """What a scenario found."""

    data: Mapping[str, Any]
    """For machines; every scenario documents its keys in its module."""
    parts: Sequence[Table | Lines]
    """For people, in this order."""
    checks: Sequence[Check]

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return all(check.ok for check in self.checks)


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Stage:
    """Where a scenario plays, and who is told of its progress."""

    directory: str
    """An empty directory of mode 0700 that is the scenario's own."""
    turns: int
    """Prompts in all."""
    estimators: bool = False
    """Whether to compare every formula with the truth."""
    on_snapshot: Callable[[ContextSnapshot], object] = field(default=_nothing)
    """Called with each new snapshot of the main agent."""
    on_turn: Callable[[int], object] = field(default=_nothing)
    """Called with a turn's number, from 1, before its prompt is sent."""

    def place(self, name: str) -> str:
        """Return the directory of this name below the stage, made with mode 0700 if it is not there."""
        path = os.path.join(self.directory, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def runtime(
        self, api: ScriptedMessagesAPI, name: str = "", options: Mapping[str, Any] | None = None, **keys: Any
    ) -> AgentRuntime:
        """Return a runtime in directories of this name, with these fields of the SDK and these keys of `context:`.

        Alarms are off unless `alarm_at` is a key: not every scripted size is what a real API would count.
        """
        from mala_context.agent.builder import instrument
        from mala_context.config import ArchiveConfig, ContextConfig

        given = api.options(
            **{"cwd": self.place(f"project{name}"), "home": self.place(f"home{name}"), **(options or {})}
        )
        archive = ArchiveConfig(directory=os.path.join(self.directory, "archives"))
        runtime = instrument(given, config=ContextConfig(**{"alarm_at": None, "archive": archive, **keys}))
        runtime.processor.snapshot_observers.append(self.show)
        return runtime

    def write(self, place: str, name: str, text: str) -> str:
        """Write a file in the directory of this name below the stage, and return its path."""
        path = os.path.join(self.place(place), name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def show(self, snapshot: ContextSnapshot) -> None:
        """Observe a runtime's snapshots: pass those of the main agent on to whoever watches."""
        if snapshot.agent_id is None and snapshot.tool_use_id is None:
            self.on_snapshot(snapshot)


def ended_well(errors: Sequence[str]) -> Check:
    """Check that no turn ended with an error."""
    return Check("turns_ended_well", not errors, "; ".join(errors) or "every turn ended without an error")


class Step(NamedTuple):
    """What one step of a scenario found."""

    data: dict[str, Any]
    parts: list[Table | Lines]
    checks: list[Check]


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process's environment while the block runs."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def percent_off(estimate: int | None, truth: int | None) -> float | None:
    """Return an estimate's error in percent, negative where it is too low; `None` where either value is unknown."""
    return None if estimate is None or not truth else 100 * (estimate - truth) / truth
