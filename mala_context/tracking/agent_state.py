"""The state of each agent: its present context, the previous context, and what was learned from their text.

A context has a base and an interval (see `ContextState`), and the two move together. A response without counts (zero
usage, an interrupted stream) stays in the interval, as text. When its counts come in another way, the interval is cut
where that response began. To go back to an earlier point of the conversation means to take an earlier context and to
cut it at that point.

Text is measured when somebody asks for a projection. The measuring changes no other answer. With a model whose prices
were not measured or are in doubt, the state learns what text costs from the intervals before some responses, whether
somebody asks or not: the next 16 responses, and every 128th from there. To learn from each response would cost a live
message more than all the rest.
"""

from __future__ import annotations

from typing import Any

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.cache import CacheLedger
from mala_context.tracking.context_map import ContextMap
from mala_context.tracking.context_state import ContextState, FirstRequest
from mala_context.tracking.estimators import ESTIMATORS, Estimate, Estimator, counted
from mala_context.tracking.projection import Ratios, after_compaction, after_keeping
from mala_context.tracking.snapshot import ContextSnapshot
from mala_context.tracking.text_counts import text_length
from mala_context.tracking.token_costs import (
    is_measured,
)
from mala_context.tracking.truth_alarm import Lookout, look_back
from mala_context.tracking.usage import Usage
from mala_context.tracking.windows import plain_name

_UNTOLD = 128
"""Most counts that are held back from the formulas: nearly all are never asked for, and together they cost less."""
_AGREED = 3
"""Responses that count the cache twice before that is sure; until then their size is an estimate."""
_ALL_OF = 16
_LEARN_EVERY = 128
"""With unmeasured prices, learn from the intervals before all of the first responses, then before every 128th."""
_NEVER = 1 << 62
_NO_ROWS: frozenset[str] = frozenset()
_COUNTERS = ("cumulative", "max_cache_read", "total_tokens")


class _Turn(NamedTuple):
    """A turn's end among the counts that the formulas were not told of yet."""

    usage: Usage | None


class AgentState:
    """All that is known of one agent."""

    __slots__ = (
        "_estimators",
        "_uncounted",
        "_untold",
        "agent_id",
        "asked",
        "before",
        "begun",
        "cache",
        "compactions",
        "context",
        "counts_text",
        "current",
        "doubts",
        "due",
        "first_input",
        "forgets",
        "helped",
        "keeping",
        "kept_chars",
        "left",
        "lookout",
        "map",
        "model",
        "noted",
        "off",
        "opening",
        "overflows",
        "pre",
        "preserved",
        "ratios",
        "resets",
        "responses",
        "rooted",
        "since",
        "thought",
        "tool_use_id",
        "twice",
        "wait_summary",
    )

    def __init__(self, agent_id: str | None = None, tool_use_id: str | None = None, model: str | None = None) -> None:
        self.agent_id = agent_id
        self.tool_use_id = tool_use_id
        self.model = model
        self.asked: str | None = None
        """Plain name of the model that requests are for, where somebody said it."""
        self.responses = self.compactions = self.overflows = self.resets = 0
        self.first_input: int | None = None
        self.opening = FirstRequest()
        self.rooted: bool | None = None
        self.ratios = Ratios()
        self.cache = CacheLedger()
        self._estimators: dict[str, Estimator] = {name: make() for name, make in ESTIMATORS.items()}
        self._untold: list[Any] = []
        """Counts of responses, and `_Turn`s, that the formulas were not told of yet."""
        self.counts_text = False
        self.due = 1
        """Number of the next response that is looked at; the text before it may be learned from."""
        self.doubts: int | None = None
        """Number of the response from which on measured prices are in doubt; `None` for not at all."""
        self.off: float | None = None
        """Growth by projected growth of the last request that gained much, if it was an unexplained alarm."""
        self.helped: bool | None = None
        self.before: ContextSnapshot | None = None
        self.pre: int | None = None
        self.kept_chars: int | None = None
        """Characters that the compaction to come keeps, where that is known."""
        self.keeping: tuple[int, bool] | None = None
        """Characters that the last compaction kept, as far as rows have shown, and whether a turn is under way; `None`
        where that was known before the rows came."""
        self.preserved: frozenset[str] = frozenset()
        self.wait_summary = False
        self.twice = 0
        """Responses whose counts have the cache in them twice."""
        self.current: object = None
        self.since: str | None = None
        """When the current response began, as its row says."""
        self.begun = 0
        self.left: tuple[ContextState, int, ContextState | None] | None = None
        """The previous context, how many of its parts the next request held, and that request's context where known."""
        self.lookout: Lookout | None = None
        """Where each request is compared with its projection and divided into parts; `None` for not at all."""
        self.map = ContextMap()
        self.noted: set[str] = set()
        """Causes of an alarm that the stream named since the last response."""
        self.thought = 0.0
        """Tokens that the model thought in this turn, up to the last request; 0 for one that keeps all of it."""
        self.forgets = False
        """Whether thinking was left out when the last turn began."""
        self._uncounted = False
        """Whether text went by uncounted, since the conversation began or was compacted."""
        self.context = self.fresh()

    @property
    def estimators(self) -> dict[str, Estimator]:
        """The formulas, by name; all of them know of every response so far."""
        if self._untold:
            self._tell()
        return self._estimators

    def turn(self, usage: Usage | None) -> None:
        """Take a turn's sums; `None` where its result has no usage. The formulas are told when somebody asks."""
        self._untold.append(_Turn(usage))
        if len(self._untold) > _UNTOLD:
            self._tell()

    def estimate(self, name: str) -> Estimate:
        """Return what a formula says, by its name."""
        return self.estimators[name].estimate(self.context.tokens, self._pending_chars)

    def _pending_chars(self) -> int | None:
        """Count the characters that no estimator was told of; `None` where text went by uncounted."""
        # The previous context's text counts too: `_drop_left` tells of it only when the next context takes its place.
        if self._uncounted:
            return None
        left, interval = self.left, self.context.interval
        before = 0 if left is None else left[0].interval.chars(left[1])
        return before + interval.chars(len(interval))

    def fresh(self) -> ContextState:
        """Return a context whose size is not known."""
        context = ContextState()
        context.owner, context.parts, context.accuracy, context.source = self, [], "unknown", None
        return context

    def named(self, model: str) -> None:
        """Take the model's name. A response whose start named no model is this model's."""
        self.model, context = model, self.context
        if not is_measured(model):
            self.due = self.responses + 1
        if context.model is None:
            context.model = model
            if context._interval is not None:
                context._interval.named(model)

    def asks(self, model: str | None, *, switched: bool = False) -> None:
        """Take note of the model that requests are for; `switched` says that it is another. An alias says nothing."""
        # Compare it with earlier requests, not with answers: a proxy may put another name into each answer.
        name = plain_name(model or "")
        if name.startswith("claude") and (switched or name != self.asked):
            self.asked, self.context.follows = name, model

    def forget(self) -> None:
        """Know nothing of the context until the next response; counts of the session stay."""
        self._go_on(self.fresh(), len(self.context.parts))
        self.current, self.begun, self.thought = None, 0, 0.0
        self.map.forgotten()

    def begin_again(self) -> None:
        """Begin a new conversation: nothing is known, not even what a fresh one holds."""
        self.forget()
        self.resets += 1
        self.map.whole = True
        self.first_input, self.pre, self.rooted = None, None, True
        self.cache.begin_again()
        self.opening = FirstRequest()

    def go_to(self, context: ContextState, parts: int) -> None:
        """Go back to an earlier context, as it was when it had `parts` parts."""
        prefix = context.prefix(parts)
        self._go_on(prefix, len(self.context.parts))
        self.current, self.begun = prefix.message_id, parts
        self.map.went_back(prefix.tokens)

    def is_late(self, time: str | None) -> bool:
        """Tell whether a row of this time was written after rows that are newer than it.

        The CLI may write a hook's progress or a local command's rows late, and go on from them, without a rewind
        (case core-27). A rewind's rows are newer than all that they leave.
        """
        return time is not None and self.since is not None and time < self.since

    def kept(self, uuid: str | None) -> bool:
        """Tell whether a response without counts is one that a compaction kept and wrote again after its boundary."""
        return self.context.source == "boundary" or (uuid is not None and uuid in self.preserved)

    def stop(self, reason: str) -> None:
        """Take the current response's reason to stop."""
        if self.context.message_id is not None and self.context.message_id == self.current:
            self.context.stopped(reason)

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

    def count(self, usage: Usage, source: str, hour: int = 0, time: object = None) -> bool:
        """Take the current response's counts; return whether they changed anything. See `CacheLedger.take`."""
        context = self.context
        if context.message_id != self.current or context.usage is None:
            self.cache.take(usage, hour, time, self.model)
            self.rebase(usage, source)
            return True
        known = context.usage
        if usage == known or (usage[:3] == known[:3] and usage[3] <= known[3]):
            return False
        self._correct(usage._replace(output_tokens=max(known.output_tokens, usage.output_tokens)))
        context.source = source
        return True

    def replaces(self, usage: Usage, *, last_call: bool) -> bool:
        """Tell whether counts are new for the current response: it had none, or only those of its first call.

        In a loop on the server each call's request holds the one before, so the last one's is the largest (case
        core-29); without a list of calls (`last_call`) larger counts are a sum.
        """
        if not usage.context_tokens or self.current is None:
            return False
        context = self.context
        if context.message_id != self.current or context.usage is None:
            return True
        return last_call and usage.context_tokens > context.usage.context_tokens

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
        if context.usage is not None:
            self._untold.append((context.usage, now))
            self.cache.correct(context.usage, now)
        self._measured(context, now)

    def _measured(self, context: ContextState, usage: Usage) -> None:
        """Put a response's counts into its context; see `Usage.counts_cache_twice` for those that are doubtful."""
        context.usage, context.tokens, context.accuracy = usage, usage.context_tokens, "exact"
        if usage.counts_cache_twice:
            self.twice += 1
            # One such sum may be chance; a proxy that puts the cache into the input does it each time (codex-proxy#587,
            # case core-23). Added up it would read twice the size and refute a window that is valid.
            if self.twice < _AGREED:
                context.accuracy = "estimate"

    def rebase(self, usage: Usage, source: str) -> None:
        """Go on from the current response's counts: a new base, and the parts that came with it or after it."""
        # Step 1: make the context that these counts are the base of.
        old, begun = self.context, self.begun
        context = ContextState()
        context.owner, context.message_id, context.model, context.source = self, self.current, self.model, source
        self._measured(context, usage)
        if old.thought is not None:
            context.goes_on(old, begun)
        # Step 2: the response's own parts, and all after them, leave the old interval for the new one. Counts that
        # come late (a delta, a result) find such parts; with the first message of a response there are none yet.
        if begun < len(old.parts):
            context._interval = old.interval.split(begun, self.model)
            context.parts = context._interval.parts
        else:
            context.parts = []
        self._go_on(context, begun, usage)

    def start(self, identity: str, usage: Usage, tokens: int, content: object) -> None:
        """Do at once what `begin`, `count` and `add` do for the first message of a response to `tokens` tokens.

        Its counts were given to `cache` before.
        """
        context = ContextState()
        context.owner = self
        context.message_id = self.current = identity
        context.model = self.model
        context.usage = usage
        context.tokens = tokens
        context.parts = [("response", content)]
        before = self.context
        self.begun = begun = len(before.parts)
        if before.thought is not None:
            context.goes_on(before, begun)
        self.responses += 1
        left = self.left
        if left is None or self.counts_text or self.responses >= self.due or len(self._untold) >= _UNTOLD:
            self._go_on(context, begun, usage)
            return
        self._uncounted = True  # from here on, what `_go_on` does where nothing else is to be done
        if left[0].pinned or left[0]._interval is not None:
            left[0].let_go()
        self.left = (before, begun, context)
        self.context = context
        self._untold.append(usage)
        if self.lookout is not None:
            look_back(self, self.lookout, before, begun, context)

    def _go_on(self, context: ContextState, parts: int, usage: Usage | None = None) -> None:
        """Switch to `context`.

        `parts` says how many parts of the previous context its request contained; `usage` has its token counts, if they
        are known. The previous context is kept in `left`; the text of the context before that is freed.
        """
        # Free the old text before anything is learned, so that snapshots of it keep the values of their time.
        self._drop_left()
        self.left = left = (self.context, parts, None if usage is None else context)
        self.context = context
        if usage is None:
            return
        untold = self._untold
        untold.append(usage)
        if len(untold) > _UNTOLD:
            self._tell()
        if self.lookout is not None:  # compare before learning: the alarm must see the projection that was given
            look_back(self, self.lookout, *left[:2], context)
        if self.responses >= self.due:
            if is_measured(self.model) and self.doubts is None:
                self.due = _NEVER
            else:
                left[0].teach(left[1], left[2])
                since = self.responses - (self.doubts or 0)
                self.due = self.responses + (1 if since < _ALL_OF else _LEARN_EVERY)
            self._look_at(usage.context_tokens)

    def _drop_left(self) -> None:
        """Free the previous context's text, and tell the formula `characters` how much it was."""
        if self.left is None:
            return
        context, parts, _ = self.left
        if self.counts_text:
            self._estimators["characters"].text(context.interval.chars(parts))
        else:
            self._uncounted = True
        if context.pinned or context._interval is not None:
            context.let_go()
        self.left = None

    def _look_at(self, tokens: int) -> None:
        """Take note of a request that says more than its size: a session's first, or the first after a compaction."""
        if self.first_input is None and self.responses == 1 and self.rooted is not False:
            self.first_input = tokens
        self.opening.close()
        self.preserved, self.before = _NO_ROWS, None
        if self.pre is not None:
            self.helped, self.pre = tokens < 0.9 * self.pre, None

    def _tell(self) -> None:
        """Tell the formulas of the counts that were held back."""
        untold, self._untold = self._untold, []
        while untold:  # a turn's sums replace the counts of its responses, so the order of the two matters
            end = next((place for place, each in enumerate(untold) if isinstance(each, _Turn)), len(untold))
            if end:
                told = counted(untold[:end])
                for name in _COUNTERS:
                    self._estimators[name].counted(told)
            for turn in untold[end : end + 1]:
                for estimator in self._estimators.values():
                    estimator.turn(turn.usage)
            del untold[: end + 1]

    def compacted(
        self, pre_tokens: int | None, post_tokens: int | None, before: ContextSnapshot | None, *, turn: bool = False
    ) -> None:
        """Go on after a compaction.

        `pre_tokens` is the size that the CLI states. For `post_tokens` and `turn` see `after_compaction`. `before` is
        the snapshot just before the compaction, `None` where nothing was known.
        """
        size, model = pre_tokens if pre_tokens is not None else self.context.tokens, self.context.follows
        self.forget()
        self._drop_left()
        self._uncounted, self.compactions = False, self.compactions + 1
        self.map.compacted()
        self.cache.compacted = True
        self.before, self.pre, self.helped, self.due = before, size, None, self.responses + 1
        context = self.context
        context.model = model
        kept, self.kept_chars = self.kept_chars, None
        self.keeping = (0, turn) if kept is None else None
        context.tokens, context.accuracy = self.after_compaction(post_tokens, kept, turn=turn)
        context.source = "boundary"
        for estimator in self.estimators.values():
            estimator.compacted(post_tokens)

    @property
    def baseline(self) -> int | None:
        """What a fresh session holds before its first prompt, in tokens: the first request less its prompts."""
        if self.first_input is None:
            return None
        return max(0, self.first_input - round(self.opening.prompt_chars / self.ratios.chars_per_token(self.model)))

    def after_compaction(
        self, post_tokens: int | None, kept: int | None = None, *, turn: bool = False
    ) -> tuple[int | None, str]:
        """Estimate the next request right after a compaction, in tokens, and say how well it is known.

        `post_tokens` is the CLI's chars/4 of the messages that remain. The request also holds what the session's
        first one held beside its prompt. The attachments that the CLI announces again are in both figures. After a
        compaction by reference, the characters that are `kept` count instead of `post_tokens`; `turn` tells that a turn
        is under way.
        """
        opening = self.opening
        first = opening.prompt_chars, opening.attachment_chars if opening.known else None
        per_token = self.ratios.chars_per_token(self.model)
        if kept is not None:
            return after_keeping(self.first_input, kept, turn, *first, per_token)
        return after_compaction(self.first_input, post_tokens, *first, per_token)

    @property
    def by_reference(self) -> bool:
        """Whether the last compaction was by reference, as far as somebody or a row has told."""
        return bool(self.compactions) and (self.keeping is None or self.keeping[0] > 0)

    def keep(self, content: object) -> bool:
        """Take a row that a compaction by reference kept; return whether that changed the estimate."""
        if self.keeping is None:
            return False
        kept, turn = self.keeping[0] + text_length(content), self.keeping[1]
        self.keeping = kept, turn
        self.context.tokens, self.context.accuracy = self.after_compaction(None, kept, turn=turn)
        return True
