"""A `mala.yaml` to begin with: every key with its use and its default, each commented out."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any, Final

from mala_context.config.schema import NULLABLE_SECTIONS, SCHEMA

WIDTH: Final = 100
"""Most characters of a line; only a long value makes a line longer."""
_HEAD: Final = """\
# mala-context: what it does about a full context, and what it archives. Every key is here with its default. To change
# one, remove the `# ` before it. `mala-context config check` finds mistakes in this file.
"""
_EXAMPLES: Final = {
    "context.warn_at": "0.70",
    "context.compact_at": "0.80",
    "context.restart_at": "0.90",
    "context.final_at": "0.95",
    "context.archive.keep": "{days: 30, bytes: 5GB}",
}
"""Examples of values, shown beside a default of null."""


def template() -> str:
    """Return the text of the file. It sets the defaults: as it is, and also without the `# ` before each key."""
    lines = [_HEAD, "context:"]
    opened = {"context"}
    for key in SCHEMA:
        indent = "  " * key.path.count(".")
        if key.section in NULLABLE_SECTIONS:
            if key.section in opened:
                continue
            opened.add(key.section)
            lines += _entry(indent[2:], key.section, None, "Which archives are kept; null keeps everything.")
            continue
        if key.section not in opened:
            opened.add(key.section)
            lines.append(f"{indent[2:]}{key.section.rpartition('.')[2]}:")
        lines += _entry(indent, key.path, key.default, f"{key.doc} Wanted: {key.kind.words}.")
    return "\n".join(lines) + "\n"


def _entry(indent: str, path: str, default: Any, doc: str) -> list[str]:
    words = wrap(doc, WIDTH - len(indent) - 3)
    example = _EXAMPLES.get(path)
    tail = f"  # e.g. {example}" if example is not None and default is None else ""
    value = json.dumps(default)  # on one line; JSON is YAML
    return [*(f"{indent}## {line}" for line in words), f"{indent}# {path.rpartition('.')[2]}: {value}{tail}"]
