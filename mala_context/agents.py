"""The state behind each agent's snapshot.

A `Context` is what an agent's conversation is known to hold: the counts of one response, its base, and the
`Interval` of what came after. Base and interval move together or not at all: a response without counts (zero usage,
an interrupted stream) stays in the interval, as text, until its counts come by another way; then the interval is
cut where that response began. Going back to an earlier point of the conversation means taking an earlier context,
cut where that point was.
"""

from __future__ import annotations

from typing import Any

from mala_context.estimators import ESTIMATORS, Estimator
from mala_context.measure import REANNOUNCED, Names, field
from mala_context.projection import Interval, Ratios, after_compaction
from mala_context.snapshot import ContextSnapshot
from mala_context.usage import Usage

_KEEP_NAMES = 1_024
_BACKLOG = 64
_UNTOLD = 31
_NO_ROWS: frozenset[str] = frozenset()
_COUNTERS = ("cumulative", "max_cache_read", "total_tokens")


class Context:
    """A base, which one response's counts made, and what came after it.

    One is made for every response of a running agent, so what most of them have in common stands in the class: an
    instance holds only what differs. The values are those of a counted response; `AgentState.fresh` says what is
    unknown.
    """

    owner: AgentState
    parts: list[tuple[str, Any]]
    """What came after the request, in order, each with its kind (see `projection.Interval`)."""
    message_id: object = None
    model: str | None = None
    source: str | None = None
    usage: Usage | None = None
    tokens: int | None = None
    accuracy: str = "exact"
    cut: bool = False
    """Whether the answer was cut by max_tokens, and so never entered the context."""
    root: bool = False
    """Whether a new conversation would begin here."""
    pinned: bool = False
    """Whether a later row may go back to here."""
    _interval: Interval | None = None

    @property
    def output(self) -> int | None:
        """Tokens of the answer, as far as they were counted."""
        return None if self.usage is None else self.usage.output_tokens

    @property
    def interval(self) -> Interval:
        """What the parts cost; made when somebody asks."""
        if self._interval is None:
            owner = self.owner
            model = self.model or owner.model
            self._interval = Interval(owner.names, owner.ratios, model, owner.settle, self.parts)
        return self._interval

    def prefix(self, parts: int) -> Context:
        """Return this context as it was when it had so many parts."""
        new = Context()
        vars(new).update(vars(self))
        new.pinned, new._interval = False, self.interval.prefix(parts)
        new.parts = new._interval.parts
        return new


class Opening:
    """The messages of a session's first request: what a compaction's estimate has to take out of it."""

    __slots__ = ("attachment_chars", "known", "prompt_chars")

    def __init__(self) -> None:
        self.prompt_chars = 0
        self.attachment_chars: int | None = None
        self.known = False

    def prompt(self, chars: int) -> None:
        """Add a prompt before the first response."""
        self.prompt_chars += chars
        self.known = True

    def attachment(self, attachment: object) -> None:
        """Add an attachment before the first response; only its `rendered` form can be counted."""
        if field(attachment, "type") in REANNOUNCED:
            rendered = field(attachment, "rendered")
            if isinstance(rendered, str):
                self.attachment_chars = (self.attachment_chars or 0) + len(rendered)


class AgentState:
    """All that is known of one agent."""

    __slots__ = (
        "_estimators",
        "_untold",
        "aftermath",
        "agent_id",
        "backlog",
        "before",
        "begun",
        "compactions",
        "context",
        "counts_text",
        "current",
        "first_input",
        "helped",
        "left",
        "model",
        "names",
        "opening",
        "overflows",
        "pre",
        "preserved",
        "ratios",
        "resets",
        "responses",
        "rooted",
        "tool_use_id",
        "wait_summary",
    )

    def __init__(self, agent_id: str | None = None, tool_use_id: str | None = None, model: str | None = None) -> None:
        self.agent_id = agent_id
        self.tool_use_id = tool_use_id
        self.model = model
        self.responses = self.compactions = self.overflows = self.resets = 0
        self.first_input: int | None = None
        self.opening = Opening()
        self.rooted: bool | None = None
        self.names: Names = {}
        self.backlog: list[tuple[Context, int, Context | None]] = []
        """Contexts that are over: how many of their parts the next request held, and that one's context if known."""
        self.ratios = Ratios()
        self._estimators: dict[str, Estimator] = {name: make() for name, make in ESTIMATORS.items()}
        self._untold: list[Usage | tuple[Usage | None, Usage]] = []
        self.counts_text = False
        self.aftermath = False
        """Whether the next response is the first one after a compaction."""
        self.helped: bool | None = None
        self.before: ContextSnapshot | None = None
        self.pre: int | None = None
        self.preserved: frozenset[str] = frozenset()
        self.wait_summary = False
        self.current: object = None
        self.begun = 0
        self.left: tuple[Context, int] | None = None
        """The context that the last response was a request of, and how many of its parts were in the request."""
        self.context = self.fresh()

    @property
    def estimators(self) -> dict[str, Estimator]:
        """The formulas, by name; all of them know of every response so far."""
        if self._untold:
            self._tell()
        return self._estimators

    def fresh(self) -> Context:
        """Return a context of which nothing is known."""
        context = Context()
        context.owner, context.parts, context.accuracy = self, [], "unknown"
        return context

    def forget(self) -> None:
        """Know nothing of the context until the next response; counts of the session stay."""
        self._leave()
        self.context = self.fresh()
        self.current, self.begun = None, 0

    def begin_again(self) -> None:
        """Begin a new conversation: nothing is known, not even what a fresh one holds."""
        self.forget()
        self.resets += 1
        self.first_input, self.pre, self.rooted = None, None, True
        self.opening = Opening()

    def _leave(self) -> None:
        """Note that the present context is over, and that no request shows what its parts cost."""
        self.backlog.append((self.context, len(self.context.parts), None))
        if len(self.backlog) > _BACKLOG:
            self._thin()

    def settle(self) -> None:
        """Close what is over, in order, so that its text is learned from and let go."""
        if self.backlog:
            backlog, self.backlog = self.backlog, []
            for entry in backlog:
                self._close(*entry)

    def _close(self, context: Context, parts: int, following: Context | None) -> None:
        growth = None
        if (
            following is not None
            and following.tokens
            and context.usage is not None
            and context.model == following.model
        ):
            growth = following.tokens - context.usage.context_tokens
        chars = context.interval.close(growth, context.output or 0, cut=context.cut, parts=parts)
        self._estimators["characters"].text(chars)

    def _thin(self) -> None:
        """Let the oldest go: what nobody asked for in all this time is not worth counting by kind."""
        over = len(self.backlog) - _BACKLOG // 2
        oldest, self.backlog = self.backlog[:over], self.backlog[over:]
        for entry in oldest:
            context, parts, _ = entry
            if context.pinned:
                self._close(*entry)
            else:
                self._estimators["characters"].text(context.interval.length(parts) if self.counts_text else None)
        if len(self.names) > _KEEP_NAMES:
            for key in list(self.names)[: _KEEP_NAMES // 2]:
                del self.names[key]

    def go_to(self, context: Context, parts: int) -> None:
        """Go back to an earlier context, as it was when it had so many parts."""
        self._leave()
        self.context = context.prefix(parts)
        self.current, self.begun = context.message_id, parts

    def kept(self, uuid: str | None) -> bool:
        """Tell whether a response without counts is one that a compaction kept and wrote again after its boundary."""
        return self.context.source == "boundary" or (uuid is not None and uuid in self.preserved)

    def stop(self, reason: str) -> None:
        """Take the current response's reason to stop: an answer cut by max_tokens does not enter the context."""
        if self.context.message_id is not None and self.context.message_id == self.current:
            self.context.cut = reason == "max_tokens"

    def begin(self, identity: object) -> None:
        """Start a response; its parts follow."""
        self.current, self.begun = identity, len(self.context.parts)
        self.responses += 1

    def add(self, kind: str, content: object) -> None:
        """Hold a part; a part of the base's own response counts as its answer, of a later one as text."""
        context = self.context
        if kind == "response" and context.message_id != self.current:
            kind = "answer"
        context.parts.append((kind, content))

    def count(self, usage: Usage, source: str) -> bool:
        """Take the current response's counts; return whether they changed anything."""
        context = self.context
        if context.message_id != self.current or context.usage is None:
            self._rebase(usage, source)
            return True
        known = context.usage
        if usage == known or (usage[:3] == known[:3] and usage[3] <= known[3]):
            return False
        self._correct(usage._replace(output_tokens=max(known.output_tokens, usage.output_tokens)))
        context.source = source
        return True

    def output(self, tokens: int) -> bool:
        """Take the current response's real output; return whether it changed anything."""
        known = self.context.usage
        if known is None or self.context.message_id != self.current or tokens <= known.output_tokens:
            return False
        self._correct(known._replace(output_tokens=tokens))
        return True

    def _correct(self, now: Usage) -> None:
        """Put other counts in the place of those that the base has."""
        context = self.context
        self._untold.append((context.usage, now))
        context.usage, context.tokens, context.accuracy = now, now.context_tokens, "exact"

    def _rebase(self, usage: Usage, source: str) -> None:
        """Go on from the current response's counts: a new base, and what came with it or after."""
        old, begun, model = self.context, self.begun, self.model
        self.context = context = Context()
        context.owner = self
        context.message_id = self.current
        context.model = model
        context.source = source
        context.usage = usage
        context.tokens = tokens = usage[0] + usage[1] + usage[2]
        if begun < len(old.parts):
            context._interval = old.interval.split(begun, model)
            context.parts = context._interval.parts
        else:
            context.parts = []
        self.left = (old, begun)
        self.backlog.append((old, begun, context))
        untold = self._untold
        untold.append(usage)
        if len(untold) > _UNTOLD:
            self._tell()
        if self.first_input is None and self.responses == 1 and self.rooted is not False:
            self.first_input = tokens
        if self.aftermath:
            self.aftermath, self.preserved, self.before = False, _NO_ROWS, None
            if self.pre is not None:
                self.helped, self.pre = tokens < 0.9 * self.pre, None

    def _tell(self) -> None:
        """Tell the formulas of the responses since, most of which nobody asks for: so not one by one."""
        untold, self._untold = self._untold, []
        for name in _COUNTERS:
            counted = self._estimators[name].counted
            for entry in untold:
                if entry.__class__ is Usage:
                    counted(None, entry)
                else:
                    counted(*entry)
        if len(self.backlog) > _BACKLOG // 2:
            self._thin()

    def after_compaction(self, post_tokens: int | None) -> tuple[int | None, str]:
        """Estimate the next request right after a compaction, in tokens, and say how well it is known.

        `post_tokens` is the CLI's chars/4 of the messages that remain. What else a request holds is what the session's
        first one held besides its prompt; the attachments that the CLI announces again are in both.
        """
        opening = self.opening
        attachment_chars = opening.attachment_chars if opening.known else None
        per_token = self.ratios.chars_per_token(self.model)
        return after_compaction(self.first_input, post_tokens, opening.prompt_chars, attachment_chars, per_token)
