"""A context of an agent at one moment: what one response's counts say, and the text that came after it.

A `ContextState` has the counts of one response, its base, and the `Interval` of the text after it. A context that is
over is let go, or memory would grow with the session: where a row may still go back to it, the lengths of its parts are
kept.
"""

from __future__ import annotations

from array import array
from typing import Any
from weakref import ref

from mala_context.tracking.projection import Interval
from mala_context.tracking.text_counts import REANNOUNCED, Length, field_of, is_thought, kind_of, pieces, text_length
from mala_context.tracking.usage import Usage


class ContextState:
    """A base, which one response's counts made, and what came after it.

    One is made for every response of a running agent, so what most of them have in common stands in the class: an
    instance holds only what differs. The values are those of a counted response; `AgentState.fresh` says what is
    unknown.
    """

    owner: Any
    """The `AgentState`, whose module imports this one."""
    parts: list[tuple[str, Any]]
    """What came after the request, in order, each with its kind (see `projection.Interval`)."""
    message_id: object = None
    model: str | None = None
    source: str | None = "message"
    usage: Usage | None = None
    tokens: int | None = None
    accuracy: str = "exact"
    cut: bool = False
    """Whether the answer was a thought that max_tokens cut, and so never entered the context."""
    told: bool = False
    """Whether its output is real for sure, however small: the answer came to its end, and that said so."""
    root: bool = False
    """Whether a new conversation would begin here."""
    pinned: bool = False
    """Whether a later row may go back to here."""
    lengths: array[int] | None = None
    """In the place of the parts where they are let go: characters of each, as their complement for the answer."""
    _interval: Interval | None = None

    @property
    def output(self) -> int | None:
        """Tokens of the answer, as far as they were counted."""
        return None if self.usage is None else self.usage.output_tokens

    def stopped(self, reason: str) -> None:
        """Take the answer's reason to stop: the CLI drops a thought that max_tokens cut.

        An answer that has come to words or a call stays, and the CLI asks the model to go on from there.
        """
        said = [content for kind, content in self.parts if kind == "response"]
        self.cut = reason == "max_tokens" and all(map(is_thought, said))

    def projected(self, parts: int) -> int:
        """Return what the next request will hold with the first `parts` parts, in tokens; the base must be known."""
        tokens, output = self.tokens or 0, self.output or 0
        return self.interval.projected(tokens, output, cut=self.cut, told=self.told, parts=parts)

    def teach(self, parts: int, following: ContextState | None) -> None:
        """Measure a context that is over, and learn from the growth of the next request what its text costs."""
        growth = growth_of(self, following)
        if growth is not None:
            if self.pinned or self._interval is not None:  # somebody may ask for it again
                self.interval.measure()
            self.interval.learn(growth, self.output or 0, cut=self.cut, told=self.told, parts=parts)

    @property
    def interval(self) -> Interval:
        """What the parts cost; made when somebody asks."""
        if self._interval is None:
            owner = self.owner
            model = self.model or owner.model
            self._interval = Interval(owner.ratios, model, self.parts)
        return self._interval

    def prefix(self, parts: int) -> ContextState:
        """Return this context as it was when it had `parts` parts."""
        new = ContextState()
        vars(new).update(vars(self))
        new.pinned = False
        if self.lengths is not None:
            new.lengths = None
            new.parts = [("response", Length(~n)) if n < 0 else ("user", Length(n)) for n in self.lengths[:parts]]
        else:
            new._interval = self.interval.prefix(parts)
            new.parts = new._interval.parts
        return new

    def part_lengths(self) -> list[int]:
        """Count the characters of every part, and keep the parts."""
        if self._interval is not None:
            return self._interval.lengths()
        return [text_length(content) for _, content in self.parts]

    def let_go(self) -> None:
        """Keep of the parts what a row needs that goes back to here, if one may; a snapshot keeps its own.

        The response's id goes too: of a response so far back no other message is expected.
        """
        if self.pinned:
            lengths = self.part_lengths()
            for place, (kind, _) in enumerate(self.parts):
                if kind == "response":
                    lengths[place] = ~lengths[place]
            self.lengths = array("q", lengths)
        if self._interval is not None:
            held = ref(self._interval)
            self._interval = None
            if (kept := held()) is not None:
                kept.measure()
        self.parts, self.message_id = [], None


def growth_of(context: ContextState, following: ContextState | None) -> int | None:
    """Return how many tokens the next request held more; `None` where that tells nothing of the text between."""
    if following is None or not following.tokens or context.usage is None or context.model != following.model:
        return None
    return following.tokens - context.usage.context_tokens


class FirstRequest:
    """The messages of a session's first request: what a compaction's estimate has to take out of it."""

    __slots__ = ("_chars", "_prompts", "attachment_chars", "known")

    def __init__(self) -> None:
        self._chars = 0
        self._prompts: list[object] = []
        """Those that were not counted yet."""
        self.attachment_chars: int | None = None
        self.known = False

    def add(self, kind: str, content: object) -> None:
        """Add what came before the first response; of an attachment only its `rendered` form can be counted."""
        if kind != "attachment":
            self._prompts.append(content)
            self.known = True
        elif kind_of(content) in REANNOUNCED:
            rendered = field_of(content, "rendered")
            if isinstance(rendered, str):
                self.attachment_chars = (self.attachment_chars or 0) + len(rendered)

    def close(self) -> None:
        """Count the prompts and let their text go."""
        prompts, self._prompts = self._prompts, []
        self._chars += sum(piece.counts.chars for content in prompts for piece in pieces("user", content, {}))

    @property
    def prompt_chars(self) -> int:
        """Characters of the prompts."""
        self.close()
        return self._chars
