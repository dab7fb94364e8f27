"""Which script answers a request, and with which of its lines.

A script is a sequence of replies, an iterator of them (such as a generator), or a callable that is given the request.
The main thread has one script, for all its sessions. Each subagent starts at the beginning of its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mala_context.testing.classify import wanted_schema
from mala_context.testing.replies import Failure, Reply, Spoken, as_answer, summary, text
from mala_context.testing.requests import Request

Line: TypeAlias = Spoken | Sequence[Reply | str] | None
"""What a script may hold; None leaves that request to the server (a summary, a plain text)."""

Script: TypeAlias = Iterable[Any] | Callable[[Request], Line]
"""A sequence or an iterator of lines, or a callable that is given the request and returns a line.

The elements are `Line`s; the type says Any because checkers infer `object` for a list of replies and strings.
"""

AUTOMATIC_SUMMARY = summary("The user asked for work in this project; the steps so far were done and went well.")
RAN_OUT = "[The script of this test has no further reply.]"


def _small_answer(request: Request) -> Reply:
    """Return a text, or the JSON that the request wants: every required property that is a string, filled."""
    schema = wanted_schema(request.body)
    if schema is None:
        return text("ok")
    return text(json.dumps(dict.fromkeys(schema.get("required", ()), "Scripted session")))


class Cursor:
    """A script and the place where it stands; safe for several threads."""

    def __init__(self, script: Script | None) -> None:
        self._lock = threading.Lock()
        self._ask: Callable[[Request], Line] | None = None
        self._lines: Iterator[Line] | None = None
        if callable(script):
            self._ask = script
        elif isinstance(script, str | Reply | Failure):
            self._lines = iter([script])
        elif script is not None:
            self._lines = iter(script)

    def next(self, request: Request) -> tuple[bool, Line]:
        """Return whether the script has a line for this request, and the line.

        What a script raises comes through; a callable may be in several threads at once.
        """
        if self._ask is not None:
            return True, self._ask(request)
        with self._lock:
            if self._lines is None:
                return False, None
            for line in self._lines:
                return True, line
            return False, None


class Casting:
    """All scripts of one API: which of them answers a request."""

    def __init__(
        self, main: Script, subagents: Script | Mapping[str, Script] | None, compactions: Script | None
    ) -> None:
        self._main = Cursor(main)
        self._compactions = Cursor(compactions)
        self._subagents = subagents
        self._agents: dict[str, Cursor | None] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> tuple[Reply | Failure, str | None]:
        """Return the answer to a request and what is wrong with the script, if anything is."""
        match request.kind:
            case "compaction":
                _, line = self._compactions.next(request)
                return (AUTOMATIC_SUMMARY if line is None else as_answer(line)), None
            case "subagent":
                return self._subagent(request)
            case "side":
                return _small_answer(request), None
            case _:
                return self._said(self._main, request, "the script")

    def _subagent(self, request: Request) -> tuple[Reply | Failure, str | None]:
        if self._subagents is None:
            return text("Done."), None
        agent = request.agent_id or ""
        with self._lock:
            if agent not in self._agents:
                self._agents[agent] = self._cast(request)
            cursor = self._agents[agent]
        if cursor is None:
            asked = request.prompt[-80:]
            return text(
                RAN_OUT
            ), f"request {request.number}: no subagent's script is for the prompt that ends {asked!r}"
        return self._said(cursor, request, f"the script of subagent {agent}")

    def _cast(self, request: Request) -> Cursor | None:
        if not isinstance(self._subagents, Mapping):
            return Cursor(self._subagents)
        return next((Cursor(script) for words, script in self._subagents.items() if words in request.prompt), None)

    @staticmethod
    def _said(cursor: Cursor, request: Request, whose: str) -> tuple[Reply | Failure, str | None]:
        there, line = cursor.next(request)
        if line is not None:
            return as_answer(line), None
        if there:
            return text("Done."), None
        return text(
            RAN_OUT
        ), f"request {request.number}: {whose} has no further reply, asked after {request.prompt[-80:]!r}"
