"""What the guard's scenarios share: an agent that needs more room than there is, and a run of it.

The CLI's own compaction is switched off, so that a run without the guard ends as it does where compaction fails: the
API refuses the prompt, and the session is dead. Tool calls and transcripts are real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mala_context.cli.agent_runner import terminal_reason
from mala_context.cli.scenarios.recording import Heard
from mala_context.cli.scenarios.report import Check, Report, Stage, Table
from mala_context.testing import Reply, Request, ScriptedMessagesAPI
from mala_context.testing.scripts import log_text, look_at_log

if TYPE_CHECKING:
    from mala_context.agent.runtime import AgentRuntime

WINDOW: Final = 60_000
"""Tokens of the API's window: a small one fills quickly."""
CHARS_PER_TOKEN: Final = 3.0
DEAD: Final = "prompt_too_long"
"""`terminal_reason` of a session whose prompt was refused."""


@dataclass
class Looking:
    """Looks at a log; `times` looks together hold 1.4 times the tokens that the first request leaves free."""

    times: int
    _characters: int = 0

    def next(self, request: Request) -> Reply:
        """Return the next look, as many parallel calls as it takes."""
        if not self._characters:
            room = max(1, WINDOW - request.received_tokens)
            self._characters = max(1, int(room * CHARS_PER_TOKEN * 1.4 / self.times))
        return look_at_log("service.log", self._characters)


@dataclass
class Run(Heard):
    """One run of an agent, and what came of it."""

    runtime: AgentRuntime
    requests: Sequence[Request]

    @property
    def died(self) -> bool:
        """Whether it ended because the API refused the prompt."""
        return self.ended == DEAD

    @property
    def refused(self) -> int:
        """Requests that the API refused."""
        return sum(request.status == 400 for request in self.requests)

    @property
    def largest(self) -> int:
        """Tokens of the largest request of the main thread that the API took."""
        return max((request.tokens for request in self.requests if request.status == 200), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "requests": len(self.requests),
            "refused": self.refused,
            "largest_request_tokens": self.largest,
            "results": len(self.results),
            "terminal_reason": self.ended,
            "is_error": getattr(self._last, "is_error", None),
            "restarts": len(self.markers),
        }

    def row(self, name: str) -> tuple[Any, ...]:
        """Return it as a row under `COLUMNS`."""
        return (f"<{name}", len(self.requests), self.refused, self.largest, f"<{self.ended}")

    @property
    def ended(self) -> str | None:
        """Why the CLI ended the last turn."""
        return terminal_reason(self._last)

    @property
    def _last(self) -> Any:
        return self.results[-1] if self.results else None


def data(without: Run, with_guard: Run, **more: Any) -> dict[str, Any]:
    """Return the JSON that all scenarios with these runs have, and `more` of one scenario."""
    both = {"without": without.as_dict(), "with_guard": with_guard.as_dict()}
    return {"window": WINDOW, "cli_version": with_guard.cli_version, **both, **more}


COLUMNS: Final = ("<run", "requests", "refused", "largest", "<ended")


def report(without: Run, kept: Run, label: str, checks: Sequence[Check], **more: Any) -> Report:
    """Return the report on a run without the guard and one with what `label` names; `more` goes into the JSON."""
    table = Table("The same agent, twice", COLUMNS, [without.row("without"), kept.row(label)])
    return Report(data(without, kept, **more), [table], [died_check(without), *checks, accepted_check(kept)])


async def run(stage: Stage, name: str, script: Callable[[Request], Any], prompts: Sequence[str], **keys: Any) -> Run:
    """Play one run with these keys of `context:`; stops at the first turn that the API refused."""
    stage.write(f"project-{name}", "service.log", log_text())
    with ScriptedMessagesAPI(script, window=WINDOW, chars_per_token=CHARS_PER_TOKEN, strict=False) as api:
        runtime = stage.runtime(api, f"-{name}", {"env": {"DISABLE_AUTO_COMPACT": "1"}}, window=WINDOW, **keys)
        played = Run(runtime, api.main_requests)
        await played.play(stage, runtime, prompts, lambda: played.died)
        played.requests = api.main_requests
    return played


def died_check(without: Run) -> Check:
    """Check that the run without the guard died."""
    return Check("dies_without", without.died, f"without the guard: ended with {without.ended or 'no result'}")


def finished_check(guarded: Run, answers: int, words: str) -> Check:
    """Check that the guarded run gave this many answers, the last with these words, none of them an error."""
    fine = len(guarded.results) >= answers and not any(result.is_error for result in guarded.results)
    done = fine and bool(guarded.texts) and words in guarded.texts[-1]
    said = "finished" if done else f"did NOT finish: {guarded.texts[-1:]}"
    return Check("finishes_with", done, f"with the guard: the work is {said} (results: {len(guarded.results)})")


def accepted_check(guarded: Run) -> Check:
    """Check that the API refused nothing in the guarded run."""
    words = f"with the guard: {guarded.refused} requests refused, the largest held {guarded.largest:,} of {WINDOW:,}"
    return Check("nothing_refused", guarded.refused == 0, words)
