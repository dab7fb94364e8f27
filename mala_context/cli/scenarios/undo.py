"""The scenario `undo`: a compaction throws a conversation away, and the archive brings it back.

An agent works, `/compact` compacts, and one more prompt shows what the compaction left. Then the session is restored
from before that compaction, once while its transcript is there and once with the transcript deleted, and the real CLI
resumes what was restored. What each request held is read from the server's log, and not from what we or the CLI
report. The compaction is one that was asked for: before an automatic one the window is full, so the CLI would compact
the restored session again at once.

The keys of the result (sizes in tokens):

* `model`, `session_id`, `cli_version`, `compactions` (how many the server was asked for);
* `requests`: for each, `when`, `session_id`, `tracked_tokens`, `received_tokens`, `prompts`, `answers`,
  `tool_results` (how many it held of those from before the compaction), `held`, `of`;
* `restored`: for each, `transcript` (`there` or `deleted`), `session_id`, `through`, `read_from`, `rows`, `path`,
  `command`, `missing`;
* `archive`: as in the scenario `compaction`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mala_context.cli.scenarios.archived import ArchiveFindings, examine
from mala_context.cli.scenarios.recording import Recorder
from mala_context.cli.scenarios.report import Check, Lines, Report, Stage, Table, ended_well, environment
from mala_context.testing import Reply, Request, ScriptedMessagesAPI, text, tool

if TYPE_CHECKING:
    from mala_context.archive.restore import RestoreResult

LAST_PROMPT: Final = "What was decided so far?"
"""What is asked after the compaction, and again in each restored session."""
_BEFORE, _AFTER = "before the compaction", "after it"
_WAYS: Final = {"there": "fork_session", "deleted": "archive"}
"""What became of the transcript → what should write the restored session."""
_RESTORED: Final = ("session_id", "through", "read_from", "rows", "path", "command", "missing")


@dataclass(frozen=True)
class OldConversation:
    """What was said before the compaction: words by which a request shows that it holds them."""

    project: str
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    results: tuple[str, ...]
    """A line of each tool result, which no prompt, answer or command repeats."""

    @classmethod
    def of(cls, project: str, turns: int) -> OldConversation:
        """Furnish a project with what the agent will look at, and return what will be said in `turns` turns.

        The logs are long, since the CLI carries the newest few thousand tokens over a compaction.
        """
        results = tuple(f"reading {n:02d}: {n * 7919 % 10_007:05d} requests, no failure" for n in range(1, turns + 1))
        for number, line in enumerate(results, 1):
            with open(os.path.join(project, f"part_{number:02d}.log"), "w", encoding="utf-8") as file:
                file.write(f"{line}\n" * min(500, 10_000 // turns))
        return cls(
            project,
            prompts=tuple(f"Look at part {n:02d} and decide what port it gets." for n in range(1, turns + 1)),
            answers=tuple(f"Decided: part {n:02d} gets port {41_000 + n}." for n in range(1, turns + 1)),
            results=results,
        )

    def script(self, request: Request) -> Reply:
        """Answer a request of the main thread: look first, then decide."""
        if LAST_PROMPT in request.prompt:
            return text("That is all I know.")
        for number, prompt in enumerate(self.prompts, 1):
            if prompt in request.prompt:
                return tool("Bash", command=f"cat part_{number:02d}.log", description="Look at the log")
        newest = max(number for number, prompt in enumerate(self.prompts) if request.contains(prompt))
        return text(self.answers[newest])


@dataclass(frozen=True)
class HeldConversation:
    """How much of a conversation a request held, by the server's log."""

    when: str
    session_id: str | None
    tracked_tokens: int | None
    received_tokens: int
    prompts: int
    answers: int
    tool_results: int
    of: int
    """How many of each there were."""
    from_after_the_compaction: bool
    """Whether it held a prompt from after the compaction besides its own."""

    @property
    def all(self) -> bool:
        """Whether it held the whole conversation."""
        return self.prompts == self.answers == self.tool_results == self.of


def held(when: str, request: Request, tracked: int | None, conversation: OldConversation) -> HeldConversation:
    """Count what a request held of a conversation."""
    shown = request.text

    def count(said: Sequence[str]) -> int:
        return sum(words in shown for words in said)

    return HeldConversation(
        when=when,
        session_id=request.session_id,
        tracked_tokens=tracked,
        received_tokens=request.tokens,
        prompts=count(conversation.prompts),
        answers=count(conversation.answers),
        tool_results=count(conversation.results),
        of=len(conversation.prompts),
        from_after_the_compaction=shown.count(LAST_PROMPT) > 1,
    )


@dataclass
class _Play:
    """One run of the scenario."""

    stage: Stage
    api: ScriptedMessagesAPI
    conversation: OldConversation
    errors: list[str] = field(default_factory=list)
    cli_version: str | None = None
    requests: list[HeldConversation] = field(default_factory=list)
    restored: list[tuple[str, RestoreResult]] = field(default_factory=list)
    answered_by: list[str | None] = field(default_factory=list)
    """Session ids that the CLI itself gave to the restored sessions."""

    async def session(self, prompts: Sequence[tuple[str, str]], **fields: Any) -> Any:
        """Send prompts and return the runtime and the session's id.

        Each prompt comes with the name under which its last request is noted; a command of the CLI has no name.
        """
        runtime = self.stage.runtime(self.api, options=fields)
        recorder = Recorder(runtime, self.api)
        async with runtime.session() as session:
            for number, (prompt, name) in enumerate(prompts, 1):
                if name and not fields:
                    self.stage.on_turn(min(number, self.stage.turns))
                recorder.turn(number)
                async for message in session.send(prompt):
                    recorder.message(message)
                if name:
                    tokens = runtime.tracker.snapshot().tokens
                    self.requests.append(held(name, self.api.last, tokens, self.conversation))
        self.errors.extend(recorder.errors)
        self.cli_version = recorder.cli_version or self.cli_version
        return runtime, recorder.session_id


async def play(stage: Stage) -> Report:
    """Play the session, undo its compaction twice, and check it. Raises what the SDK raises without a CLI."""
    conversation = OldConversation.of(stage.place("project"), stage.turns - 1)
    with ScriptedMessagesAPI(conversation.script, chars_per_token=3.0, strict=False) as api:
        run = _Play(stage, api, conversation)
        working = [(prompt, _BEFORE) for prompt in conversation.prompts]
        runtime, session_id = await run.session([*working, ("/compact", ""), (LAST_PROMPT, _AFTER)])
        del run.requests[: len(working) - 1]
        archive = runtime.archive
        transcript = archive.find_transcript(session_id)
        content = _read(transcript)
        archived = examine(archive, session_id, content)
        untouched = True
        for state in _WAYS:
            if state == "deleted":
                untouched = _read(transcript) == content
                os.unlink(transcript)
            with environment(
                "CLAUDE_CONFIG_DIR", os.path.join(stage.place("home"), ".claude")
            ):  # for the SDK's session functions
                result = archive.restore(session_id, at=1)
            run.restored.append((state, result))
            _, answered = await run.session([(LAST_PROMPT, f"restored, transcript {state}")], resume=result.session_id)
            run.answered_by.append(answered)
        run.errors.extend(api.problems)
        checks = _checks(run, archived, len(api.of_kind("compaction")), untouched=untouched)
        return _report(run, runtime, session_id, archived, checks)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _report(run: _Play, runtime: Any, session_id: str, archived: ArchiveFindings, checks: Sequence[Check]) -> Report:
    data: dict[str, Any] = {
        "model": runtime.tracker.snapshot().model,
        "session_id": session_id,
        "cli_version": run.cli_version,
        "compactions": len(run.api.of_kind("compaction")),
        "requests": [asdict(each) for each in run.requests],
        "restored": [
            {"transcript": state, **{name: getattr(result, name) for name in _RESTORED}}
            for state, result in run.restored
        ],
        "archive": asdict(archived),
    }
    rows = [
        [
            each.when,
            each.received_tokens,
            *(f"{n} of {each.of}" for n in (each.prompts, each.answers, each.tool_results)),
        ]
        for each in run.requests
    ]
    heading = "What the request held of the old conversation, by the server's log"
    table = Table(heading, ("<request", "tokens", "prompts", "answers", "tool results"), rows)
    hint = Lines("Your own sessions", ["mala-context archives list", "mala-context archives restore SESSION --at 1"])
    return Report(data, [table, hint], checks)


# -- checks ----------------------------------------------------------------------------------------------------------


def _checks(run: _Play, archived: ArchiveFindings, compactions: int, *, untouched: bool) -> list[Check]:
    before, after, *restored = run.requests
    checks = [
        ended_well(run.errors),
        dropped_check(before, after, compactions),
        Check("archive_holds_all_rows", archived.whole_transcript and archived.complete, archived.words),
    ]
    for (state, result), answered, each in zip(run.restored, run.answered_by, restored, strict=True):
        checks.append(back_check(state, before, each))
        checks.append(way_check(state, result, answered))
    checks.append(gauge_check(run.requests))
    words = "the old transcript is byte for byte as it was" if untouched else "the old transcript was CHANGED"
    checks.append(Check("transcript_untouched", untouched, words))
    return checks


def dropped_check(before: HeldConversation, after: HeldConversation, compactions: int) -> Check:
    """Check that there is something to undo: all was there, one compaction came, and no prompt was left."""
    there = before.prompts == before.tool_results == before.of and compactions == 1
    ok = (
        there
        and after.prompts == 0
        and after.tool_results < before.tool_results
        and after.received_tokens < before.received_tokens
    )
    words = (
        f"the compaction dropped {before.prompts} of {before.prompts} prompts and "
        f"{before.tool_results - after.tool_results} of {before.tool_results} tool results: "
        f"{before.received_tokens:,} tokens before, {after.received_tokens:,} after"
        if ok
        else f"the compaction did NOT drop the old conversation ({compactions} compactions)"
    )
    return Check("compaction_dropped_it", ok, words)


def back_check(state: str, before: HeldConversation, restored: HeldConversation) -> Check:
    """Check that the first request of a restored session held the whole old conversation, and nothing later."""
    ok = restored.all and not restored.from_after_the_compaction and restored.received_tokens > before.received_tokens
    words = (
        f"transcript {state}: the next request held all of it again, {restored.received_tokens:,} tokens"
        if ok
        else f"transcript {state}: the next request did NOT hold the old conversation as it was"
    )
    return Check(f"back_with_transcript_{state}", ok, words)


def way_check(state: str, result: RestoreResult, answered: str | None) -> Check:
    """Check that the session was made the way that is right for it, under an id of its own, with nothing missing."""
    ok = result.through == _WAYS[state] and answered == result.session_id != result.source and not result.missing
    words = f"transcript {state}: restored through {result.through}, resumed as {answered}"
    return Check(f"way_with_transcript_{state}", ok, words)


def gauge_check(requests: Sequence[HeldConversation]) -> Check:
    """Check that the gauge equals the server's count of each request."""
    exact = sum(each.tracked_tokens == each.received_tokens for each in requests)
    words = f"{exact} of {len(requests)} requests: tracked tokens equal what the server received"
    return Check("gauge_exact", exact == len(requests) > 0, words)
