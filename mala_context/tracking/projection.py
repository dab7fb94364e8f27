"""How many tokens the next request will hold: the last one, its answer, and what was appended since.

An `Interval` is the text between two responses of one agent: the answer of the first, and the parts that came after.
Parts are held as they came, and counted only when somebody asks. So a message costs a list entry. The text is freed
after the next response at the latest, so memory does not grow with the session.

With a model whose prices were not measured (see `agent_state`), some intervals teach: the difference between their two
requests shows what the parts really cost. The session's `Ratios` keep that by the source of the text (a tool's name,
`prompt`, …). A ratio starts at 1 and moves slowly (a prior of 10,000 tokens), since one odd result should not change
what is known of a tool. The costs are those of `token_costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from mala_context._util.text import version_numbers
from mala_context._util.tuples import NamedTuple
from mala_context.tracking.text_counts import Countable, Names, is_thought, pieces, text_length
from mala_context.tracking.thinking_blocks import REDACTED, signed_blocks
from mala_context.tracking.token_costs import CHARS_PER_TOKEN, FAMILIES, Family, family, fixed_tokens, text_tokens

PLACEHOLDER: Final = 32
"""An output of at most this many tokens may be what a stream says before the answer is there."""
_CHARS_PRIOR: Final = 1_000
_LEAST, _MOST = 0.4, 2.5
"""Least and most that text may cost, as a multiple of its expected cost; beyond these the growth has another cause."""
PRIOR: Final = 10_000
"""Weight of "as the table says" against what a session shows, in tokens."""


def _table_alone(key: str) -> float:
    """Return the ratio of any key where a session taught nothing."""
    return 1.0


def after_compaction(
    first: int | None, post_tokens: int | None, prompt_chars: int, attachment_chars: int | None, per_token: float
) -> tuple[int | None, str]:
    """Estimate the next request right after a compaction, in tokens, and say how well it is known.

    Args:
        first: size of the session's first request, in tokens; `None` where it is not known.
        post_tokens: the CLI's chars/4 of the messages that remain.
        prompt_chars: characters of the first request's prompts, which are not in the next one.
        attachment_chars: characters of its attachments that the CLI announces again, and `post_tokens` counts;
            `None` where they are not known, and then the estimate is rough.
        per_token: characters a token.
    """
    if first is None or post_tokens is None:
        return None, "unknown"
    if attachment_chars is None:
        return first + post_tokens, "rough"
    remaining = 4 * post_tokens - attachment_chars
    return max(1, round(first - prompt_chars / per_token + remaining / per_token)), "estimate"


def after_keeping(
    first: int | None, kept: int, turn: bool, prompt_chars: int, attachment_chars: int | None, per_token: float
) -> tuple[int | None, str]:
    """Estimate the next request after a compaction that keeps `kept` characters of the messages in total.

    While a turn is under way (`turn`) the next request lacks the attachments; they are announced one request later.
    """
    if first is None:
        return None, "unknown"
    if attachment_chars is None:
        return first + round(kept / per_token), "rough"
    gone = prompt_chars + (attachment_chars if turn else 0)
    return max(1, round(first + (kept - gone) / per_token)), "estimate"


def answer_cost(output: int, *, cut: bool, told: bool = False) -> tuple[bool, float]:
    """Return whether an answer's output is a placeholder, so that its text counts, and the tokens beside the text."""
    placeholder = output <= PLACEHOLDER and not cut and not told
    return placeholder, 0.0 if placeholder or cut else float(output)


class Ratios:
    """The real cost of a session's text as a multiple of the table's cost, by the source of the text."""

    __slots__ = ("_chars", "_sums", "_tokens")

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._chars = self._tokens = 0.0

    def chars_per_token(self, model: str | None) -> float:
        """Return how many characters of this session's text make a token."""
        usual = CHARS_PER_TOKEN[family(model)]
        return (self._chars + _CHARS_PRIOR * usual) / (self._tokens + _CHARS_PRIOR)

    def get(self, key: str) -> float:
        """Return tokens seen per token expected for text of this key."""
        sums = self._sums.get(key) or self._sums.get("")
        return 1.0 if sums is None else (PRIOR + sums[1]) / (PRIOR + sums[0])

    def learn(self, expected: Mapping[str, float], actual: float, chars: int, whole: float | None = None) -> None:
        """Learn from an interval: the tokens expected by key, their real cost in total, and their characters.

        `whole` is the cost together with the frames around the text (those of a tool's result, for example). A
        compaction's estimate has only characters to go by, and the text that stays has such frames too.
        """
        total = sum(expected.values())
        if total < 1 or not _LEAST <= actual / total <= _MOST:
            return  # the CLI added or dropped context that no row shows: this says nothing about these texts
        share = actual / total
        self._chars += chars
        self._tokens += actual if whole is None else whole
        for key, tokens in (*expected.items(), ("", total)):
            sums = self._sums.setdefault(key, [0.0, 0.0])
            sums[0] += tokens
            sums[1] += tokens * share


def part_lengths(parts: Iterable[tuple[str, Any]]) -> list[int]:
    """Count the characters of each part; a thought with a signature has none, because a signature is no text."""
    return [0 if is_thought(content) and signed_blocks(content) else text_length(content) for _, content in parts]


class Interval:
    """The parts that an agent's context gained since a response; each is counted once, when somebody asks.

    Parts are of kind `response` (the base's own answer, whose size its output tells), `answer` (a later response
    without counts), `user` or `attachment`.
    """

    __slots__ = (
        "__weakref__",
        "_chars",
        "_cli",
        "_closed",
        "_has_result",
        "_measured",
        "_model",
        "_names",
        "_ratios",
        "_tokens",
        "parts",
    )

    def __init__(self, ratios: Ratios, model: str | None, parts: list[tuple[str, Any]] | None = None) -> None:
        self._names: Names = {}
        """Names of tools by the ids of this interval's calls: a result follows its call."""
        self._ratios = ratios
        self._model = model
        self._closed = 0
        """How many parts had their content freed."""
        self._has_result = False
        self._cli = TODAY
        self.parts: list[tuple[str, Any]] = [] if parts is None else parts
        """The parts in order, each with its kind; a closed part has no content any more."""
        self._measured: list[list[Countable]] = []
        self._chars: list[int] = []
        """Characters of each part that was measured."""
        self._tokens: list[float] = []

    def __len__(self) -> int:
        return len(self.parts)

    def add(self, kind: str, content: Any) -> None:
        """Hold a part; nothing is counted yet."""
        self.parts.append((kind, content))

    def prefix(self, parts: int) -> Interval:
        """Return a new interval of the first `parts` parts, for a conversation that went back to there."""
        self._measure(parts)
        new = Interval(self._ratios, self._model, self.parts[:parts])
        new._measured, new._chars = self._measured[:parts], self._chars[:parts]
        new._names = dict(self._names)
        new._closed = min(self._closed, parts)
        new._has_result = any(piece.unit == "first result" for found in new._measured for piece in found)
        return new

    def split(self, start: int, model: str | None) -> Interval:
        """Return a new interval of the parts from `start` on, whose base is the response that they begin with.

        This interval keeps these parts for readers that look back; use it only up to `start`.
        """
        parts = [("response" if kind == "answer" else kind, content) for kind, content in self.parts[start:]]
        return Interval(self._ratios, model, parts)

    def projected(self, base: int, output: int, *, cut: bool, parts: int, told: bool = False) -> int:
        """Return what the next request will hold, in tokens, given the last one and its output.

        `told` says that the output is real however small it is.
        """
        self._price(parts)
        return self._total(base, output, self._tokens[:parts], cut=cut, told=told)

    def by_table(self, base: int, output: int, *, cut: bool, parts: int, told: bool = False) -> int:
        """Return what `projected` would say had the session taught nothing: the interval alone decides."""
        self._measure(parts)
        tokens = [self._tokens_of(found, _table_alone) for found in self._measured[:parts]]
        return self._total(base, output, tokens, cut=cut, told=told)

    def _total(self, base: int, output: int, tokens: list[float], *, cut: bool, told: bool) -> int:
        """Sum up a request: the last one, its answer by its real output where that is known, and what was appended."""
        response = appended = 0.0
        for (kind, _), cost in zip(self.parts, tokens, strict=False):
            if kind == "response":
                response += cost
            else:
                appended += cost
        # A live stream says 1 output token until the answer is whole (cc#39505): then the text's own price is nearer.
        placeholder, answer = answer_cost(output, cut=cut, told=told)
        if placeholder:
            answer = max(response, output)
        return round(base + answer + appended)

    def named(self, model: str) -> None:
        """Take the model's name where it was not known; parts that have a price keep it."""
        self._model = self._model or model

    def counted_by(self, version: str | None) -> None:
        """Set the version of the CLI that `cli_estimate` follows; today's by default."""
        self._cli = cli_rule(version)

    def cli_estimate(self, base: int, output: int, *, parts: int) -> int:
        """Return what the CLI counts, in tokens: chars/4 on top of the last request and its answer.

        An answer of several rows it counts by its output and by the characters of all rows but the first, so that a
        long answer is in it twice; CLIs before 2.1.40 did not (see `cli_rule`).
        """
        self._measure(parts)
        guessed = output <= PLACEHOLDER and not self._cli.placeholder
        answer = appended = later = 0.0
        begun = False  # a first row of hidden thinking has size 0, and is the first (case core-28)
        for (kind, _), found in zip(self.parts, self._measured[:parts], strict=False):
            size = sum([_cli_chars(piece) / 4 + CLI_UNITS.get(piece.unit, 0) for piece in found])
            if kind != "response":
                appended += size
            else:
                answer += self._tokens_of(found, _table_alone) if guessed else 0.0
                later += size if begun else 0.0
                begun = True
        return round(base + max(output, answer) + (later if self._cli.later else 0.0) + appended)

    def measured(self, parts: int) -> list[tuple[str, list[Countable]]]:
        """Return the countable things in the first `parts` parts, each part with its kind."""
        self._measure(parts)
        return [(kind, found) for (kind, _), found in zip(self.parts[:parts], self._measured, strict=False)]

    def chars(self, parts: int) -> int:
        """Count the characters of the first `parts` parts."""
        self._measure(parts)
        return sum(self._chars[:parts])

    def lengths(self) -> list[int]:
        """Count the characters of every part without a look at their kinds, and keep the parts."""
        return self._chars[: self._closed] + part_lengths(self.parts[self._closed :])

    def measure(self) -> None:
        """Count every part and free its text, for a snapshot that may be asked long after the interval has ended."""
        self._price(len(self.parts))
        self.parts[:] = [(kind, None) for kind, _ in self.parts]
        self._closed = len(self.parts)

    def learn(self, growth: int, output: int, *, cut: bool, parts: int, told: bool = False) -> None:
        """Learn from the growth of the request what the text of its first parts costs.

        Call it once, when the next response's counts are there, in the order of the intervals. Call `measure` before,
        if anything is to be asked of this interval later: it then keeps its value.
        """
        self._measure(parts)
        placeholder, fixed = answer_cost(output, cut=cut, told=told)
        apart, counted, teaches = fixed, 0, True
        table = self._table()
        expected: dict[str, float] = {}
        for (kind, _), found in zip(self.parts[:parts], self._measured, strict=False):
            # The real output contains the answer, so the answer's text must not explain the growth a second time.
            answer = kind == "response" and not placeholder
            for piece in found:
                if answer:
                    continue
                # The price of an image or a thought is not known well. The text beside it would learn that error.
                teaches = teaches and piece.unit not in UNSURE and piece.counts.teaches
                counted += piece.counts.chars
                fixed += (price := fixed_tokens(piece, self._model))
                apart += price if piece.unit.startswith("tool_reference") else 0.0
                expected[piece.key] = expected.get(piece.key, 0.0) + text_tokens(piece, table)
        if teaches:
            self._ratios.learn(expected, growth - fixed, counted, growth - apart)

    def _table(self) -> Family:
        return FAMILIES[family(self._model)]

    def _measure(self, parts: int) -> None:
        measured = self._measured
        for index in range(len(measured), parts):
            kind, content = self.parts[index]
            found = pieces("response" if kind == "answer" else kind, content, self._names)
            if not self._has_result:
                self._has_result = _mark_first_result(found)
            measured.append(found)
            self._chars.append(sum([piece.counts.chars for piece in found]))

    def _tokens_of(self, found: list[Countable], ratio: Callable[[str], float]) -> float:
        """Return what a part costs, each text by the ratio of its key."""
        table, model = self._table(), self._model
        return sum([text_tokens(piece, table) * ratio(piece.key) + fixed_tokens(piece, model) for piece in found])

    def _price(self, parts: int) -> None:
        """Price the first `parts` parts; a part that has a price keeps it, whatever is learned later."""
        self._measure(parts)
        tokens = self._tokens
        for found in self._measured[len(tokens) : parts]:
            tokens.append(self._tokens_of(found, self._ratios.get))


def _mark_first_result(found: list[Countable]) -> bool:
    """Mark the first tool result in a part as an interval's first, whose constant is another; tell whether there is."""
    for place, piece in enumerate(found):
        if piece.unit == "result":
            found[place] = piece._replace(unit="first result")
            return True
    return False


UNSURE: Final = frozenset({"thinking", REDACTED, "image", "document"})
"""Units that keep an interval from teaching about text; random and minified text and another model do so too."""
CLI_UNITS: Final[Mapping[str, float]] = {
    "image": 2_000,
    "document": 2_000,
    "attachment:companion_intro": 129,
    "attachment:deferred_tools_delta": 72,
    "attachment:mcp_instructions_delta": 40,
}
"""Tokens that the CLI counts for content without text, and for the words that it puts around some attachments."""


class CliRule(NamedTuple):
    """How a CLI counts a context before it compacts."""

    later: bool = True
    """Whether the rows of an answer after the first count by their characters too."""
    placeholder: bool = False
    """Whether it takes an answer's output from the answer's row, although that may be a placeholder."""


TODAY: Final = CliRule()
_RULES: Final = (
    ((2, 1, 8), CliRule(later=False)),
    ((2, 1, 30), CliRule(later=False, placeholder=True)),
    ((2, 1, 40), CliRule(later=False)),
)
"""Rules of older CLIs, each below a version; found from 47 boundaries of versions 2.0.76 to 2.1.39."""


@lru_cache(maxsize=64)
def cli_rule(version: str | None) -> CliRule:
    """Return how a CLI of this version counts; today's rule where the version is not known."""
    numbers = version_numbers(version or "")
    return next((rule for below, rule in _RULES if len(numbers) == 3 and numbers < below), TODAY)


def _cli_chars(piece: Countable) -> int:
    """Return the characters by which the CLI counts a piece: of a tool call all of its JSON, of a thought its data."""
    size, unit = piece.size, piece.unit
    return piece.counts.chars + (size[0] if unit == "tool_use" else size[1] if unit == REDACTED else 0)
