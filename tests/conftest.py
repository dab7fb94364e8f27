"""What all tests share; the fixtures named `mala_…` come from the package's own pytest plugin."""

import functools
import inspect
import os

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

from tests.helpers.oldest_dependencies import OLD_SDK, why_not

pytest_plugins = ["pytester"]

# A busy machine is no fault of the code: examples have no time limit of their own (each test has one, pytest's), and
# health checks that measure time are off. In CI the same examples are tried each time; elsewhere new ones.
settings.register_profile(
    "patient",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("patient")

if "mix_stderr" in inspect.signature(CliRunner).parameters:  # click before 8.2: as later ones, both apart and together
    CliRunner.__init__ = functools.partialmethod(CliRunner.__init__, mix_stderr=False)
    Result.output = property(lambda self: self.stdout + self.stderr)


def pytest_configure(config):
    if OLD_SDK:
        # It leaves its queues to the garbage collector, in whatever test that comes round: nothing of ours holds one.
        open_queue = "Exception ignored in. <function MemoryObject(Receive|Send)Stream.__del__"
        config.addinivalue_line("filterwarnings", f"ignore:{open_queue}:pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items):
    for item in items:
        reason = why_not(item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    """The transcript of all examples of a property: a directory for each would take longer than the test."""
    return tmp_path_factory.mktemp("t") / "s1.jsonl"
