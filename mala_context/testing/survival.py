"""What survives compactions: canaries are planted in prompts, the real CLI compacts repeatedly, each is looked for.

`play_survival` plays it against the scripted Messages API and looks at the first request after each compaction.
`survives` is the assertion for your own rules, configuration and options:

    await survives(["Never touch vendor.lock."], config="context: {compaction: reference}")

The check looks at what the agent is given, not at what a model makes of it. If the CLI asks for a summary, it gets the
one that you script; no model writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from mala_context.testing.api import ScriptedMessagesAPI
from mala_context.testing.replies import summary, text, tool
from mala_context.transcripts.loss.mentions import SummaryText

if TYPE_CHECKING:
    from mala_context.agent.runtime import AgentRuntime
    from mala_context.config import ContextConfig
    from mala_context.testing.replies import Reply
    from mala_context.testing.requests import Request

Fate = Literal["verbatim", "mentioned", "reachable", "gone"]
FATES: Final[tuple[Fate, ...]] = ("verbatim", "mentioned", "reachable", "gone")
"""From best to worst: word for word in the request; by half of its words; by a file or a search; not at all."""

_REMINDER: Final = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


class Canary(NamedTuple):
    """One thing that must not get lost."""

    kind: str
    """What sort of thing it is, for the table."""
    text: str
    """The sentence, as it is planted."""


CANARIES: Final = (
    Canary("rule", "Never change vendor.lock, whatever the tests say."),
    Canary("constraint", "The importer must run on Python 3.11 without any new dependency."),
    Canary("number", "A batch has at most 4,711 rows; the server drops the rest in silence."),
    Canary("path", "The only valid schema is in services/ledger/schema_v7.sql."),
    Canary("decision", "We decided against retries, since a payment must never be sent twice."),
    Canary("goal", "When all is done, the nightly import takes less than nine minutes."),
)
"""One of each kind."""
SCRIPTED_SUMMARY: Final = (
    "The goal: the nightly import takes less than nine minutes. Outputs were read, a schema too. The work goes on."
)
"""What the CLI is answered when it asks for a summary, unless another is given; written by hand, and no model's."""


class Survival(NamedTuple):
    """What became of each canary."""

    canaries: tuple[Canary, ...]
    """What was planted."""
    rounds: tuple[Mapping[str, Fate], ...]
    """After each compaction, by the canary's text."""
    model_requests: int
    """Requests for a summary."""
    tokens: tuple[int, ...]
    """What the first request after each compaction held."""

    def fate(self, canary: Canary, number: int = 0) -> Fate:
        """Return what became of a canary after the compaction of this number, from 1; by default the worst of all."""
        chosen = self.rounds[number - 1 : number] if number else self.rounds
        return max((each[canary.text] for each in chosen), key=FATES.index)

    def table(self) -> str:
        """Return a line for each canary, with its fate after each compaction."""
        return "\n".join(
            f"{canary.kind}: {', '.join(each[canary.text] for each in self.rounds)}: {canary.text}"
            for canary in self.canaries
        )


async def survives(
    rules: Sequence[str],
    *,
    rounds: int = 5,
    at_least: Fate = "verbatim",
    config: str | ContextConfig = "context: {compaction: reference}",
    options: Mapping[str, Any] | None = None,
    summaries: str = SCRIPTED_SUMMARY,
) -> Survival:
    """Assert that every sentence survives `rounds` compactions; return what became of each.

    Args:
        rules: the sentences, each sent in a prompt of its own.
        rounds: compactions, one after the other.
        at_least: the worst fate that is good enough: `verbatim`, `mentioned` or `reachable`.
        config: what would stand in `mala.yaml`.
        options: fields of `ClaudeAgentOptions`, for an agent of your own.
        summaries: what the CLI is answered when it asks for a summary.

    Raises `AssertionError` with a line for each rule, `ValueError` for no rounds or an unknown fate, and what the SDK
    raises.
    """
    if at_least not in FATES:
        raise ValueError(f"at_least is {at_least!r}, wanted one of {', '.join(FATES)}")
    canaries = [Canary("rule", rule) for rule in rules]
    found = await play_survival(canaries, rounds=rounds, config=config, options=options, summaries=summaries)
    worst = max((FATES.index(found.fate(canary)) for canary in canaries), default=0)
    if worst > FATES.index(at_least):
        raise AssertionError(f"not all is {at_least} after {rounds} compactions:\n{found.table()}")
    return found


async def play_survival(
    canaries: Sequence[Canary] = CANARIES,
    *,
    rounds: int = 5,
    config: str | ContextConfig = "",
    options: Mapping[str, Any] | None = None,
    summaries: str = SCRIPTED_SUMMARY,
    on_turn: Callable[[int], object] = lambda _: None,
) -> Survival:
    """Plant canaries, compact `rounds` times, and look for each of them after each compaction.

    `config`, `options` and `summaries` are as in `survives`; `on_turn` is called with each prompt's number. Raises what
    the SDK raises where the CLI cannot be run, `RuntimeError` where the CLI did not compact, and `ValueError` for no
    rounds.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}, wanted 1 or more")
    from mala_context.agent.builder import instrument
    from mala_context.config import parse

    given = parse(config) if isinstance(config, str) else config
    prompts = [canary.text for canary in canaries]
    seen: list[tuple[int, Request]] = []
    with ScriptedMessagesAPI(
        _work(len(prompts), rounds), compactions=lambda _request: summary(summaries), strict=False
    ) as api:
        runtime = instrument(api.options(**(options or {})), config=given)
        async with runtime.session() as session:
            for number, prompt in enumerate(_prompts(prompts, rounds), 1):
                on_turn(number)
                before = len(api.main_requests)
                async for _ in session.send(prompt):
                    pass
                if prompt == _AFTER:
                    seen.append((session.context.compactions, api.main_requests[before]))
            session_id = session.context.session_id
        if [count for count, _ in seen] != list(range(1, rounds + 1)):
            raise RuntimeError("the CLI did not compact in each round")
        asked = len(api.of_kind("compaction"))
        fates = tuple({c.text: fate_of(c, request, runtime, session_id) for c in canaries} for _, request in seen)
    return Survival(tuple(canaries), fates, asked, tuple(request.tokens for _, request in seen))


_WORK, _AFTER = "Look at the outputs.", "Go on."
_OUTPUT = "the parser was built, and all of its modules were linked without a complaint"
"""A line of a tool's output; it has no digits, which a scripted API counts differently from a model."""


def _prompts(planted: Sequence[str], rounds: int) -> Iterator[str]:
    yield from planted
    for _ in range(rounds):
        yield from (_WORK, "/compact", _AFTER)


def _work(planted: int, rounds: int) -> Iterator[Reply]:
    for _ in range(planted):
        yield text("Noted.")
    for number in range(rounds):
        yield tool("Bash", command=f"yes '{number + 1}: {_OUTPUT}' | head -n 200", description="Look")
        yield text(f"The output of round {number + 1} was read.")
        yield text("Going on.")


def fate_of(canary: Canary, request: Request, runtime: AgentRuntime, session_id: str | None) -> Fate:
    """Return what a request has of a canary: the words, or a way to them that its agent could go.

    The way is the full text that a part of the conversation names, or, where the agent has `search_history`, what a
    search for the canary's words finds. `runtime` is the agent's, `session_id` its session.
    """
    said = said_in(request)
    if canary.text in said:
        return "verbatim"
    if SummaryText(_REMINDER.sub("", said)).names_sentence(canary.text):
        return "mentioned"
    if any(canary.text in _content(path) for path in re.findall(r'<kept-conversation [^>]*file="([^"\n]+)"', said)):
        return "reachable"
    return "reachable" if _found(canary, request, runtime, session_id) else "gone"


def said_in(request: Request) -> str:
    """Return the text of a request's messages, those of tools' results too."""
    texts: list[str] = []
    pending = [message.get("content") for message in request.body.get("messages", ())]
    for content in pending:
        if isinstance(content, str):
            texts.append(content)
        for block in content if isinstance(content, list) else ():
            texts.append(str(block.get("text", "")))
            if "content" in block:
                pending.append(block["content"])
    return "\n".join(texts)


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogatepass") as file:
            return file.read()
    except OSError:
        return ""


def _found(canary: Canary, request: Request, runtime: AgentRuntime, session_id: str | None) -> bool:
    from mala_context.agent.search_tool import FULL_NAME
    from mala_context.archive.search import search_session

    offered = any(each.get("name") == FULL_NAME for each in request.body.get("tools", ()))
    if runtime.archive is None or session_id is None or not offered:
        return False
    return bool(search_session(runtime.archive, session_id, canary.text))
