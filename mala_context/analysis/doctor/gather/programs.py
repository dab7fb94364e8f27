"""The SDK, the Claude Code CLIs, and their versions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from mala_context.analysis.doctor.facts import Program
from mala_context.transcripts.projects import home_dir

SECONDS: Final = 15.0
"""How long a CLI may take to print its version."""
_ELSEWHERE: Final = (".local/bin/claude", ".npm-global/bin/claude", ".claude/local/claude", "node_modules/.bin/claude")
"""Where the SDK looks below the home directory when no CLI is on PATH."""
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")


def sdk_version() -> str | None:
    """Return the version of the installed claude-agent-sdk; `None` where it is unknown."""
    try:
        return metadata.version("claude-agent-sdk")
    except metadata.PackageNotFoundError:
        return None


def programs(env: Mapping[str, str]) -> tuple[Program, ...]:
    """Return the CLIs in the order in which the SDK takes them; each is run once, for its version."""
    return tuple(_ask(path, source, env) for path, source in _found(env))


def _found(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    spec = find_spec("claude_agent_sdk")
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(directory, "_bundled", "claude")
        if os.path.isfile(path):
            yield path, "the SDK's own"
    on_path = shutil.which("claude", path=env.get("PATH", os.defpath))
    if on_path is not None:
        yield on_path, "on PATH"
        return
    home = home_dir(env)
    for place in _ELSEWHERE if home is not None else ():
        path = os.path.join(home or "", place)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            yield path, "installed"
            return


def _ask(path: str, source: str, env: Mapping[str, str]) -> Program:
    quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDECODE": ""}
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            env={**env, **quiet},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Program(path, source, error=f"it printed no version within {SECONDS:g} s")
    except OSError as error:
        return Program(path, source, error=error.strerror or str(error))
    match = _VERSION.search(done.stdout.decode("utf-8", "replace")[:1000])
    if match is not None:
        return Program(path, source, version=match[0])
    said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[:200]
    return Program(path, source, error=said or f"exit status {done.returncode}")
