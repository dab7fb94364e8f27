"""What a status line can say of one session, and how it says it."""

from __future__ import annotations

from mala_context._util.printable import printable
from mala_context.archive.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

WARM, HOT = 0.5, 0.8
"""Shares of what is usable from which the line is yellow, and red."""
_COLORS = ("\x1b[32m", "\x1b[33m", "\x1b[31m")
_RESET = "\x1b[0m"
TEMPLATE = "{model} {bar} {about}{percent} ({tokens} of {window})"
_UNKNOWN_TEMPLATE = "{model} context {percent} (of {window})"


@record
class Gauge:
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
        names = ("session_id", "model", "tokens", "window", "window_source", "threshold", "source", "exact")
        return {name: getattr(self, name) for name in (*names, "usable", "ratio", "usable_ratio")}


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


FIELDS: dict[str, tuple[Callable[[Gauge], str], str]] = {
    "model": (lambda gauge: gauge.model or "model unknown", "the model's name"),
    "percent": (lambda gauge: _percent(gauge.ratio), "share of the window"),
    "usable_percent": (lambda gauge: _percent(gauge.usable_ratio), "share of what is usable"),
    "tokens": (lambda gauge: short(gauge.tokens), "size of the context, short"),
    "tokens_exact": (lambda gauge: "?" if gauge.tokens is None else f"{gauge.tokens:,}", "the same in full"),
    "window": (lambda gauge: short(gauge.window), "the context window, short"),
    "usable": (lambda gauge: short(gauge.usable), "tokens until the CLI compacts, or the window"),
    "left": (lambda gauge: short(gauge.left), "usable, free"),
    "about": (lambda gauge: "" if gauge.exact or gauge.tokens is None else "~", "`~` for an estimate"),
    "bar": (_bar, "ten cells, with a mark where the CLI compacts"),
    "session": (lambda gauge: (gauge.session_id or "")[:8], "the session's id, its first eight characters"),
    "source": (lambda gauge: gauge.source, "where the size comes from"),
}
"""Fields of a template: what each says, and what it is."""


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
    """Return the status line, one line whatever the texts hold. Raises `ValueError` for another field or format."""
    chosen = template or (_UNKNOWN_TEMPLATE if gauge.tokens is None else TEMPLATE)
    try:
        text = chosen.format(**{name: say(gauge) for name, (say, _) in FIELDS.items() if "{" + name in chosen})
    except (KeyError, IndexError, AttributeError):
        check_template(chosen)
        raise
    text = printable(text)
    ratio = gauge.usable_ratio
    if not color or ratio is None:
        return text
    return f"{_COLORS[(ratio >= WARM) + (ratio >= HOT)]}{text}{_RESET}"


def wants_color(choice: str, env: Mapping[str, str]) -> bool:
    """Decide on colours; `auto` means yes unless `NO_COLOR` is set: Claude Code reads a pipe and draws colours."""
    return choice == "always" or (choice == "auto" and not env.get("NO_COLOR"))
