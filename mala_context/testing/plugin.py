"""Fixtures for agents' own test suites, offline; pytest finds this module by its entry point.

Nothing heavy is imported before a fixture is used, so that being installed costs a test run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mala_context.testing.api import ScriptedMessagesAPI


@pytest.fixture
def mala_api() -> Iterator[Callable[..., ScriptedMessagesAPI]]:
    """Return a function that starts a `ScriptedMessagesAPI`, with its arguments; all are closed after the test.

    A test that passed fails in its teardown if a script ran out or raised (unless `strict=False`).
    """
    from contextlib import ExitStack

    from mala_context.testing.api import ScriptedMessagesAPI

    with ExitStack() as stack:

        def start(*args: Any, **kwargs: Any) -> ScriptedMessagesAPI:
            return stack.enter_context(ScriptedMessagesAPI(*args, **kwargs))

        yield start
