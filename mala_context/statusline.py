"""How full the context is, from what Claude Code gives a status line: in a process that lives for milliseconds.

Claude Code counts the last response itself and hands the counts over (`context_window.current_usage`). Where they are
missing (an older CLI), the last response is looked for in the transcript, from its end, so that a long session costs
what a short one does. Straight after a compaction the counts are `null`, or all zero; then the size is an estimate,
by the same formula as the tracker's: what the session's first request held besides its prompt, and what the CLI says
that remained.

The tracker itself would take longer to import than the line may take, so the few rules that are needed stand here:
only rows of the main agent count, synthetic and all-zero ones do not, and a compaction behind the last response makes
it void.

Colours go by what is usable: up to the size at which the CLI compacts by itself, where it is told to act on one, and
the whole window where it is not.
"""

from __future__ import annotations

import os

from mala_context.archive.records import record
from mala_context.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

BUFFER = 33_000
"""What the CLI keeps free below its automatic window, in tokens (`windows.AUTO_COMPACT_BUFFER`)."""
LEAST_AUTO_WINDOW = 100_000
"""The smallest automatic window that the CLI takes, in tokens."""
WARM, HOT = 0.5, 0.8
"""Shares of what is usable from which the line is yellow, and red."""
_BLOCK = 1 << 16
_MOST_TAIL = 32 << 20
_MOST_HEAD = 8 << 20
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
    "left": (
        lambda gauge: short(None if gauge.tokens is None else max(0, gauge.usable - gauge.tokens)),
        "usable, free",
    ),
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


def measure(given: Mapping[str, Any], env: Mapping[str, str]) -> Gauge:
    """Say how full a session is, from Claude Code's JSON and, where that lacks something, from its transcript.

    Never raises: what cannot be read is unknown.
    """
    context, model = _table(given, "context_window"), _table(given, "model")
    path, identity = _text(given, "transcript_path"), _text(model, "id")
    tokens, source, named = _tokens(_table(context, "current_usage")), "cli", None
    if not tokens:
        tokens, source, named = _from_transcript(path) if path else (None, "none", None)
    window, window_source = _window(context, model, identity or named or "", tokens)
    return Gauge(
        session_id=_text(given, "session_id"),
        model=_text(model, "display_name") or identity or named or "",
        tokens=tokens,
        window=window,
        window_source=window_source,
        threshold=_threshold(window, given, env),
        source=source,
    )


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Mapping[str, Any], name: str) -> str | None:
    found = value.get(name)
    return found if isinstance(found, str) and found else None


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12 else 0


def _tokens(usage: Mapping[str, Any]) -> int | None:
    """Return the size of a request by its counts: input, cache creation and cache read; `None` for none."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    total = sum(_count(usage.get(name)) for name in names)
    iterations = usage.get("iterations")
    if total and isinstance(iterations, list):
        for each in reversed(iterations):
            if (
                isinstance(each, dict)
                and each.get("type") == "message"
                and (last := _tokens({**each, "iterations": 0}))
            ):
                return last
    return total or None


def _window(context: Mapping[str, Any], model: Mapping[str, Any], identity: str, tokens: int | None) -> tuple[int, str]:
    said = _count(context.get("context_window_size"))
    if said:
        return said, "cli"
    from mala_context.windows import LONG_WINDOW, from_name

    window = from_name(f"{identity} {_text(model, 'display_name') or ''}".strip())
    if window.source != "suffix":
        window = from_name(identity)
    if tokens is not None and tokens > window.tokens:
        return max(tokens, LONG_WINDOW), window.source
    return window.tokens, window.source


# -- the transcript --------------------------------------------------------------------------------------------------


def _lines_from_end(path: str) -> Iterator[bytes]:
    """Yield a file's lines from the last to the first, of `_MOST_TAIL` bytes at most; a cut first line is left out."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        end = os.fstat(descriptor).st_size
        least, parts, size = max(0, end - _MOST_TAIL), [], _BLOCK
        while end > least:
            start = max(least, end - size)
            data = os.pread(descriptor, end - start, start)
            end, size = start, min(size * 2, 1 << 20)
            head, found, rest = data.partition(b"\n")
            if not found:
                parts.append(data)
                continue
            lines = (rest + b"".join(reversed(parts))).split(b"\n")
            parts = [head]
            yield from reversed(lines)
        if least == 0 and parts:
            yield b"".join(reversed(parts))
    finally:
        os.close(descriptor)


def _rows(data: bytes) -> list[dict[str, Any]]:
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        from mala_context.archive.objects import objects

        return objects(data)  # two objects on one line, or a row that is being written
    return [value] if isinstance(value, dict) else []


def _response(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return the size and the model of a response of the main agent; `None` for any other row."""
    message = _table(row, "message")
    model = _text(message, "model")
    if row.get("type") != "assistant" or row.get("isSidechain") is True or model == "<synthetic>":
        return None, None
    return _tokens(_table(message, "usage")), model


def _from_transcript(path: str) -> tuple[int | None, str, str | None]:
    """Return size, source and model of the session by its transcript, read from the end."""
    summarized = False
    try:
        for data in _lines_from_end(path):
            if b'"assistant"' not in data and b"ompact" not in data:
                continue
            for row in reversed(_rows(data)):
                tokens, model = _response(row)
                if tokens:  # before a summary that no boundary announced (old CLIs) it says nothing of what is left
                    return (None, "none", model) if summarized else (tokens, "transcript", model)
                if _is_boundary(row):
                    return _after_compaction(path, row)
                summarized = summarized or (row.get("isCompactSummary") is True and not row.get("isSidechain"))
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    return None, "none", None


def _is_boundary(row: Mapping[str, Any]) -> bool:
    boundary = row.get("type") == "system" and row.get("subtype") == "compact_boundary"
    return boundary and row.get("isSidechain") is not True


def _after_compaction(path: str, boundary: Mapping[str, Any]) -> tuple[int | None, str, str | None]:
    """Estimate the next request, by the tracker's formula, from the transcript's head."""
    post = _count(_table(boundary, "compactMetadata").get("postTokens"))
    prompt_chars, attachment_chars, first, model = _opening(path)
    if first is None or not post:
        return None, "none", model
    from mala_context.projection import CHARS_PER_TOKEN, after_compaction, family

    per_token = CHARS_PER_TOKEN[family(model)]
    return *after_compaction(first, post, prompt_chars, attachment_chars or None, per_token), model


def _opening(path: str) -> tuple[int, int, int | None, str | None]:
    """Return what the session's first request held: characters of prompts and attachments, its size, its model."""
    from mala_context.measure import REANNOUNCED, text_length

    prompt = attachments = 0
    with open(path, "rb") as file:
        while file.tell() < _MOST_HEAD and (data := file.readline()):
            if not any(kind in data for kind in (b'"user"', b'"attachment"', b'"assistant"')):
                continue
            for row in _rows(data):
                kind = row.get("type")
                tokens, model = _response(row)
                if tokens:
                    return prompt, attachments, tokens, model
                if kind == "user" and row.get("isSidechain") is not True:
                    prompt += text_length(_table(row, "message").get("content"))
                elif kind == "attachment" and _table(row, "attachment").get("type") in REANNOUNCED:
                    attachments += _rendered_length(row)
    return prompt, attachments, None, None


def _rendered_length(row: Mapping[str, Any]) -> int:
    """Count the characters of an attachment as the model gets it, which the CLI writes beside it or in it."""
    beside, inside = row.get("rendered"), _table(row, "attachment").get("rendered")
    if isinstance(beside, list):
        parts = [part.get("content") for part in beside if isinstance(part, dict)]
        return len("\n".join(part for part in parts if isinstance(part, str)))
    return len(inside) if isinstance(inside, str) else 0


def said_since_compaction(path: str, words: str) -> bool:
    """Tell whether a transcript has these words in an attachment behind its last compaction."""
    needle = words.encode()
    try:
        for data in _lines_from_end(path):
            if needle in data and b'"attachment"' in data:
                return True
            if b"compact_boundary" in data and any(map(_is_boundary, _rows(data))):
                return False
    except (OSError, ValueError):  # a path may hold anything, a NUL too
        pass
    return False


# -- what is usable --------------------------------------------------------------------------------------------------


def _threshold(window: int, given: Mapping[str, Any], env: Mapping[str, str]) -> int | None:
    """Return the size at which the CLI compacts by itself; `None` where it waits for the API's refusal.

    It acts on a threshold only where an automatic window is set: by a variable, or in a file of settings.
    """
    auto = auto_window(env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW"))
    if any(
        env.get(name, "").lower() in {"1", "true", "yes", "on"} for name in ("DISABLE_AUTO_COMPACT", "DISABLE_COMPACT")
    ):
        return None
    settings = _settings(given, env)
    if settings.get("autoCompactEnabled") is False:
        return None
    auto = auto or auto_window(settings.get("autoCompactWindow"))
    if auto is None:
        return None
    threshold = min(auto, window) - BUFFER
    return threshold if threshold > 0 else None


def auto_window(value: object) -> int | None:
    """Read an automatic window as the CLI does: `200000`, `200k`, `1m`; less than the least is the least."""
    text = str(value).strip().lower() if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:], 1)
    try:
        tokens = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        return None
    return max(LEAST_AUTO_WINDOW, round(tokens)) if 1 <= tokens < 1e12 else None


def _settings(given: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the user and the project that decide on compaction; later files win."""
    home = env.get("HOME", "")
    own = env.get("CLAUDE_CONFIG_DIR") or (os.path.join(home, ".claude") if home else "")
    project = _text(_table(given, "workspace"), "project_dir") or env.get("CLAUDE_PROJECT_DIR") or ""
    places = [os.path.join(home, ".claude.json")] if home else []
    places += [os.path.join(own, name) for name in (".claude.json", "settings.json") if own]
    places += [os.path.join(project, ".claude", name) for name in ("settings.json", "settings.local.json") if project]
    found: dict[str, Any] = {}
    for place in places:
        try:
            with open(place, "rb") as file:
                data = file.read(4 << 20)
        except (OSError, ValueError):
            continue
        if b"autoCompact" in data:
            for row in _rows(data):
                found |= {name: row[name] for name in ("autoCompactEnabled", "autoCompactWindow") if name in row}
    return found
