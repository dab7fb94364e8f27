"""Scenarios: whole sessions, with their project, prompts and script, for demos and for tests.

A scenario sizes its tool results by what the first request turned out to hold, so that the context fills in the
planned number of turns whatever a CLI's system prompt and tools weigh.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mala_context.testing.api import ScriptedMessagesAPI
from mala_context.testing.replies import Reply, text, tool
from mala_context.testing.requests import Request

CLI_RESERVE = 33_000
"""Tokens below an automatic compaction's window at which the CLI compacts by itself."""

RESULT_CHARACTERS = 24_000
"""The most characters of one tool result; the CLI replaces results over about 30,000 by a preview."""


@dataclass(frozen=True)
class Scenario:
    """A session that can be played: start `api()`, give its `options(cwd=…, env=…)` to the SDK, send the prompts."""

    project: str
    """The directory that the agent works in, already furnished."""
    prompts: Sequence[str]
    script: Callable[[Request], Reply]
    """What the main thread is answered; it keeps its place, so make a new scenario for a new session."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `ScriptedMessagesAPI`."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the CLI needs on top of the API's."""

    def api(self, **changes: Any) -> ScriptedMessagesAPI:
        """Return the API of this scenario, not yet started; `changes` replace its settings."""
        return ScriptedMessagesAPI(self.script, **{**self.settings, **changes})


def fill_until_compaction(
    project: str | os.PathLike[str],
    *,
    window: int = 200_000,
    turns: int = 8,
    chars_per_token: float = 3.0,
    proactive: bool = False,
) -> Scenario:
    """Return a session whose context fills up in about two thirds of its turns, so that the CLI compacts by itself.

    Each turn is one prompt and three responses: a Read beside as many Bash calls as it takes, a Write, and a text. It
    writes small files below `project` at once, and its agent writes more. The last turns look at an eighth as much: the
    CLI carries the newest turn over a compaction, and the context would fill again.

    Args:
        project: a directory that exists.
        window: tokens. The API refuses what is larger; or, if proactive, the CLI compacts 33,000 below by itself.
        turns: prompts in all, at least 2.
        chars_per_token: the API's rate. Smaller is faster; 3 is near what current models have.
        proactive: let the CLI compact before the API has to refuse; the window must be at least 100,000 then.

    Raises `ValueError` where these do not go together.
    """
    if turns < 2:
        raise ValueError(f"a compaction needs a turn before it and one after: turns must be at least 2, not {turns}")
    if proactive and window < 100_000:
        raise ValueError(f"the CLI takes no automatic window below 100,000 tokens, and this is {window}")
    project = os.fspath(project)
    limit = window - CLI_RESERVE if proactive else window
    return Scenario(
        project=project,
        prompts=[
            f"Read part {turn} of the service, look at its log and write notes on it." for turn in range(1, turns + 1)
        ],
        script=_Worker(project, turns=turns, limit=limit, chars_per_token=chars_per_token),
        settings={"chars_per_token": chars_per_token, "window": None if proactive else window},
        env={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(window)} if proactive else {},
    )


class _Worker:
    """The agent of `fill_until_compaction`: three responses a turn, its place kept between calls."""

    def __init__(self, project: str, *, turns: int, limit: int, chars_per_token: float) -> None:
        self._project = project
        self._last_full = math.ceil(turns * 2 / 3)
        self._limit = limit
        self._rate = chars_per_token
        self._characters = 0
        self._step = 0
        self._furnish(turns)

    def _furnish(self, turns: int) -> None:
        for name in ("src", "logs", "notes"):
            os.makedirs(os.path.join(self._project, name), exist_ok=True)
        with open(os.path.join(self._project, "logs", "service.log"), "w", encoding="utf-8") as file:
            file.write(log_text())
        for turn in range(1, turns + 1):
            with open(os.path.join(self._project, "src", f"part_{turn:02d}.py"), "w", encoding="utf-8") as file:
                file.write("".join(f"def step_{turn}_{n}(value):\n    return value + {n}\n\n\n" for n in range(12)))

    def __call__(self, request: Request) -> Reply:
        if not self._characters:
            room = max(1, self._limit - request.received_tokens)
            self._characters = max(1, math.ceil(room * self._rate / (self._last_full - 0.5)))
        turn, step = divmod(self._step, 3)
        self._step += 1
        name = f"part_{turn + 1:02d}"
        if step == 0:
            return self._look(name, self._characters if turn < self._last_full else self._characters // 8)
        if step == 1:
            path = os.path.join(self._project, "notes", f"{name}.md")
            return tool("Write", file_path=path, content=f"# {name}\n\nTwelve steps; the log shows no failure.\n")
        return text(f"Turn {turn + 1} is done: {name} holds twelve steps, its log is clean, notes/{name}.md says so.")

    def _look(self, name: str, characters: int) -> Reply:
        read = tool("Read", file_path=os.path.join(self._project, "src", f"{name}.py"))
        return read + look_at_log("logs/service.log", characters)


def log_text() -> str:
    """Return the text of a service's log, a little more than one tool result holds."""
    line = "2026-01-01T00:00:{:02d}Z service[{:04d}]: request {:06d} answered in {:03d} ms\n"
    return "".join(line.format(n % 60, n % 977, n, n * 7 % 331) for n in range(RESULT_CHARACTERS // 60))


def look_at_log(path: str, characters: int) -> Reply:
    """Return Bash calls whose results are this many characters of a log, as many parallel calls as it takes."""
    calls = Reply()
    for start in range(0, characters, RESULT_CHARACTERS):
        size = min(RESULT_CHARACTERS, characters - start)
        calls += tool("Bash", command=f"head -c {size} {path}", description="Look at the log")
    return calls
