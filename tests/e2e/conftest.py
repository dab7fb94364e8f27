"""Fixtures of the end-to-end tests: one scripted server, one instrumented agent, and what watches both."""

import pytest

from mala_context import instrument
from mala_context.config import parse

from .driving import Watch


@pytest.fixture
def agent(mala_api, mala_options):
    """Return a function from a script to (runtime, watch); `options` go to the SDK, further keywords to the API."""

    def make(script, *, options=None, config="", **api):
        server = mala_api(script, **api)
        runtime = instrument(mala_options(server, **(options or {})), config=parse(config) if config else None)
        return runtime, Watch(runtime, server)

    return make
