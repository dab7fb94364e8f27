"""The repository as a plugin of the real CLI: what its hooks archive, alone and beside the SDK's."""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import claude_agent_sdk
import pytest
from claude_agent_sdk import ClaudeSDKClient

from mala_context import TranscriptArchive, instrument
from mala_context.agent.reference.compactor import mod_directory
from mala_context.testing import summary, too_long, tool
from tests.helpers.variants import variants

from .driving import check_private, check_whole, outcomes, prose, rows_of, triggers, turn

ROOT = pathlib.Path(__file__).parent.parent.parent
SUMMARY = summary(prose(4_000))
SCRIPT = [prose(6_000), "After."]


@pytest.fixture
def plugin(tmp_path):
    """The plugin's files alone, so that nothing but the checkout beside the script can be what runs."""
    target = tmp_path / "checkout"
    target.mkdir()
    for name in (".claude-plugin", "commands", "hooks", "mala_context"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    return {"plugins": [{"type": "local", "path": str(target)}]}


async def play(options, *prompts):
    """Send the prompts to a client of the SDK's own; return the session's id."""
    session_id = None
    async with ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                session_id = getattr(message, "session_id", None) or session_id
    return session_id


async def test_a_compaction_is_archived_and_its_outcome_told(
    mala_api, mala_options, mala_project, mala_home, mala_runs, plugin
):
    api = mala_api(SCRIPT, compactions=[SUMMARY])
    session_id = await play(mala_options(api, **plugin), "one", "/compact", "go on")
    archive = TranscriptArchive(repo_path=mala_project)
    assert triggers(archive, session_id) == ["manual", "session_end"]
    assert outcomes(archive, session_id) == [("manual", "compacted", 0)]
    (row,) = rows_of(archive, session_id, "outcome")
    assert prose(3_000) in row["summary"]
    check_whole(archive, mala_home, session_id)
    check_private(mala_runs)
    first = os.path.join(archive.location, archive.pieces(session_id)[0].name)
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o600


@pytest.mark.parametrize(
    "at_session_end",
    [
        pytest.param(True, id="looked after", marks=pytest.mark.long),
        pytest.param(False, id="of which nothing was noted"),
    ],
)
@pytest.mark.parametrize("compactions", [1, 2])
@pytest.mark.long
async def test_together_with_the_sdks_hooks_a_compaction_is_archived_once(
    mala_api, mala_options, mala_project, mala_home, plugin, compactions, at_session_end
):
    (mala_project / "mala.yaml").write_text(f"context: {{archive: {{at_session_end: {str(at_session_end).lower()}}}}}")
    api = mala_api([*SCRIPT, "Later."][: compactions + 1], compactions=[SUMMARY] * compactions)
    runtime = instrument(mala_options(api, **plugin))
    async with runtime.session() as session:
        for prompt in ["one", *("/compact", "go on") * compactions]:
            await turn(session, prompt)
        session_id = session.context.session_id
    # Both hooks run at once, and the CLI writes rows between them: the plugin's leaves the session to its owner.
    assert triggers(runtime.archive, session_id).count("manual") == compactions
    assert outcomes(runtime.archive, session_id) == [("manual", "compacted", piece) for piece in range(compactions)]
    if at_session_end:
        check_whole(runtime.archive, mala_home, session_id)


async def test_the_lines_for_settings_json_do_the_same_without_a_plugin(
    mala_api, mala_options, mala_project, mala_home, plugin
):
    page = (ROOT / "docs/how-to/claude-code-plugin.md").read_text()
    (mala_home / "mala-context").symlink_to(plugin["plugins"][0]["path"])
    (mala_home / ".claude").mkdir(exist_ok=True)
    (mala_home / ".claude/settings.json").write_text(page.partition("```json\n")[2].partition("```")[0])
    api = mala_api(SCRIPT, compactions=[SUMMARY])
    session_id = await play(mala_options(api, setting_sources=["user"]), "one", "/compact", "go on")
    archive = TranscriptArchive(repo_path=mala_project)
    assert triggers(archive, session_id) == ["manual", "session_end"]
    assert outcomes(archive, session_id) == [("manual", "compacted", 0)]
    check_whole(archive, mala_home, session_id)


async def test_bare_the_cli_runs_no_hook(mala_api, mala_options, mala_runs, plugin):
    api = mala_api(SCRIPT, compactions=[SUMMARY])
    await play(mala_options(api, **plugin, extra_args={"bare": None}), "one", "/compact", "go on")
    assert not mala_runs.exists()


async def test_switched_off_it_archives_nothing(mala_api, mala_options, mala_project, mala_runs, plugin):
    api = mala_api(SCRIPT, compactions=[SUMMARY])
    options = mala_options(api, **plugin)
    options.env["MALA_ARCHIVE"] = "off"
    await play(options, "one", "/compact", "go on")
    assert not mala_runs.exists()


async def test_all_hooks_disabled_it_does_not_run(mala_api, mala_options, mala_runs, plugin):
    api = mala_api(SCRIPT, compactions=[SUMMARY])
    settings = json.dumps({"disableAllHooks": True})
    await play(mala_options(api, **plugin, settings=settings), "one", "/compact", "go on")
    assert not mala_runs.exists()


async def test_a_warning_reaches_the_model_once(mala_api, mala_options, mala_home, plugin):
    api = mala_api(["One.", "Two.", "Three."])
    options = mala_options(api, **plugin)
    options.env["MALA_WARN_AT"] = "0.01"
    await play(options, "one", "two", "three")
    told = [json.dumps(request.body).count("mala-context: the context window is") for request in api.main_requests]
    assert told == [0, 1, 1]


COUNTING = ["Noted.", tool("Bash", command="seq 3000", description="x")]


@pytest.mark.parametrize("trigger", variants(["auto", "manual"]))
async def test_a_compaction_by_reference(mala_api, mala_options, mala_project, mala_home, mala_runs, plugin, trigger):
    refused = [too_long(250_000, 200_000)] if trigger == "auto" else []
    api = mala_api([*COUNTING, *refused, "Counted.", "After."])
    options = mala_options(api, **plugin)
    options.env["MALA_COMPACTION"] = "reference"
    prompts = ["go on"] if trigger == "auto" else ["/compact", "go on"]
    session_id = await play(options, "Never use tabs.", "count", *prompts)
    assert not api.of_kind("compaction")
    after = json.dumps(api.main_requests[-1].body)
    assert after.count("Never use tabs.") == 1
    assert "#1 Bash seq 3000" in after
    archive = TranscriptArchive(repo_path=mala_project)
    assert outcomes(archive, session_id) == [(trigger, "by_reference", 0)]
    (row,) = rows_of(archive, session_id, "outcome")
    assert os.path.dirname(row["kept"]["full_text"]).startswith(str(mala_runs))
    assert row["lost"]["instruction"] == {"total": 2, "named": 2, "missing": []}
    check_whole(archive, mala_home, session_id)
    check_private(mala_runs)


async def test_by_default_the_plugin_leaves_compactions_to_the_cli(mala_api, mala_options, plugin):
    api = mala_api([*COUNTING, too_long(250_000, 200_000), "Counted."], compactions=[SUMMARY])
    await play(mala_options(api, **plugin), "Never use tabs.", "count")
    assert len(api.of_kind("compaction")) == 1
    assert "kept-conversation" not in json.dumps(api.main_requests[-1].body)


@pytest.mark.parametrize("fault", variants(["no archive", "no place"]))
async def test_in_doubt_the_plugin_leaves_it_to_the_cli(mala_api, mala_options, mala_project, plugin, fault):
    api = mala_api([*COUNTING, too_long(250_000, 200_000), "Counted."], compactions=[SUMMARY])
    options = mala_options(api, **plugin)
    changes = {"no place": {"MALA_RUNS_DIR": "/dev/null/x"}, "no archive": {"MALA_ARCHIVE": "off"}}[fault]
    options.env.update(changes, MALA_COMPACTION="reference")
    await play(options, "Never use tabs.", "count")
    assert len(api.of_kind("compaction")) == 1


def test_the_cli_takes_the_plugin_and_its_mod_for_valid(plugin, mala_runs):
    cli = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")
    for path in (plugin["plugins"][0]["path"], mod_directory()):
        done = subprocess.run([cli, "plugin", "validate", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "register.ts hooks: session.start, session.append{door=tool-result}, session.compact" in done.stdout


@pytest.mark.long
def test_a_checkout_is_a_marketplace_for_good(mala_home, mala_project, mala_env, mala_api, mala_runs):
    """Added, installed, used and uninstalled with the CLI's own commands; only the plugin's files are copied."""
    claude = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")
    api = mala_api([*SCRIPT, "Status.", "Lost.", "Undo."], compactions=[SUMMARY])
    env = {"PATH": os.environ["PATH"], "MALA_RUNS_DIR": str(mala_runs), **mala_env(api)}

    def call(*arguments):
        done = subprocess.run(
            [claude, *arguments], cwd=mala_project, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("plugin", "marketplace", "add", str(ROOT))
    call("plugin", "install", "mala-context@mala-context")
    (installed,) = (mala_home / ".claude/plugins/cache/mala-context/mala-context").iterdir()
    assert {path.name for path in installed.iterdir() if not path.name.startswith(".in")} == {
        ".claude-plugin",
        "commands",
        "hooks",
        "mala_context",
    }
    assert not any(path.is_symlink() for path in installed.rglob("*"))

    session_id = json.loads(call("-p", "one", "--output-format", "json"))["session_id"]
    for prompt in ("/compact", "go on", "/mala-context:status", "/mala-context:lost", "/mala-context:undo"):
        call("-p", prompt, "--resume", session_id)
    archive = TranscriptArchive(repo_path=mala_project)
    assert [outcome[:2] for outcome in outcomes(archive, session_id)] == [("manual", "compacted")]
    status, lost, undo = (json.dumps(request.body["messages"]) for request in api.main_requests[-3:])
    assert "Compactions: 1" in status
    assert "summary names" in lost
    assert "claude --resume " in undo
    check_private(mala_runs)

    call("plugin", "uninstall", "mala-context@mala-context")
    call("plugin", "marketplace", "remove", "mala-context")
    settings = json.loads((mala_home / ".claude/settings.json").read_text())
    assert "mala-context" not in json.dumps(settings)


async def test_what_init_wrote_works_and_goes_away(mala_api, mala_options, mala_project, mala_home, mala_runs):
    settings = mala_home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_bytes(b'{"theme":"dark"}')
    env = {**os.environ, "HOME": str(mala_home), "CLAUDE_CONFIG_DIR": str(settings.parent)}
    program = os.path.join(os.path.dirname(sys.executable), "mala-context")

    def init(*arguments):
        subprocess.run([program, "init", "--yes", *arguments], env=env, cwd=mala_project, check=True)

    init()
    api = mala_api(SCRIPT, compactions=[SUMMARY])
    session_id = await play(mala_options(api, setting_sources=["user"]), "one", "/compact", "go on")
    archive = TranscriptArchive(repo_path=mala_project)
    assert triggers(archive, session_id) == ["manual", "session_end"]
    assert outcomes(archive, session_id) == [("manual", "compacted", 0)]
    check_whole(archive, mala_home, session_id)
    check_private(mala_runs)
    init("--remove")
    assert settings.read_bytes() == b'{"theme":"dark"}'


async def test_a_resume_with_a_cold_cache_says_its_cost(mala_api, mala_options, mala_home, mala_project, tmp_path):
    """What the CLI tells the hook of a session that was used a year ago; the hook's answer, as the CLI gets it."""
    api, said = mala_api(["First.", "Second."]), tmp_path / "said.json"
    hook = f"{sys.executable} -I -S {ROOT / 'hooks/hook.py'} | tee {said}"
    settings = json.dumps({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": hook}]}]}})
    session_id = await play(mala_options(api, settings=settings), "one")
    assert json.loads(said.read_text()) == {}
    (transcript,) = mala_home.rglob(f"{session_id}.jsonl")
    rows = [json.loads(line) for line in transcript.read_text().splitlines()]
    for row in rows:
        if "timestamp" in row:
            row["timestamp"] = f"{int(row['timestamp'][:4]) - 1}{row['timestamp'][4:]}"
    transcript.write_text("".join(json.dumps(row) + "\n" for row in rows))
    await play(mala_options(api, settings=settings, resume=session_id), "two")
    words = json.loads(said.read_text())["systemMessage"]
    writes = int(words.partition("writes ")[2].partition(" ")[0].replace(",", ""))
    assert writes == pytest.approx(api.main_requests[0].tokens, rel=0.01)
    assert "(525,6" in words
    assert "$" in words
