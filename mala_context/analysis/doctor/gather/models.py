"""Which models are in use: by the settings, the environment, and the ends of the newest transcripts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from mala_context.analysis.doctor.facts import Settings
from mala_context.transcripts.json_rows import objects

TRANSCRIPTS: Final = 50
"""Transcripts that are looked into, the newest ones."""
_TAIL: Final = 256 * 1024
"""Bytes at a transcript's end that are looked into."""
_ANSWER: Final = b"assistant"


def models(found: Collection[str], settings: Sequence[Settings], env: Mapping[str, str]) -> dict[str, str]:
    """Return each model with the first place where it was seen."""
    seen: dict[str, str] = {}
    for each in settings:
        model = each.values.get("model")
        if isinstance(model, str) and model:
            seen.setdefault(model, each.path)
    if env.get("ANTHROPIC_MODEL"):
        seen.setdefault(env["ANTHROPIC_MODEL"], "$ANTHROPIC_MODEL")
    for path in itertools.islice(found, TRANSCRIPTS):
        for model in _answering(path):
            seen.setdefault(model, path)
    return seen


def _answering(path: str) -> Iterator[str]:
    """Yield the models that answered at the end of a transcript; nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        file.seek(max(0, size - _TAIL))
        lines = file.read(_TAIL).split(b"\n")
    for line in lines if size <= _TAIL else lines[1:]:
        for row in objects(line) if _ANSWER in line else ():
            message = row.get("message")
            model = message.get("model") if row.get("type") == "assistant" and isinstance(message, dict) else None
            if isinstance(model, str) and model:
                yield model
