"""`mala-context init`: what it writes, and that `--remove` gives back every byte."""

import json
import os
import pathlib
import sys

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mala_context.cli import init as module
from mala_context.cli.app import app
from mala_context.cli.init import EVENTS, KEPT
from mala_context.config import load_config

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """The user's settings.json, which is not there yet; the working directory is a repository."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setattr(sys, "argv", ["/venv/bin/pytest"])
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path / "claude" / "settings.json"


def run(*arguments, status=0, **options):
    result = CliRunner().invoke(app, ["init", *arguments], **options)
    assert result.exit_code == status, (result.output, result.exception)
    return result


def write(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def commands(values):
    return {event: [hook["command"] for group in groups for hook in group["hooks"]] for event, groups in values.items()}


def test_status_line_and_hooks_are_written_and_taken_away(settings):
    shown = run("--yes").stdout
    assert "+" in shown
    values = json.loads(settings.read_text())
    assert values["statusLine"]["command"].endswith("-P -m mala_context.cli statusline")
    assert set(values["hooks"]) == set(EVENTS)
    run("--remove", "--yes")
    assert list(settings.parent.iterdir()) == []


def test_a_file_with_tabs_is_shown_without_escapes(settings):
    write(settings, '{\n\t"model": "opus"\n}\n')
    assert "x09" not in run("--yes").stdout
    assert "\t" in settings.read_text()


def test_the_hooks_are_those_of_the_plugin(settings):
    run("--hooks", "--yes")
    plugin = json.loads((ROOT / "hooks" / "hooks.json").read_text())["hooks"]
    ours = json.loads(settings.read_text())["hooks"]
    assert "statusLine" not in json.loads(settings.read_text())
    assert set(plugin) == set(ours)
    for event, groups in plugin.items():
        (theirs,), ((entry,),) = groups[0]["hooks"], [group["hooks"] for group in ours[event]]
        assert (theirs["timeout"], theirs["command"].endswith(" warn")) == (
            entry["timeout"],
            entry["command"].endswith(" warn"),
        )


def test_the_command_is_the_installed_program(settings, tmp_path, monkeypatch):
    program = tmp_path / "my bin" / "mala-context"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    run("--yes", "--status-line")
    assert json.loads(settings.read_text())["statusLine"]["command"] == f"'{program}' statusline"
    assert run("--yes", "--status-line").stdout == "nothing to change\n"
    run("--yes", "--remove")
    assert not settings.exists()


@pytest.mark.parametrize("place", [".cache/uv/archive-v0/x/bin", ".cache/pipx/x/bin", "other/uv/environments-v2/x/bin"])
def test_a_program_in_a_cache_is_not_written_into_settings(settings, tmp_path, monkeypatch, place):
    program = tmp_path / place / "mala-context"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert "install it first" in run("--yes", status=3).stderr
    assert not settings.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"{}\n\n",
        b'{\n\t"model": "opus",\n\t"permissions": {"allow": ["Bash(ls)"]}\n}',
        b'\xef\xbb\xbf{"a": 1.10, "b": 1e3, "c": "\\ud800 \\u00e9"}\r\n',
        b'{"hooks": {}, "statusLine2": null}',
        b'{"hooks": {"Stop": [], "PreCompact": [{"matcher": "auto", "hooks": [{"command": "a b"}]}]}}',
    ],
)
def test_every_byte_comes_back(settings, data):
    write(settings, data)
    settings.chmod(0o640)
    run("--yes")
    assert settings.stat().st_mode & 0o777 == 0o640
    assert (settings.parent / f"settings.json{KEPT}").stat().st_mode & 0o777 == 0o600
    after = settings.read_bytes()
    assert run("--yes").stdout == "nothing to change\n"
    assert settings.read_bytes() == after
    run("--remove", "--yes")
    assert settings.read_bytes() == data
    assert os.listdir(settings.parent) == ["settings.json"]
    assert run("--remove", "--yes").stdout == "nothing to change\n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_our_entries_are_added_and_taken_out_of_any_settings(values):
    values = {name: value for name, value in values.items() if name not in {"hooks", "statusLine", "enabledPlugins"}}
    data = json.dumps(values).encode()
    added = {**values, "hooks": module._hooks_added("p", {}), "statusLine": {"command": module._command("statusline")}}
    assert module._without_ours(added) == values
    assert json.loads(module._bytes(values, data)) == values


def test_what_others_wrote_since_stays(settings):
    write(settings, '{"model": "opus"}')
    run("--yes")
    values = json.loads(settings.read_text())
    values["theme"] = "dark"
    values["hooks"]["PreCompact"][0]["hooks"].append({"type": "command", "command": "theirs"})
    settings.write_text(json.dumps(values))
    run("--remove", "--yes")
    assert json.loads(settings.read_text()) == {
        "model": "opus",
        "theme": "dark",
        "hooks": {"PreCompact": [{"hooks": [{"type": "command", "command": "theirs"}]}]},
    }


def test_a_new_form_of_the_same_settings_is_the_old_file_again(settings):
    write(settings, '{"model":"opus"}')
    run("--yes")
    settings.write_text(json.dumps(json.loads(settings.read_text()), indent=8))
    run("--remove", "--yes")
    assert settings.read_text() == '{"model":"opus"}'


def test_the_first_file_is_kept_when_more_is_added_later(settings):
    write(settings, '{"model":"opus"}')
    run("--yes", "--hooks")
    run("--yes", "--status-line")
    run("--remove", "--yes")
    assert settings.read_text() == '{"model":"opus"}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "not JSON that can be changed"),
        (b"// mine\n{}", "not JSON that can be changed"),
        (b"[]", "it is no JSON object"),
        (b"\xff\xfe", "not JSON that can be changed"),
        (b'{"a": 1, "a": 2}', "a key stands twice"),
        (b'{"a": 1e999}', "not JSON that can be changed"),
        (b"[" * 100_000, "not JSON that can be changed"),
        (b" " * (5 << 20), "more than"),
        (b'{"hooks": []}', "not as Claude Code has them"),
        (b'{"hooks": {"PreCompact": {}}}', "not as Claude Code has them"),
    ],
)
def test_a_file_that_cannot_be_changed_stays(settings, data, words):
    write(settings, data)
    result = run("--yes", status=3)
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert settings.read_bytes() == data
    assert os.listdir(settings.parent) == ["settings.json"]


def test_another_status_line_stays_and_the_hooks_come(settings):
    data = b'{"statusLine": {"command": "ccstatusline"}}'
    write(settings, data)
    assert "another status line; remove that first" in run("--status-line", "--yes", status=3).stderr
    assert settings.read_bytes() == data
    assert "another status line, which stays" in run("--yes").stderr
    values = json.loads(settings.read_bytes())
    assert values["statusLine"] == {"command": "ccstatusline"}
    assert set(values["hooks"]) == set(EVENTS)
    run("--remove", "--yes")
    assert settings.read_bytes() == data


@pytest.mark.parametrize(("options", "told"), [(["--warn-at", "0.7"], False), (["--compact-at", "0.8"], True)])
def test_thresholds_that_claude_code_does_not_act_on_are_said(settings, options, told):
    assert ("agents on the SDK act on every threshold" in run(*options, "--yes").stderr) == told


def test_a_fifo_and_a_folder_in_its_place(settings):
    settings.mkdir(parents=True)
    run("--yes", status=3)
    settings.rmdir()
    os.mkfifo(settings)
    run("--yes", status=3)


def test_a_link_is_followed_and_stays(settings, tmp_path):
    (tmp_path / "dotfiles").write_text("{}")
    settings.parent.mkdir()
    settings.symlink_to(tmp_path / "dotfiles")
    run("--yes")
    assert "hooks" in json.loads((tmp_path / "dotfiles").read_text())
    run("--remove", "--yes")
    assert settings.is_symlink()
    assert (tmp_path / "dotfiles").read_text() == "{}"


def test_without_yes_nothing_is_written_unless_a_terminal_says_so(settings, monkeypatch):
    assert run().stdout.endswith("nothing is written: this is a dry run; --yes writes it\n")
    assert not settings.exists()
    monkeypatch.setattr(module, "_asks", lambda: True)
    run(input="n\n")
    assert not settings.exists()
    run(input="y\n")
    assert settings.exists()


def test_a_file_that_changed_while_it_was_asked_stays(settings, monkeypatch):
    write(settings, "{}")
    monkeypatch.setattr(module, "_asks", lambda: True)
    monkeypatch.setattr(module.click, "confirm", lambda _: bool(settings.write_text('{"new": 1}')))
    assert "changed while you were asked" in run(status=3).stderr
    assert settings.read_text() == '{"new": 1}'


def test_the_plugins_hooks_are_enough(settings):
    write(settings, '{"enabledPlugins": {"mala-context@mala-context": true}}')
    result = run("--yes")
    assert "the plugin is installed" in result.stderr
    assert "hooks" not in json.loads(settings.read_text())


@pytest.mark.parametrize(("scope", "name"), [("project", "settings.json"), ("local", "settings.local.json")])
def test_other_settings_files(settings, scope, name):
    run("--yes", "--scope", scope)
    assert "hooks" in json.loads(pathlib.Path(".claude", name).read_text())
    run("--yes", "--scope", scope, "--remove")
    assert os.listdir(".claude") == []


def test_no_home(settings, monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("HOME", "/")
    assert "CLAUDE_CONFIG_DIR" in run("--yes", status=3).stderr


def test_remove_stands_alone(settings):
    assert "leave the other options out" in run("--remove", "--hooks", status=2).stderr


# thresholds


def test_thresholds_make_a_mala_yaml_and_take_it_away(settings):
    run("--yes", "--warn-at", "0.6", "--compact-at", "0.8")
    config = load_config(".")
    assert (config.warn_at, config.compact_at) == (0.6, 0.8)
    assert not settings.exists()
    run("--yes", "--final-at", "0.9")
    assert load_config(".").final_at == 0.9
    run("--yes", "--remove")
    assert os.listdir(".") == []


def test_thresholds_that_do_not_go_together_are_wrong_usage(settings):
    """No file is there yet, so none is named."""
    said = run("--yes", "--warn-at", "0.9", "--compact-at", "0.5", status=2).stderr
    assert "compact_at: found 0.5, wanted 0.9 or more, since context.warn_at is 0.9" in said
    assert os.path.abspath("mala.yaml") not in said
    assert os.listdir(".") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\nmodel: opus\n",
        "model: opus",
        "context:\n  window: 100000  # why\n",
        "context:  # ours\n\n    # about\n    warn_at: 0.5  # why\n    guard:\n      buffer_tokens: 9000\n",
        "context: {warn_at: 0.5, window: 100000}\n",
        "context:\r\n  warn_at: 0.5\r\n",
        "\ufeffcontext:\n  warn_at: 0.5\n",
    ],
)
def test_a_mala_yaml_keeps_all_else_and_comes_back(settings, text):
    path = pathlib.Path("mala.yaml")
    path.write_bytes(text.encode())
    before = load_config(".")
    run("--yes", "--warn-at", "0.65")
    after = load_config(".")
    assert after.warn_at == 0.65
    assert after.guard == before.guard
    assert after.window == before.window
    assert [part for part in ("# mine", "# why", "# about", "model: opus") if part in text] == [
        part for part in ("# mine", "# why", "# about", "model: opus") if part in path.read_text()
    ]
    run("--yes", "--remove")
    assert path.read_bytes() == text.encode()
    assert os.listdir(".") == ["mala.yaml"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("context: {}\n", "write warn_at: 0.65 below context: yourself"),
        ("context:\n  warn_at:\n    0.5\n", "0.65"),
        ("context: [\n", "not YAML"),
        ("context:\n  compact_at: 0.5\n", "compact_at"),
    ],
)
def test_a_mala_yaml_that_cannot_be_changed_stays(settings, text, words):
    path = pathlib.Path("mala.yaml")
    path.write_text(text)
    assert words in run("--yes", "--warn-at", "0.65", status=3).stderr
    assert path.read_text() == text


def test_a_mala_yaml_that_others_changed_stays(settings):
    path = pathlib.Path("mala.yaml")
    path.write_text("model: opus\n")
    run("--yes", "--warn-at", "0.65")
    text = path.read_text().replace("opus", "sonnet")
    path.write_text(text)
    assert "others changed it since" in run("--yes", "--remove").stderr
    assert path.read_text() == text
