"""The fields of a status line: measure a session, and format each value."""

from __future__ import annotations

from mala_context._util.text import printable
from mala_context.agent.claude_code.statusline.input_values import count, table, tokens_of
from mala_context.agent.claude_code.statusline.usable import threshold_of
from mala_context.agent.hook_io import text_in
from mala_context.archive.layout import Frozen
from mala_context.tracking.auto_compact import LARGEST_WINDOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

WARM, HOT = 50, 80
"""Percent of what is usable from which the line is yellow, and red."""
_COLORS = ("\x1b[32m", "\x1b[33m", "\x1b[31m")
_RESET = "\x1b[0m"
TEMPLATE = "{model} {bar} {about}{percent} ({tokens} of {window})"
_UNKNOWN_TEMPLATE = "{model} context {percent} (of {window})"


class Gauge(Frozen):
    """What a status line can say of one session; sizes in tokens, unknown is `None`."""

    session_id: str | None
    model: str
    """The model's name for people, empty where it is unknown."""
    tokens: int | None
    window: int
    window_source: str
    """`cli`, or one of `windows.SOURCES`."""
    threshold: int | None
    """Where the CLI compacts by itself; `None` where it acts on no threshold."""
    source: str
    """Where the size comes from: `cli`, `transcript`, `estimate`, `rough`, `none`."""
    turns: int | None = None
    """Turns until the usable tokens are used, at the pace of the last ones; `None` also where it was not asked for."""
    cache: float | None = None
    """Seconds until the prompt's cache lapses, below 0 after that; `None` also where it was not asked for."""

    @property
    def exact(self) -> bool:
        """Whether the API counted this size."""
        return self.source in {"cli", "transcript"}

    @property
    def usable(self) -> int:
        """Tokens that the conversation may hold: up to the threshold, or the window where there is none."""
        return self.threshold or self.window

    @property
    def ratio(self) -> float | None:
        """Share of the window; may exceed 1.0."""
        return None if self.tokens is None else self.tokens / self.window

    @property
    def usable_ratio(self) -> float | None:
        """Share of what is usable; colours go by it."""
        return None if self.tokens is None else self.tokens / self.usable

    @property
    def left(self) -> int | None:
        """Usable tokens that are free; never below 0."""
        return None if self.tokens is None else max(0, self.usable - self.tokens)

    def as_dict(self) -> dict[str, Any]:
        """Return every value under its name, for JSON; the keys are stable."""
        names = (*self._fields, "exact", "usable", "ratio", "usable_ratio")
        values = {name: getattr(self, name) for name in names}
        return values | {"cache": None if self.cache is None else round(self.cache)}


def short(tokens: int | None) -> str:
    """`183021` → `183k`, `1000000` → `1M`, unknown → `?`."""
    if tokens is None:
        return "?"
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_500:
        return f"{tokens / 1_000:.{1 if tokens < 9_950 else 0}f}k".replace(".0k", "k")
    return f"{tokens / 1_000_000:.1f}M".replace(".0M", "M")


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio * 100:.0f}%"


def _bar(gauge: Gauge) -> str:
    """Ten cells of the window, with a mark where the CLI compacts."""
    full = 0 if gauge.ratio is None else min(10, round(gauge.ratio * 10))
    cells = ["█"] * full + ["░"] * (10 - full)
    if gauge.threshold is not None:
        cells.insert(min(10, round(gauge.threshold / gauge.window * 10)), "|")
    return "".join(cells)


def _cache_text(gauge: Gauge) -> str:
    if gauge.cache is None:
        return "?"
    return "lapsed" if gauge.cache <= 0 else "<1 min" if gauge.cache < 60 else f"{gauge.cache // 60:.0f} min"


FIELDS: dict[str, tuple[Callable[[Gauge], str], str]] = {
    "model": (lambda gauge: gauge.model or "model unknown", "the model's name"),
    "percent": (lambda gauge: _percent(gauge.ratio), "share of the window"),
    "usable_percent": (lambda gauge: _percent(gauge.usable_ratio), "share of what is usable"),
    "tokens": (lambda gauge: short(gauge.tokens), "size of the context, short"),
    "tokens_exact": (lambda gauge: "?" if gauge.tokens is None else f"{gauge.tokens:,}", "the same in full"),
    "window": (lambda gauge: short(gauge.window), "the context window, short"),
    "usable": (lambda gauge: short(gauge.usable), "tokens until the CLI compacts, or the window"),
    "left": (lambda gauge: short(gauge.left), "usable, free"),
    "threshold": (
        lambda gauge: short(gauge.threshold) if gauge.threshold else "-",
        "where the CLI compacts, - for nowhere",
    ),
    "turns": (
        lambda gauge: "?" if gauge.turns is None else str(gauge.turns),
        "turns left, at the pace of the last ones",
    ),
    "cache": (_cache_text, "minutes until the prompt's cache lapses, or `lapsed`"),
    "about": (lambda gauge: "" if gauge.exact or gauge.tokens is None else "~", "`~` for an estimate"),
    "bar": (_bar, "ten cells, with a mark where the CLI compacts"),
    "session": (lambda gauge: (gauge.session_id or "")[:8], "the session's id, its first eight characters"),
    "source": (lambda gauge: gauge.source, "where the size comes from"),
}
"""Fields of a template: what each says, and what it is."""
BY_WINDOW = frozenset({"percent", "usable_percent", "window", "usable", "left", "threshold", "turns", "bar"})
"""Fields whose value depends on the window: a guessed window makes them a guess."""
HISTORY = ("{turns", "{cache")
"""Fields for which `measure` must read the last turns."""


def check_template(template: str) -> None:
    """Raise `ValueError`, which lists the right names, where a template has others or is malformed."""
    import string

    right = ", ".join(FIELDS)
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ValueError(f"{error} in {template!r}; {{{{ and }}}} stand for braces, the fields are {right}") from None
    for name in names:
        if name not in FIELDS:
            raise ValueError(f"no field {{{name}}}; the fields are {right}")


def line(gauge: Gauge, template: str | None = None, *, color: bool = True) -> str:
    """Return the status line, one line whatever the texts hold. Raises `ValueError` for another field or format.

    A window that is a guess is marked by a `?`: once, at the window, or else at each figure that goes by it.
    """
    chosen = template or (_UNKNOWN_TEMPLATE if gauge.tokens is None else TEMPLATE)
    values = {name: say(gauge) for name, (say, _) in FIELDS.items() if "{" + name in chosen}
    if gauge.window_source == "guess":
        for name in ("window",) if "{window" in chosen.replace("{{", "") else BY_WINDOW & values.keys():
            values[name] += "" if values[name] in {"?", "-"} else "?"
    try:
        text = chosen.format(**values)
    except (KeyError, IndexError, AttributeError):
        check_template(chosen)
        raise
    text = printable(text)
    if not color or gauge.usable_ratio is None:
        return text
    shown = round(gauge.usable_ratio * 100)  # 79.6 % is shown as 80 %, so it is red as 80 % is
    return f"{_COLORS[(shown >= WARM) + (shown >= HOT)]}{text}{_RESET}"


def wants_color(choice: str, env: Mapping[str, str]) -> bool:
    """Decide on colours; `auto` means yes unless `NO_COLOR` is set: Claude Code reads a pipe and draws colours."""
    return choice == "always" or (choice == "auto" and not env.get("NO_COLOR"))


# -- measuring ------------------------------------------------------------------------------------------------------


def measure(given: Mapping[str, Any], env: Mapping[str, str], *, history: bool = False) -> Gauge:
    """Return how full a session is, from Claude Code's JSON and, where that lacks something, from its transcript.

    With `history`, `turns` and `cache` are looked for in the transcript's last turns too. Never raises: what cannot be
    read is unknown.
    """
    context, model = table(given, "context_window"), table(given, "model")
    path, identity = text_in(given, "transcript_path"), text_in(model, "id")
    tokens, named = tokens_of(table(context, "current_usage")), None
    source = "none" if tokens is None else "cli"
    if tokens is None and path:
        from mala_context.agent.claude_code.statusline.recorded import from_transcript  # most lines need none of it

        tokens, source, named = from_transcript(path)
    window, window_source = _window(context, model, identity or named or "", tokens)
    threshold = threshold_of(window, given, env)
    turns = cache = None
    if history and path:
        turns, cache = _history(path, None if tokens is None else (threshold or window) - tokens)
    return Gauge(
        session_id=text_in(given, "session_id"),
        model=text_in(model, "display_name") or identity or named or "",
        tokens=tokens,
        window=window,
        window_source=window_source,
        threshold=threshold,
        source=source,
        turns=turns,
        cache=cache,
    )


def _history(path: str, left: int | None) -> tuple[int | None, float | None]:
    import time

    from mala_context.agent.claude_code.statusline.recorded import pace_and_cache

    pace, lapses = pace_and_cache(path)
    return pace.turns_left(left), None if lapses is None else lapses - time.time()


def _window(context: Mapping[str, Any], model: Mapping[str, Any], identity: str, tokens: int | None) -> tuple[int, str]:
    said = count(context.get("context_window_size"))
    if said and said <= LARGEST_WINDOW:
        return said, "cli"
    from mala_context.tracking.windows import LONG_WINDOW, from_name

    window = from_name(f"{identity} {text_in(model, 'display_name') or ''}".strip())
    if window.source != "suffix":
        window = from_name(identity)
    if tokens is not None and tokens > window.tokens:
        return max(tokens, LONG_WINDOW), "guess"  # the request refutes what the name says
    return window.tokens, window.source
