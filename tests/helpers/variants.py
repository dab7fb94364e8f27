"""Values of a test that takes seconds with each: the default run takes some of them, the long run all."""

import pytest


def variants(values, default=1):
    """Return the values, a tuple for several parameters; all after the first `default` ones are marked `long`."""
    rest = (each if isinstance(each, tuple) else (each,) for each in values[default:])
    return [*values[:default], *(pytest.param(*each, marks=pytest.mark.long) for each in rest)]
