"""Values of a test that takes seconds with each: the default run takes some of them, the long run the others."""

import pytest


def variants(values, default=1):
    """Return the values; all after the first `default` ones are marked `long`."""
    return [*values[:default], *(pytest.param(each, marks=pytest.mark.long) for each in values[default:])]
