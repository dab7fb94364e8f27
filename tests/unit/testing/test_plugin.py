"""The pytest plugin, as a suite of somebody else's would use it."""

import subprocess
import sys

import pytest

FIXTURES = ["mala_api", "mala_env", "mala_home", "mala_options", "mala_project", "mala_runs"]


def run(pytester, source, *arguments):
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(source)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def test_the_fixtures_are_there_without_an_import(pytester):
    result = run(pytester, "def test_one(): pass", "--fixtures")
    for name in FIXTURES:
        result.stdout.fnmatch_lines([f"{name}*"])


def test_an_api_is_started_for_a_test_and_closed_after_it(pytester):
    result = run(
        pytester,
        """
        import threading
        import urllib.request

        URLS = []

        def test_one(mala_api):
            first, second = mala_api(["a"]), mala_api(["b"], window=10)
            assert first.url != second.url
            URLS.append(first.url)

        def test_two():
            assert not [one for one in threading.enumerate() if one.name.startswith("scripted-api")]
        """,
    )
    result.assert_outcomes(passed=2)


def test_directories_are_of_one_test_and_shared_within_it(pytester):
    result = run(
        pytester,
        """
        import os

        def test_one(mala_api, mala_env, mala_options, mala_home, mala_project, mala_runs, tmp_path):
            api = mala_api(["a"])
            options = mala_options(api, max_turns=3)
            assert options.cwd == str(mala_project) and options.max_turns == 3
            assert options.env["HOME"] == str(mala_home) == mala_env(api)["HOME"]
            assert options.env["ANTHROPIC_BASE_URL"] == api.url
            assert os.environ["MALA_RUNS_DIR"] == str(mala_runs)
            assert {mala_home.parent, mala_project.parent, mala_runs.parent} == {tmp_path}
            assert mala_options(api, cwd="/elsewhere").cwd == "/elsewhere"

        def test_two():
            assert "MALA_RUNS_DIR" not in os.environ
        """,
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(("strict", "errors"), [(True, 1), (False, 0)])
def test_a_script_that_ran_out_is_an_error_of_the_test(pytester, strict, errors):
    result = run(
        pytester,
        f"""
        import http.client, json

        def test_one(mala_api):
            api = mala_api([], strict={strict})
            connection = http.client.HTTPConnection(api.url.removeprefix("http://"))
            connection.request("POST", "/v1/messages", json.dumps({{"messages": []}}))
            assert connection.getresponse().status == 200
            connection.close()
        """,
    )
    result.assert_outcomes(passed=1, errors=errors)


def test_being_installed_costs_a_test_run_nothing():
    heavy = "http.server", "claude_agent_sdk", "structlog", "anyio", "yaml", "mala_context.testing.api"
    code = (
        f"import sys, pytest; before = set(sys.modules); import mala_context.testing.plugin; "
        f"print(sorted((set(sys.modules) - before) & set({heavy!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
