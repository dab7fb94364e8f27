"""Tell whether a summary names a file, a command or a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

SHARE: Final = 0.5
"""Share of a sentence's words that must be in the summary."""
COMPARED: Final = 600
"""Most characters of a sentence that are compared: a long prompt says at its beginning what it asks for."""
_STEM: Final = 6

_WORD = re.compile(r"[^\W_]{4,}|\d{2,}")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_FRAME = re.compile(
    r"^(?:This session is being continued from a previous conversation|If you need specific details from before comp"
    r"|The messages after this summary are|Recent messages are preserved"
    r"|(?:Please c|C)ontinue the conversation from where)[^\n]*",
    re.MULTILINE,
)
"""Lines that the CLI puts around a summary. One holds the transcript's path, and so the words of the project's name."""
_INSIDE_NAME = re.compile(r"[\w.-]")
_GOES_ON = re.compile(r"[\w-]|\.\w")


def distinct_suffixes(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path the shortest end, in whole components, that no other path has."""
    parts = {path: [part for part in path.replace("\\", "/").split("/") if part] for path in paths}
    counts: Counter[str] = Counter()
    for components in parts.values():
        counts.update("/".join(components[-length:]) for length in range(1, len(components) + 1))
    return {
        path: next(
            (
                suffix
                for length in range(1, len(components) + 1)
                if counts[suffix := "/".join(components[-length:])] == 1
            ),
            "/".join(components),
        )
        for path, components in parts.items()
    }


class SummaryText:
    """A summary, prepared to be searched, without the model's notes in `<analysis>` and the CLI's own lines."""

    def __init__(self, summary: str) -> None:
        thoughts, tag, rest = summary.partition("</analysis>")
        text = _FRAME.sub("", rest if tag and "<summary>" in rest and "<analysis>" in thoughts else summary)
        self._paths = text.replace("\\", "/")
        self._line = " ".join(text.split()).casefold()
        self._words = _words(text)

    def names_file(self, suffix: str) -> bool:
        """Tell whether a path with this end is in the summary, as a whole name."""
        start = self._paths.find(suffix) if suffix else -1
        while start >= 0:
            end = start + len(suffix)
            before = self._paths[start - 1 : start]
            if not (before and _INSIDE_NAME.match(before)) and not _GOES_ON.match(self._paths, end):
                return True
            start = self._paths.find(suffix, start + 1)
        return False

    def names_command(self, command: str) -> bool:
        """Tell whether a command is in the summary: as it is, or at least 80 % of its words if it has three or more."""
        if " ".join(command.split()).casefold() in self._line:
            return True
        words = _words(command[:COMPARED])
        return len(words) >= 3 and len(words & self._words) >= 0.8 * len(words)

    def names_sentence(self, sentence: str) -> bool:
        """Tell whether a sentence is in the summary: as it is, or half of its words."""
        if " ".join(sentence.split()).casefold() in self._line:
            return True
        words = _words(sentence[:COMPARED])
        return len(words) >= 2 and len(words & self._words) >= SHARE * len(words)


def _words(text: str) -> set[str]:
    """Return the words that carry meaning, cut to their stems; scripts without spaces give pairs of letters."""
    words = {match[0].casefold()[:_STEM] for match in _WORD.finditer(text) if not _WIDE.search(match[0])}
    for match in _WIDE.finditer(text):
        words |= {match[0][start : start + 2] for start in range(len(match[0]) - 1)}
    return words
