"""The public names of `mala_context.testing`, and the page that describes them."""

import pathlib
import subprocess
import sys

import pytest

import mala_context.testing

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "how-to" / "test-an-agent-offline.md"
READERS_NEED = {"Failure", "Reply", "Request", "Scenario", "STORE_CHECKS", "check_store"}
"""Types that tests receive and seldom name, and the battery, which is for authors of stores."""


def test_every_public_name_is_there():
    for name in mala_context.testing.__all__:
        assert getattr(mala_context.testing, name).__doc__
    assert set(mala_context.testing.__all__) <= set(dir(mala_context.testing))


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mala_context.testing.nonsense


def test_the_page_names_every_one():
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in mala_context.testing.__all__ if name not in page and name not in READERS_NEED] == []


def test_importing_the_package_loads_no_server_and_no_sdk():
    code = "import sys, mala_context.testing; print({'http.server', 'claude_agent_sdk'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
