"""The environment for the CLI: the user's own account must not show through."""

import pathlib

from mala_context.testing.environment import ANOTHER_ACCOUNT, claude_env


def test_everything_the_cli_keeps_is_below_the_home():
    env = claude_env("http://127.0.0.1:1", pathlib.Path("/h"))
    assert env["HOME"] == "/h"
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR"):
        assert env[name].startswith("/h/")


def test_the_cli_talks_to_the_given_server_alone():
    env = claude_env("http://127.0.0.1:1", "/h")
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert env["ANTHROPIC_API_KEY"]
    assert "127.0.0.1" in env["NO_PROXY"]


def test_variables_of_another_account_are_emptied():
    env = claude_env("http://127.0.0.1:1", "/h")
    assert {env[name] for name in ANOTHER_ACCOUNT} == {""}


def test_all_values_are_text():
    assert {type(value) for value in claude_env("u", pathlib.Path("/h")).values()} == {str}


def test_commands_are_found_where_this_process_has_no_path(monkeypatch):
    monkeypatch.setenv("PATH", "/mine")
    assert "PATH" not in claude_env("u", "/h")
    monkeypatch.delenv("PATH")
    assert claude_env("u", "/h")["PATH"]
