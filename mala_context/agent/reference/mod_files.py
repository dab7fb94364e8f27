"""A private copy of the mod, as a plugin that the CLI can load.

Some CLIs write into a plugin's directory, so it is never the installed package: the files go below the runs directory,
into a directory that their content names, so that versions lie side by side and a copy is made once.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import Final

from mala_context._util.safe_open import read_regular
from mala_context.archive import layout
from mala_context.archive.directory import open_archives
from mala_context.archive.full_outputs import publish

NAME: Final = "mala-context-reference"
"""The plugin's name, as the CLI tells it."""
_MODS: Final = ".mods"
_SOURCE: Final = os.path.join(os.path.dirname(__file__), "register.ts")
_MOST: Final = 1 << 20


def mod_directory() -> str:
    """Return the directory of a private copy, making it where it is not there.

    Raises `ArchiveUnavailableError` where there is no place for one, and `OSError` where it cannot be written.
    """
    files = _files()
    digest = sha256(b"\0".join(data for _, data in sorted(files.items()))).hexdigest()[:12]
    top = os.path.join(os.path.realpath(layout.runs_dir()), _MODS, f"{NAME}-{digest}")
    for name, data in files.items():
        folder = open_archives(os.path.join(top, os.path.dirname(name)), create=True)
        try:
            publish(folder, os.path.basename(name), data)
        finally:
            os.close(folder)
    return top


def _files() -> dict[str, bytes]:
    about = "Compaction by reference: what the user said stays, tool calls become pointers, no model is asked."
    manifest = {"name": NAME, "version": "1.0.0", "description": about, "author": {"name": "mala-context"}}
    hooks = {"description": about, "modules": ["./register.ts"]}
    return {
        ".claude-plugin/plugin.json": json.dumps(manifest).encode(),
        "hooks/hooks.json": json.dumps(hooks).encode(),
        "hooks/register.ts": read_regular(_SOURCE, _MOST),
    }
