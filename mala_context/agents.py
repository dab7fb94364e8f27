"""The state behind each agent's snapshot.

A `Context` is what an agent's conversation is known to hold: the counts of one response, its base, and the
`Interval` of what came after. Base and interval move together or not at all: a response without counts (zero usage,
an interrupted stream) stays in the interval, as text, until its counts come by another way; then the interval is
cut where that response began. Going back to an earlier point of the conversation means taking an earlier context,
cut where that point was.
"""

from __future__ import annotations

from collections import deque

from mala_context.estimators import ESTIMATORS, Estimator
from mala_context.measure import REANNOUNCED, Names, field
from mala_context.projection import Interval, Ratios
from mala_context.snapshot import ContextSnapshot
from mala_context.usage import Usage

_KEEP_NAMES = 1_024
_BACKLOG = 64
_UNTOLD = 256
_NO_ROWS: frozenset[str] = frozenset()
_COUNTERS = ("cumulative", "max_cache_read", "total_tokens")


class Context:
    """A base, which one response's counts made, and what came after it."""

    __slots__ = ("accuracy", "cut", "interval", "message_id", "model", "output", "root", "source", "tokens", "usage")

    def __init__(
        self,
        interval: Interval,
        message_id: object = None,
        model: str | None = None,
        source: str | None = None,
        usage: Usage | None = None,
        tokens: int | None = None,
    ) -> None:
        self.interval = interval
        self.message_id = message_id
        self.model = model
        self.source = source
        self.usage = usage
        self.tokens = tokens
        self.output = None if usage is None else usage.output_tokens
        self.accuracy = "unknown" if usage is None else "exact"
        self.cut = False
        """Whether the answer was cut by max_tokens, and so never entered the context."""
        self.root = False
        """Whether a new conversation would begin here."""

    def prefix(self, parts: int) -> Context:
        """Return this context as it was when its interval had so many parts."""
        new = Context(self.interval.prefix(parts))
        for name in self.__slots__:
            if name != "interval":
                setattr(new, name, getattr(self, name))
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
        self.backlog: deque[tuple[Context, int | None, int]] = deque()
        self.ratios = Ratios()
        self._estimators: dict[str, Estimator] = {name: make() for name, make in ESTIMATORS.items()}
        self._untold: list[tuple[Usage | None, Usage]] = []
        self.counts_text = False
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
        return Context(Interval(self.names, self.ratios, self.model, self.settle))

    def forget(self) -> None:
        """Know nothing of the context until the next response; counts of the session stay."""
        self._leave(self.context, None, len(self.context.interval))
        self.context = self.fresh()
        self.current, self.begun = None, 0

    def begin_again(self) -> None:
        """Begin a new conversation: nothing is known, not even what a fresh one holds."""
        self.forget()
        self.resets += 1
        self.first_input, self.pre, self.rooted = None, None, True
        self.opening = Opening()

    def _leave(self, context: Context, growth: int | None, parts: int) -> None:
        """Note that an interval's first parts are over, and how much the request grew where that is known."""
        interval, backlog = context.interval, self.backlog
        if interval.left:
            return
        interval.left = True
        backlog.append((context, growth, parts))
        if len(backlog) > _BACKLOG:
            self._drop_oldest()

    def settle(self) -> None:
        """Close what is over, in order, so that its text is learned from and let go."""
        while self.backlog:
            self._close_oldest()

    def _close_oldest(self) -> None:
        context, growth, parts = self.backlog.popleft()
        chars = context.interval.close(growth, context.output or 0, cut=context.cut, parts=parts)
        self._estimators["characters"].text(chars)

    def _drop_oldest(self) -> None:
        """Let the oldest interval go: what nobody asked for in all this time is not worth counting by kind."""
        context, _, parts = self.backlog[0]
        if context.interval.pinned:
            self._close_oldest()
        else:
            self.backlog.popleft()
            self._estimators["characters"].text(context.interval.length(parts) if self.counts_text else None)

    def go_to(self, context: Context, parts: int) -> None:
        """Go back to an earlier context, as it was when it had so many parts."""
        self._leave(self.context, None, len(self.context.interval))
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
        self.current, self.begun = identity, len(self.context.interval.parts)
        self.responses += 1

    def add(self, kind: str, content: object) -> None:
        """Hold a part; a part of the base's own response counts as its answer, of a later one as text."""
        context = self.context
        if kind == "response" and context.message_id != self.current:
            kind = "answer"
        context.interval.parts.append((kind, content))

    def count(self, usage: Usage, source: str) -> bool:
        """Take the current response's counts; return whether they changed anything."""
        context = self.context
        if context.message_id is None or context.message_id != self.current:
            self._rebase(usage, source)
            return True
        known = context.usage
        if usage == known or (known is not None and usage[:3] == known[:3] and usage[3] <= known[3]):
            return False
        output = max(context.output or 0, usage.output_tokens)
        now = Usage(usage.input_tokens, usage.cache_creation_tokens, usage.cache_read_tokens, output)
        self._counted(known, now)
        context.tokens, context.output, context.usage = usage.context_tokens, output, now
        context.accuracy, context.source = "exact", source
        return True

    def output(self, tokens: int) -> bool:
        """Take the current response's real output; return whether it changed anything."""
        context = self.context
        known = context.usage
        if known is None or context.message_id != self.current or tokens <= known.output_tokens:
            return False
        now = Usage(known.input_tokens, known.cache_creation_tokens, known.cache_read_tokens, tokens)
        self._counted(known, now)
        context.output, context.usage = tokens, now
        return True

    def _rebase(self, usage: Usage, source: str) -> None:
        """Go on from the current response's counts: a new base, and an interval of what came with it or after."""
        old, begun, model = self.context, self.begun, self.model
        if len(self.names) > _KEEP_NAMES:
            for key in list(self.names)[: _KEEP_NAMES // 2]:
                del self.names[key]
        tokens = usage.context_tokens
        self.context = Context(old.interval.split(begun, model), self.current, model, source, usage, tokens)
        same = old.accuracy == "exact" and old.tokens is not None and old.model == model
        self._leave(old, tokens - old.tokens if same and old.tokens is not None else None, begun)
        self.left = (old, begun)
        self._counted(None, usage)
        if self.first_input is None and self.responses == 1 and self.rooted is not False:
            self.first_input = tokens
        if self.pre is not None:
            self.helped, self.pre = tokens < 0.9 * self.pre, None
        self.preserved, self.before = _NO_ROWS, None

    def _counted(self, before: Usage | None, now: Usage) -> None:
        """Keep counts for the formulas, most of which nobody asks for: they are told when somebody does."""
        self._untold.append((before, now))
        if len(self._untold) >= _UNTOLD:
            self._tell()

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for name in _COUNTERS:
            counted = self._estimators[name].counted
            for before, now in untold:
                counted(before, now)

    def after_compaction(self, post_tokens: int | None) -> tuple[int | None, str]:
        """Estimate the next request right after a compaction, in tokens, and say how well it is known.

        `post_tokens` is the CLI's chars/4 of the messages that remain. What else a request holds is what the session's
        first one held besides its prompt; the attachments that the CLI announces again are in both.
        """
        first, opening = self.first_input, self.opening
        if first is None or post_tokens is None:
            return None, "unknown"
        if not opening.known or opening.attachment_chars is None:
            return first + post_tokens, "rough"
        per_token = self.ratios.chars_per_token(self.model)
        remaining = 4 * post_tokens - opening.attachment_chars
        return max(1, round(first - opening.prompt_chars / per_token + remaining / per_token)), "estimate"
