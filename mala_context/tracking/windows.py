"""The context window of each model, and the source that it comes from.

The first source that answers wins::

    config → a refusal by the API → model_usage → get_context_usage → suffix or beta → a compaction → table → a guess

The order follows from what a source knows. A refusal by the API states the limit for the next request. `model_usage` is
the window that the CLI uses. Names and tables grow old. The answer of a source is kept under a plain form of the
model's name, so that an alias, a dated name, a Bedrock id and a Vertex id are one model.

The table holds names for which the bundled CLI (2.1.332) was asked one by one. Any other name of a Claude model gives a
guess of 1,000,000, which is also the CLI's guess. For some names the answer is a guess although the CLI knows them,
because a recording does not show which of two windows the session had: `claude-opus-4-6` and `claude-sonnet-4-6`, whose
suffix `[1m]` no row repeats, and retired names that today's CLI runs as a newer model. The first automatic compaction
then shows the window.

If the API accepts a request above the window, the source was wrong: the window is then at least as large as that
request, and doubtful.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.auto_compact import AUTO_COMPACT_BUFFER, LARGEST_WINDOW, auto_compact_threshold

DEFAULT_WINDOW: Final = 200_000
"""The guess for a model that is no Claude model, in tokens."""
LONG_WINDOW: Final = 1_000_000
"""The window of `[1m]` and the `context-1m` beta, and the guess for an unknown Claude model, in tokens."""
OPENAI_WINDOW: Final = 128_000
"""The guess for a model of an OpenAI-compatible server, in tokens."""
LONGEST_NAME: Final = 256
"""Most characters of a name that is taken apart and remembered; a longer text is no model's name, and gets a guess."""
MOST_MODELS: Final = 32
"""Most models whose windows are remembered; real sessions have a few."""
FAR_BELOW: Final = 0.8
"""An automatic compaction below this share of its threshold makes the window doubtful."""
OVER: Final = 1.1
"""Largest share of the window that the CLI's own estimate gives for a request that the API refuses."""

SOURCES: Final = (
    *("config", "api_error", "model_usage", "context_usage", "suffix", "beta", "compaction", "table", "guess"),
)
"""Names of the sources, the strongest first."""
WindowState = Literal["known", "guess", "doubtful"]
"""How well a window is known: from a source, not at all, or from a source that an event has contradicted."""
_RANK: Final = {name: rank for rank, name in enumerate(SOURCES)}

TABLE: Final[Mapping[str, int]] = {
    **dict.fromkeys(("3-opus", "3-sonnet", "3-haiku", "3-5-sonnet", "3-5-haiku", "3-7-sonnet"), DEFAULT_WINDOW),
    **dict.fromkeys(("opus-4", "opus-4-5", "sonnet-4", "sonnet-4-0", "sonnet-4-5", "haiku-4-5"), DEFAULT_WINDOW),
    **dict.fromkeys(("opus-4-7", "opus-4-8", "opus-5", "opus-5-5", "sonnet-5", "sonnet-5-5"), LONG_WINDOW),
    **dict.fromkeys(
        ("haiku-5", "haiku-5-5", "fable-5", "fable-5-1", "fable-5-2", "mythos-5", "mythos-5-1"), LONG_WINDOW
    ),
    **dict.fromkeys(("opus", "sonnet", "haiku", "fable", "opusplan", "best", "default"), LONG_WINDOW),
}
"""Windows by plain name without `claude-`, and by alias, as CLI 2.1.332 reports them."""
GUESSES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("opus-4-6", "sonnet-4-6"), DEFAULT_WINDOW),
    **dict.fromkeys(("opus-4-0", "opus-4-1", "opus-4-20250514"), LONG_WINDOW),
}
"""The CLI's windows for names that may have one of two windows."""
_LONG: Final = re.compile(r"\[1m\]|\(1m context\)", re.IGNORECASE)
_NOISE: Final = re.compile(
    r"\s*(?:\[1m\]|\(1m context\))|@\d+$|-v\d+(?::\d+)?$|-v\d+@\d+$|-(?:20\d{6}|latest)$", re.IGNORECASE
)


class Window(NamedTuple):
    """A context window and where it comes from."""

    tokens: int
    """Most tokens that one request may hold."""
    source: str
    """One of `SOURCES`."""
    doubtful: bool = False
    """Whether an event has contradicted this window."""


def plain_name(model: str) -> str:
    """Return a model's name without provider, version, date and window suffix; a name that is too long stays whole."""
    return _plain_name(model) if len(model) <= LONGEST_NAME else model


@lru_cache(maxsize=MOST_MODELS)
def _plain_name(model: str) -> str:
    name = model.strip().lower()
    start = name.rfind("claude")
    name = name[start:] if start > 0 else name
    before = None
    while before != name:
        before, name = name, _NOISE.sub("", name)
    return name


def from_name(model: str | None, betas: Sequence[str] = ()) -> Window:
    """Return the window that follows from a model's name; ids of Bedrock and Vertex work too."""
    short = model is None or len(model) <= LONGEST_NAME
    window = _from_name(model) if short else Window(DEFAULT_WINDOW, "guess")
    if window.source != "suffix" and any(beta.startswith("context-1m") for beta in betas):
        return Window(LONG_WINDOW, "beta")
    return window


@lru_cache(maxsize=MOST_MODELS)
def _from_name(model: str | None) -> Window:
    if model and _LONG.search(model):
        return Window(LONG_WINDOW, "suffix")
    name = (plain_name(model) if model else "").replace(".", "-")
    short = name.removeprefix("claude-")
    if model and "opus-4-20250514" in model.lower():  # without its date it is a name that the CLI does not replace
        short = "opus-4-20250514"
    if short in GUESSES:
        return Window(GUESSES[short], "guess")
    if short in TABLE:
        return Window(TABLE[short], "table")
    return Window(LONG_WINDOW if "claude" in name else DEFAULT_WINDOW, "guess")


class Windows:
    """The windows that were learned; `of` answers for one model.

    Args:
        configured: the window from the configuration, which wins over all others; `None` or ≤ 0 for none.
        betas: beta features that the requests ask for.
    """

    __slots__ = ("_answers", "_at_least", "_betas", "_configured", "_doubtful", "_forgot", "_learned", "smallest")

    def __init__(self, configured: int | None = None, betas: Sequence[str] = ()) -> None:
        self._configured = configured if configured and configured > 0 else None
        self._betas = tuple(betas)
        self._learned: dict[str, Window] = {}
        self._at_least: dict[str, int] = {}
        self._doubtful: set[str] = set()
        self._answers: dict[str | None, Window] = {}
        self._forgot = False
        self.smallest = 0
        """The smallest window that was asked for: a request up to this size fits into each of them. 0 after there were
        more than `MOST_MODELS`."""

    def of(self, model: str | None) -> Window:
        """Return the window of a model; never fails, and marks a guess as one."""
        answer = self._answers.get(model)
        if answer is None:
            answer = self._answer(model)
            if len(self._answers) == MOST_MODELS:
                self._answers.clear()
                self._forgot = True
            self._answers[model] = answer
            self.smallest = 0 if self._forgot else min(answer.tokens, self.smallest or answer.tokens)
        return answer

    def _ask_again(self) -> None:
        """Forget earlier answers for every model, because a source changed."""
        models = list(self._answers)
        self._answers.clear()
        self.smallest = 0
        for model in models:
            self.of(model)

    def _answer(self, model: str | None) -> Window:
        name = plain_name(model) if model else ""
        window = from_name(model, self._betas)
        learned = self._learned.get(name)
        if learned is not None and _RANK[learned.source] <= _RANK[window.source]:
            window = learned
        if self._configured is not None:
            window = Window(self._configured, "config")
        seen = self._at_least.get(name, 0)
        # There are two usual windows. A request above the small one means the large one; but the user's own number
        # stays, and is only marked.
        if seen > window.tokens:
            tokens = window.tokens if window.source == "config" else max(seen, LONG_WINDOW)
            return Window(tokens, window.source, doubtful=True)
        return window._replace(doubtful=name in self._doubtful)

    def learn(self, model: str | None, tokens: int, source: str) -> bool:
        """Take a source's answer for a model; return whether it is new. A weaker source changes nothing."""
        name = plain_name(model) if model else ""
        known = self._learned.get(name)
        if not 0 < tokens <= LARGEST_WINDOW or (known is not None and _RANK[known.source] < _RANK[source]):
            return False
        if known == (tokens, source, False):
            return False
        self._learned[name] = Window(tokens, source)
        # The API's own limit holds, even if a larger request was accepted before.
        if source == "api_error":
            self._at_least.pop(name, None)
        self._ask_again()
        return True

    def named(self, model: str) -> None:
        """Remember that a model was asked for with a window suffix, which the API's answers do not repeat."""
        window = from_name(model)
        if window.source == "suffix":
            self.learn(model, window.tokens, "suffix")

    def asked(self, betas: Sequence[str]) -> None:
        """Remember beta features of the requests."""
        if betas and tuple(betas) != self._betas:
            self._betas = tuple(dict.fromkeys((*self._betas, *betas)))
            self._ask_again()

    def reported(self, windows: Mapping[str, int]) -> bool:
        """Take the CLI's windows by model (`model_usage`); return whether one of them is new."""
        news = [self.learn(model, tokens, "model_usage") for model, tokens in windows.items()]
        return any(news)

    def accepted(self, model: str | None, tokens: int) -> None:
        """Note the size of an accepted request; a size above the window proves that the window is larger."""
        if self.of(model).tokens < tokens <= LARGEST_WINDOW:
            name = plain_name(model) if model else ""
            self._at_least[name] = max(tokens, self._at_least.get(name, 0))
            self._ask_again()

    def compacted(self, model: str | None, pre_tokens: int, auto_compact_window: int | None = None) -> None:
        """Note an automatic compaction, which shows the window if it is only guessed from the model's name.

        `pre_tokens` is the CLI's own estimate of the context; `auto_compact_window` is the window at which the CLI was
        told to compact, `None` if unknown. The CLI compacts at its window less 33,000, or when the API refuses. If the
        window is a guess, and the size is near the end of a usual window, that is the window (case core-22). Otherwise
        the session may have had a smaller automatic window of its own, so the window stays, and is marked as doubtful.
        """
        window = self.of(model)
        if window.source == "guess" and auto_compact_window is None:
            seen = self._at_least.get(plain_name(model) if model else "", 0)
            for size in (DEFAULT_WINDOW, window.tokens):
                if size >= seen and _near_its_end(pre_tokens, size):
                    self.learn(model, size, "compaction")
                    return
        threshold = auto_compact_threshold(window.tokens, auto_compact_window or window.tokens)
        if threshold and pre_tokens < FAR_BELOW * threshold:
            self.doubt(model)

    def doubt(self, model: str | None) -> None:
        """Mark a model's window as doubtful, e.g. after an automatic compaction far below its threshold."""
        self._doubtful.add(plain_name(model) if model else "")
        self._ask_again()


def _near_its_end(pre_tokens: int, window: int) -> bool:
    """Tell whether a CLI with this window may have compacted at this size by itself."""
    return FAR_BELOW * (window - AUTO_COMPACT_BUFFER) <= pre_tokens <= OVER * window
