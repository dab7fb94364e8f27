"""Prices of text and of other content, in tokens: tables by family of models, and the functions that read them.

`tests/benchmarks/fit_text.py` fits these tables. A family has one price for each count of a text (see `text_counts`).
A unit without text has a constant price: a tool's result, an attachment of any kind, a document. The price of an image
follows from its size (see `images`), the price of hidden thinking from the length of its signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import inf
from operator import mul
from typing import Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.images import image_tokens
from mala_context.tracking.text_counts import PLAN, Countable, count_short, field_of, strings
from mala_context.tracking.thinking_blocks import REDACTED, is_signed, redacted_data, signed_blocks, thought_chars

CHARS_PER_TOKEN: Final[Mapping[str, float]] = {"classic": 3.0, "dense": 2.35}
"""Characters a token of a family's usual text."""


class Family(NamedTuple):
    """Tokens for each count of a text with a family of models; the fields are those of `Counts` without the first."""

    words: float
    letters: float
    turns: float
    capitals: float
    numbers: float
    digits: float
    signs: float
    punctuation: float
    gaps: float
    lines: float
    cjk: float
    other: float
    random: float


FAMILIES: Final[Mapping[str, Family]] = {
    "classic": Family(0.624, 0.103, 1.334, 1.031, 0.781, 0.423, 0.939, 0.092, 0.747, 1.145, 1.145, 0.406, 1.0),
    "dense": Family(0.782, 0.189, 1.352, 2.338, 1.151, 0.290, 0.854, 0.328, 1.172, 0.388, 1.439, 0.624, 1.0),
}
"""Prices by family of models."""

UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "classic": {"first result": 19, "result": 35, "attachment": 107, "tool_use": 77, "document": 3_000},
    "dense": {"first result": 7, "result": 50, "attachment": 41, "tool_use": 45, "document": 3_000},
}
"""Tokens of a unit besides its text, by family. A name `kind:detail` that is not here has the price of `kind`.
Images are priced by their size, see `images`."""
REFERENCES: Final[Mapping[str, float]] = {
    "CronCreate": 1_600,
    "CronDelete": 130,
    "CronList": 80,
    "EnterWorktree": 1_300,
    "ExitWorktree": 950,
    "Monitor": 2_550,
    "NotebookEdit": 550,
    "SendMessage": 2_100,
    "TaskStop": 250,
    "TaskUpdate": 1_199,
    "TodoWrite": 2_374,
    "WebFetch": 340,
    "WebSearch": 340,
    "mcp": 500,
}
"""Tokens of the tool description that a `tool_reference` loads, by tool; `mcp` is any tool of an MCP server. For tools
that no recording has, they follow from the length of the description in CLI 2.1.332, at 2.9 characters a token."""
_REFERENCE: Final = 800
"""The same for any other tool."""
THINKING: Final[Mapping[str, tuple[float, float]]] = {
    "haiku-4-5": (0, 0.165),
    "sonnet-4-5": (-20, 0.18),
    "opus-4-5": (0, 0.194),
    "opus-4-6": (3, 0.202),
    "sonnet-4-6": (-30, 0.211),
    "opus-4-7": (-50, 0.287),
    "opus-4-8": (-50, 0.2855),
    "sonnet-5": (-55, 0.264),
    "fable-5": (-60, 0.278),
    "opus-5": (-55, 0.3),
}
"""Tokens of hidden thinking by a part of the model's name: a constant, and tokens for each character of the signature.
See case core-24. These lines were fitted to 5,660 answers; each project's answers were tested with the lines of all
other projects."""
_THINKING: Final[Mapping[str, tuple[float, float]]] = {"classic": (-10, 0.19), "dense": (-50, 0.285)}
"""The same for any other model of a family."""

_GLANCE: Final = 512
"""Characters of a long text that are counted for `rough_tokens`, from two places in it."""
_LONG: Final = 768
"""Characters from which `rough_tokens` reads a text; a shorter text may cost nothing, or the dearest price."""
_ROUGHLY: Final = 0.6
"""Share by which the two places of a text may be dearer or cheaper than the rest of it."""
_MOST_CHARACTER: Final = 1.5
"""Tokens of the dearest character of usual text."""
_MOST_UNIT: Final = 150
"""Most tokens of a block besides its text."""
_FORGETFUL: Final = re.compile(r"claude-3-7|(?:sonnet|haiku)-4-[0-5](?!\d)|opus-4-[01](?!\d)|(?:sonnet|opus)-4-20")
_MEASURED: Final = r"claude-3|(?:opus|sonnet|haiku)-4|(?:opus|sonnet|haiku|fable|mythos)-5(?!\d)"
_DENSE: Final = r"opus-4-(?:[7-9]|\d\d)(?!\d)|(?:opus|sonnet|haiku|fable|mythos)-[5-9](?!\d)"


@lru_cache(maxsize=256)
def family(model: str | None) -> str:
    """Tell the family of a model by its name: `dense` for Opus 4.7 and later and the 5 models."""
    return "dense" if model and re.search(_DENSE, model) else "classic"


@lru_cache(maxsize=256)
def is_measured(model: str | None) -> bool:
    """Tell whether the prices of a model's text were measured on its own requests; a newer model may have other prices.

    For a measured model it does not pay to learn prices from the session. Over 5,712 requests, the 90th and 99th
    percentiles of the error are 0.322 and 1.68 % without learning, and 0.314 and 1.78 % with it; over 11,925 others,
    0.181 and 1.71 % without, 0.191 and 1.75 % with it. With the prices of the wrong family, learning removes a fifth of
    the error.
    """
    return bool(model and re.search(_MEASURED, model))


@lru_cache(maxsize=256)
def thinking_line(model: str | None) -> tuple[float, float]:
    """Return the line of `THINKING` that holds for a model."""
    return next((line for name, line in THINKING.items() if model and name in model), _THINKING[family(model)])


def thinking_tokens(signature: int, model: str | None) -> float:
    """Return how many tokens a model thought, by the length of the signature; 0 without a signature."""
    added, rate = thinking_line(model)
    return max(0.0, added + rate * signature) if signature else 0.0


def redacted_tokens(chars: int, model: str | None) -> float:
    """Return how many tokens a model thought, by the characters of a redacted block's data that hold the thought.

    Each of them costs as much as a character of a signature. This is within 35 tokens for the six answers of Sonnet 3.7
    and 4.5 that `thinking_blocks` names. One of them has an exact count, 47 tokens in 19 blocks: this gives 48, and the
    line of a signature for each block would give 850. No recording has such a block of another model.
    """
    return thinking_line(model)[1] * chars


def rough_tokens(parts: Iterable[tuple[str, Any]], model: str | None, *, answers: bool) -> tuple[float, float]:
    """Return the least and the most tokens that some parts of a request may take.

    Only 512 characters of a long text are counted, which takes a tenth of the time of the exact price. If this does not
    bound the price, the most is infinite. Without `answers` the answers' own text is left out.
    """
    if not is_measured(model):
        return 0.0, inf
    table, least, most = FAMILIES[family(model)], -1.0, 1.0  # a price is rounded
    for kind, content in parts:
        if kind == "response" and not answers:
            continue
        for block in content if content.__class__ is list else (content,):
            if is_signed(block):
                thought = thinking_in((block,), model)
                least, most = least + thought, most + thought
                continue
            name = None if block.__class__ is str else field_of(block, "name")
            most += _MOST_UNIT
            for text in (None,) if name == PLAN else strings(block):
                if text is None:
                    return 0.0, inf
                if len(text) < _LONG:
                    most += _MOST_CHARACTER * len(text)
                    continue
                third, some = len(text) // 3, _GLANCE // 2
                counts = count_short(text[third - some : third] + text[2 * third : 2 * third + some])
                cost = sum(map(mul, counts[1:], table)) / counts.chars * len(text)
                most += (1 + _ROUGHLY) * cost
                if kind != "attachment":  # not all of its fields are sent
                    least += (1 - _ROUGHLY) * cost
    return least, most


def thought_in(parts: Iterable[tuple[str, Any]], model: str | None) -> float:
    """Return the tokens of thinking in the answers among some parts of a request."""
    answers = (content for kind, content in parts if kind in ("response", "answer"))
    return thinking_in((block for content in answers for block in signed_blocks(content)), model)


def thinking_in(signed: Iterable[Any], model: str | None) -> float:
    """Return the tokens of blocks of thinking that are signed or redacted."""
    return sum(
        redacted_tokens(thought_chars(data), model)
        if (data := redacted_data(block))
        else thinking_tokens(len(field_of(block, "signature")), model)
        for block in signed
    )


@lru_cache(maxsize=256)
def forgets_thinking(model: str | None) -> bool:
    """Tell whether a model may lose its thinking of a turn when the next turn begins.

    Opus 4.5 and Sonnet 4.6 are the first models that keep it. CLIs before 2.1.41 leave the choice to the model; newer
    CLIs ask the API to keep all thinking in most sessions.
    """
    return bool(model and _FORGETFUL.search(model))


@lru_cache(maxsize=512)
def unit_tokens(unit: str, kind: str) -> float:
    """Return the tokens of a unit with models of a family."""
    name, _, tool = unit.partition(":")
    if name == "tool_reference":
        return REFERENCES.get("mcp" if tool.startswith("mcp__") else tool, _REFERENCE)
    table = UNITS[kind]
    return table.get(unit, table.get(name, 0.0))


def text_tokens(piece: Countable, table: Family) -> float:
    """Return the tokens of a piece's text, before any learned ratio is applied."""
    return float(sum(map(mul, piece.counts[1:], table)))


def fixed_tokens(piece: Countable, model: str | None) -> float:
    """Return the tokens of a piece besides its text: of a unit, of an image, or of encrypted thinking."""
    unit = piece.unit
    if unit == "image":
        return image_tokens(piece.size, family(model))
    if unit == "thinking":
        return thinking_tokens(piece.size[0], model)
    if unit == REDACTED:
        return redacted_tokens(piece.size[0], model)
    return unit_tokens(unit, family(model))
