"""Fixtures for agents' own test suites, offline; pytest finds this module by its entry point.

Nothing is imported before a fixture is used, so that being installed costs a test run nothing. All names start with
`mala_`. The directories of one test lie below its `tmp_path`.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from claude_agent_sdk import ClaudeAgentOptions

    from mala_context.testing.api import ScriptedMessagesAPI


@pytest.fixture
def mala_home(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return an empty directory that is the CLI's home: its configuration and transcripts end up there."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def mala_project(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return an empty directory for the agent to work in."""
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.fixture
def mala_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the directory below which archives are written during this test; `MALA_RUNS_DIR` says so."""
    runs = tmp_path / "runs"
    monkeypatch.setenv("MALA_RUNS_DIR", str(runs))
    return runs


@pytest.fixture
def mala_api() -> Iterator[Callable[..., ScriptedMessagesAPI]]:
    """Return a function that starts a `ScriptedMessagesAPI`, with its arguments; all are closed after the test.

    The test ends in an error if a script ran out or raised, unless that API was started with `strict=False`.
    """
    from contextlib import ExitStack

    from mala_context.testing.api import ScriptedMessagesAPI

    with ExitStack() as stack:

        def start(*args: Any, **kwargs: Any) -> ScriptedMessagesAPI:
            return stack.enter_context(ScriptedMessagesAPI(*args, **kwargs))

        yield start


@pytest.fixture
def mala_env(mala_home: pathlib.Path) -> Callable[[ScriptedMessagesAPI], dict[str, str]]:
    """Return a function from an API to the environment in which the CLI talks to it, with this test's home."""

    def env(api: ScriptedMessagesAPI) -> dict[str, str]:
        return api.env(mala_home)

    return env


@pytest.fixture
def mala_options(
    mala_home: pathlib.Path,
    mala_project: pathlib.Path,
    mala_runs: pathlib.Path,  # asked for, so that no agent under test archives into the user's home
) -> Callable[..., ClaudeAgentOptions]:
    """Return a function from an API, and any fields, to `ClaudeAgentOptions` with this test's directories.

    Two calls share the home, so that a second client can resume the first one's session.
    """

    def options(api: ScriptedMessagesAPI, **fields: Any) -> ClaudeAgentOptions:
        return api.options(**{"cwd": mala_project, "home": mala_home, **fields})

    return options
