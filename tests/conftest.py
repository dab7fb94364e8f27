"""What all tests share; the fixtures named `mala_…` come from the package's own pytest plugin."""

import functools
import inspect
import os
from importlib.metadata import version

from click.testing import CliRunner, Result
from hypothesis import HealthCheck, settings

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
    if tuple(map(int, version("claude-agent-sdk").split(".")[:2])) < (0, 2):
        # Those leave their queues to the garbage collector, in whatever test it comes round: nothing of ours holds one.
        open_queue = "Exception ignored in. <function MemoryObject(Receive|Send)Stream.__del__"
        config.addinivalue_line("filterwarnings", f"ignore:{open_queue}:pytest.PytestUnraisableExceptionWarning")
