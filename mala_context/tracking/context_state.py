"""A context of an agent at one moment: what one response's counts say, and the text that came after it.

A `ContextState` has the counts of one response, its base, and the `Interval` of the text after it. The text of a
context is freed when a later context has taken its place, or memory would grow with the session. Where a row may still
go back to it, the lengths of its parts stay.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from weakref import ref

from mala_context.tracking.projection import Interval, part_lengths
from mala_context.tracking.text_counts import (
    REANNOUNCED,
    Length,
    field_of,
    is_result,
    is_thought,
    kind_of,
    pieces,
)
from mala_context.tracking.token_costs import thought_in
from mala_context.tracking.usage import Usage
from mala_context.tracking.windows import plain_name

_MOST_MODELS: Final = 16
"""Models whose thinking is told apart in one conversation."""
NO_THOUGHT: Final[Mapping[str, float]] = MappingProxyType({})
"""What `ContextState.thought` is where no model has thought yet."""
SHARED: Final[Mapping[str, float]] = MappingProxyType({"": 0.0})
"""The same with a CLI that sends each model what the others thought: it stays so, and nothing is told apart."""


class ContextState:
    """A base, which one response's counts made, and the parts that came after it.

    Every response of a running agent makes a new `ContextState`. So the values that most of them share stand in the
    class, and an instance holds only those that differ. The class has the values of a counted response;
    `AgentState.fresh` sets those of an unknown context.
    """

    owner: Any
    """The `AgentState`, whose module imports this one."""
    parts: list[tuple[str, Any]]
    """The parts after the request, in order, each with its kind (see `projection.Interval`)."""
    message_id: object = None
    model: str | None = None
    source: str | None = "message"
    usage: Usage | None = None
    tokens: int | None = None
    accuracy: str = "exact"
    cut: bool = False
    """Whether the answer has ended and was nothing but a thought: then it never entered the context."""
    signed: float = 0.0
    """Tokens of signed thinking among the parts."""
    stated: bool = False
    """Whether `signed` is the count that the response states; otherwise it follows from the signatures."""
    thought: Mapping[str, float] | None = None
    """Tokens that each model thought before this answer, by plain name.

    `None` before any thinking, and with an old CLI, which sends all thinking. `SHARED` with a CLI that leaves out only
    an answer that is nothing but a thought. Today's CLI sends a model its own thinking alone, since a signature holds
    for one model. It keeps the other models' thinking, for when such a model is set again."""
    follows: str | None = None
    """Model of the next request, where somebody said that it is another one."""
    alone: bool = False
    """Whether the answer was nothing but a thought, known from what followed it before the parts were freed."""
    told: bool = False
    """Whether its output is surely real, however small: the end of the answer stated it."""
    root: bool = False
    """Whether a new conversation would begin here."""
    pinned: bool = False
    """Whether a later row may go back to here."""
    lengths: array[int] | None = None
    """Set when `parts` is freed: the character count of each part. Counts of the answer's own parts are stored bitwise
    inverted, so they are negative."""
    _interval: Interval | None = None

    @property
    def output(self) -> int | None:
        """Tokens of the answer, as far as they were counted."""
        return None if self.usage is None else self.usage.output_tokens

    def stopped(self, reason: str) -> None:
        """Take the answer's reason to stop: the CLI drops an answer that is nothing but a thought.

        An answer with words or a call stays. Where max_tokens cut a thought, the CLI has the model go on from there.
        """
        said = [content for kind, content in self.parts if kind == "response"]
        over = reason == "max_tokens" or (reason != "tool_use" and bool(said))
        self.cut = over and all(map(is_thought, said))

    def cut_at(self, parts: int) -> bool:
        """Tell whether the next request lacks the answer, as far as the first `parts` parts show.

        A thought has ended, too, when a message of the user follows it.
        """
        if self.cut or not self.signed or self.thought is None:
            return self.cut or self.alone
        held = self.parts if parts == len(self.parts) else self.parts[:parts]
        if not held or held[-1][0] == "response":
            return False
        return all(is_thought(content) for kind, content in reversed(held) if kind == "response")

    def thought_after(self, parts: int) -> Mapping[str, float] | None:
        """Return what each model thought up to the answer that follows the first `parts` parts; see `thought`."""
        held = self.thought
        if held is None or held is SHARED or not self.signed or self.cut_at(parts):
            return held
        return self._thought_with_answer(held)

    def _thought_with_answer(self, held: Mapping[str, float]) -> Mapping[str, float]:
        name = plain_name(self.model or self.owner.model or "")
        if name not in held and len(held) >= _MOST_MODELS:
            return held
        return {**held, name: held.get(name, 0.0) + self.signed}

    def signs(self, tokens: float, first: Mapping[str, float] | None = NO_THOUGHT) -> None:
        """Add `tokens` of thinking to the parts; `first` is the value with which `thought` begins for this CLI."""
        self.signed += tokens
        self.thought = (self.thought or first) if first is NO_THOUGHT else first

    def states(self, tokens: int) -> None:
        """Take the response's own count of all its thinking, in place of the price of the blocks seen so far."""
        self.signed, self.stated = float(tokens), True

    def settle(self, parts: int) -> None:
        """Note what the first `parts` parts say of thinking, before their text is freed."""
        if self.signed:
            held, self.alone = self.thought, self.cut_at(parts)
            if held is not None and held is not SHARED and not self.alone:
                self.thought = self._thought_with_answer(held)
            self.signed = 0.0

    def goes_on(self, before: ContextState, parts: int) -> None:
        """Take over the earlier thinking from the context before; call it only where there was any."""
        if before.signed and parts < len(before.parts):
            self.signed = thought_in(before.parts[parts:], self.model)
            before.signed -= self.signed
        self.thought = before.thought_after(parts) if before.signed else before.thought

    def keeps(self, kept: Iterable[tuple[str, float]], first: Mapping[str, float] | None = NO_THOUGHT) -> None:
        """Add the hidden thinking of rows that a compaction kept: the next request holds it, `post_tokens` does not.

        `kept` are models and the tokens that they thought (case core-30).
        """
        thought = dict[str, float]()
        for model, tokens in kept:
            name = plain_name(model)
            thought[name] = thought.get(name, 0.0) + tokens
        if thought:
            mine = thought.get(plain_name(self.model or self.owner.model or ""), 0.0)
            self.thought = thought if first is NO_THOUGHT else first
            if self.tokens is not None:
                self.tokens += round(mine if first is NO_THOUGHT else sum(thought.values()))

    def forgot(self) -> None:
        """Note that this request holds no earlier thinking of its model."""
        if self.thought is not SHARED:
            self.thought = {**(self.thought or {}), plain_name(self.model or ""): 0.0}

    def switched(self, parts: int, model: str | None = None) -> int:
        """Return by how many tokens of thinking the next request differs; below 0 where it holds fewer.

        Another model gets only its own thinking. A model that forgot the last turn's thinking when this turn began will
        forget this turn's thinking too. `model` is the model of that request, where it is known already.
        """
        mine, other = self.model or self.owner.model, model or self.follows
        if not mine or not other or plain_name(mine) == plain_name(other):
            forgets = model is None and self.owner.forgets and self.begins_turn(parts)
            return -round(self.owner.thought + self.signed) if forgets else 0
        thought = self.thought_after(parts) or NO_THOUGHT
        return round(thought.get(plain_name(other), 0.0) - thought.get(plain_name(mine), 0.0))

    def begins_turn(self, parts: int) -> bool:
        """Tell whether a prompt is among the first `parts` parts."""
        return any(kind == "user" and not is_result(content) for kind, content in self.parts[:parts])

    def projected(self, parts: int, model: str | None = None) -> int:
        """Return what the next request will hold with the first `parts` parts, in tokens; the base must be known.

        `model` is the model of that request, where it is known already.
        """
        tokens, output = (self.tokens or 0) + self.switched(parts, model), self.output or 0
        return self.interval.projected(tokens, output, cut=self.cut_at(parts), told=self.told, parts=parts)

    def teach(self, parts: int, following: ContextState | None) -> None:
        """Measure a context that has ended, and learn what its text costs from the growth of the next request."""
        growth = growth_of(self, following)
        if growth is not None:
            self.settle(parts)
            if self.pinned or self._interval is not None:  # somebody may ask for it again
                self.interval.measure()
            self.interval.learn(growth, self.output or 0, cut=self.cut_at(parts), told=self.told, parts=parts)

    @property
    def interval(self) -> Interval:
        """The cost of the parts; made when somebody asks."""
        if self._interval is None:
            owner = self.owner
            model = self.model or owner.model
            self._interval = Interval(owner.ratios, model, self.parts)
        return self._interval

    def prefix(self, parts: int) -> ContextState:
        """Return this context as it was when it had `parts` parts."""
        new = ContextState()
        vars(new).update(vars(self))
        new.pinned, new.alone, new.thought, new.signed = False, False, self.thought_after(parts), 0.0
        new.stated = False
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
        return part_lengths(self.parts)

    def let_go(self) -> None:
        """Free the text of the parts. Where a row may go back to here, the lengths of the parts stay.

        The response's id goes too: so late, no other message of that response is expected.
        """
        if self.pinned:
            lengths = self.part_lengths()
            for place, (kind, _) in enumerate(self.parts):
                if kind == "response":
                    lengths[place] = ~lengths[place]
            self.lengths = array("q", lengths)
            self.settle(len(self.parts))
        if self._interval is not None:
            # If a snapshot still holds the interval, its text must be counted before it goes. Otherwise the interval is
            # gone with our own reference, and the count would be for nothing.
            held = ref(self._interval)
            self._interval = None
            if (kept := held()) is not None:
                kept.measure()
        self.parts, self.message_id = [], None


def growth_of(context: ContextState, following: ContextState | None) -> int | None:
    """Return by how many tokens the next request grew; `None` where that says nothing about the text between."""
    if following is None or not following.tokens or context.usage is None or context.model != following.model:
        return None
    return following.tokens - context.usage.context_tokens


class FirstRequest:
    """The messages of a session's first request, which a compaction's estimate has to take out of its size."""

    __slots__ = ("_chars", "_prompts", "attachment_chars", "known")

    def __init__(self) -> None:
        self._chars = 0
        self._prompts: list[object] = []
        """Prompts that were not counted yet."""
        self.attachment_chars: int | None = None
        self.known = False

    def add(self, kind: str, content: object) -> None:
        """Add a part from before the first response; an attachment counts only where its `rendered` form is there."""
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
