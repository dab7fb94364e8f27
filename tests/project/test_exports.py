"""The public names: all there, loaded when used, and cheap until then."""

import importlib
import subprocess
import sys

import pytest

import mala_context

HEAVY = ("claude_agent_sdk", "structlog", "anyio", "yaml", "rich", "click", "dataclasses", "logging", "asyncio")


@pytest.mark.parametrize("name", mala_context.__all__)
def test_every_public_name_is_there_and_is_its_modules_own(name):
    value = getattr(mala_context, name)
    home = importlib.import_module(f"mala_context.{mala_context._HOMES[name]}")
    assert getattr(home, name) is value


def test_the_lists_of_names_agree():
    assert sorted(mala_context.__all__) == sorted(mala_context._HOMES)
    assert set(mala_context.__all__) <= set(dir(mala_context))


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = mala_context.nope


def test_importing_the_package_loads_nothing_heavy():
    program = f"import sys, mala_context; print([name for name in {HEAVY!r} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == "[]"


def test_the_archive_of_a_hook_process_loads_only_the_standard_library():
    program = (
        "import sys, mala_context.archive.store, mala_context.archive.increment\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == "[]"
