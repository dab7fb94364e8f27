"""Wiring: what is added to options, what is left alone, and what a configuration switches."""

import dataclasses
import json
import logging
from types import SimpleNamespace
from typing import ClassVar

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from mala_context import AgentRuntimeBuilder, ConfigError, ContextConfig, instrument
from mala_context.agent.hooks import HOOKS, is_ours
from mala_context.agent.search_tool import FULL_NAME, SERVER
from mala_context.config import ArchiveConfig
from mala_context.tracking.events import SessionStart


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "DISABLE_COMPACT", "DISABLE_AUTO_COMPACT", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


async def users_hook(*_):
    return {}


def ours(options, event):
    matchers = options.hooks.get(event, [])
    return [matcher for matcher in matchers if any(is_ours(hook) for hook in getattr(matcher, "hooks", ()))]


def test_the_original_options_are_not_touched(repo):
    matcher = HookMatcher(hooks=[users_hook])
    options = ClaudeAgentOptions(cwd=repo, hooks={"PreCompact": [matcher]}, env={"A": "1"})
    before = dataclasses.replace(options, hooks={"PreCompact": [matcher]}, env={"A": "1"})
    runtime = instrument(options)
    assert options == before
    assert runtime.options is not options
    assert dataclasses.replace(runtime.options, hooks=options.hooks) == options


def test_existing_hooks_stay_and_are_listed_first(repo):
    matcher = HookMatcher(matcher="Bash", hooks=[users_hook], timeout=3)
    runtime = instrument(ClaudeAgentOptions(cwd=repo, hooks={"PreCompact": [matcher], "Notification": [matcher]}))
    assert runtime.options.hooks["PreCompact"][0] is matcher
    assert runtime.options.hooks["Notification"] == [matcher]
    assert len(ours(runtime.options, "PreCompact")) == 1


def test_each_event_has_one_callback_with_time_to_answer(repo):
    options = instrument(ClaudeAgentOptions(cwd=repo)).options
    assert set(options.hooks) == set(HOOKS) - {"PreToolUse", "PostToolUse"}  # those come with a key of their own
    for event in options.hooks:
        (matcher,) = ours(options, event)
        assert matcher.timeout > 10


def test_wiring_twice_leaves_one_set_of_hooks(repo):
    once = instrument(ClaudeAgentOptions(cwd=repo, hooks={"Stop": [HookMatcher(hooks=[users_hook])]}))
    twice = instrument(once.options)
    assert {event: len(matchers) for event, matchers in twice.options.hooks.items()} == {
        event: len(matchers) for event, matchers in once.options.hooks.items()
    }
    assert twice.tracker is not once.tracker


def test_a_builder_builds_independent_runtimes(repo):
    builder = AgentRuntimeBuilder(repo).with_hooks({"Stop": [HookMatcher(hooks=[users_hook])]}).with_env({"A": "1"})
    one, two = builder.build(), builder.with_env({"B": "2"}).build()
    assert one.tracker is not two.tracker
    assert (one.options.env, two.options.env) == ({"A": "1"}, {"A": "1", "B": "2"})
    assert len(one.options.hooks["Stop"]) == len(two.options.hooks["Stop"]) == 2


def test_the_builder_sets_what_it_is_told(repo):
    runtime = (
        AgentRuntimeBuilder(repo, agent_id="worker-1")
        .with_model("claude-opus-4-8")
        .with_mcp({"a": {"command": "a"}})
        .with_mcp({"b": {"command": "b"}})
        .with_disallowed_tools(["WebFetch"])
        .with_disallowed_tools(["Bash"])
        .with_resume("11111111-2222-3333-4444-555555555555", fork=True)
        .with_options(max_turns=3, hooks={"Stop": [HookMatcher(hooks=[users_hook])]})
        .build()
    )
    options = runtime.options
    assert (options.model, options.max_turns, options.cwd) == ("claude-opus-4-8", 3, str(repo))
    assert set(options.mcp_servers) == {"a", "b"}
    assert options.disallowed_tools == ["WebFetch", "Bash"]
    assert (options.resume, options.fork_session) == ("11111111-2222-3333-4444-555555555555", True)
    assert options.hooks["Stop"][0].hooks == [users_hook]
    assert runtime.processor.agent_name == "worker-1"
    assert runtime.tracker.snapshot().window == 1_000_000


def test_a_factory_stands_in_for_the_sdks_types(repo):
    made = []

    class Factory:
        def create_options(self, **fields):
            made.append(fields)
            return SimpleNamespace(**fields)

        def create_hook_matcher(self, matcher, hooks):
            return SimpleNamespace(matcher=matcher, hooks=hooks, ours=True)

    runtime = AgentRuntimeBuilder(repo, sdk_client_factory=Factory()).with_model("m").build()
    assert runtime.options.model == "m"
    assert isinstance(runtime.options.hooks["PreCompact"], list)
    assert runtime.options.hooks["PreCompact"][0].ours
    assert made[-1]["hooks"] is runtime.options.hooks


@pytest.mark.parametrize("environment", ["options", "process"])
def test_a_proactive_window_gives_a_threshold(repo, monkeypatch, environment):
    options = ClaudeAgentOptions(cwd=repo, model="claude-sonnet-4-5")
    assert instrument(options).tracker.snapshot().auto_compact_threshold is None
    if environment == "options":
        options.env = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}
    else:
        monkeypatch.setenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "200000")
    assert instrument(options).tracker.snapshot().auto_compact_threshold == 167_000


@pytest.mark.parametrize("name", ["DISABLE_AUTO_COMPACT", "DISABLE_COMPACT"])
def test_no_threshold_where_a_variable_forbids_it(repo, monkeypatch, name):
    options = ClaudeAgentOptions(cwd=repo, model="claude-sonnet-4-5", env={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"})
    monkeypatch.setenv(name, "1")
    assert instrument(options).tracker.snapshot().auto_compact_threshold is None
    options.env[name] = "0"  # the options' environment goes over the process's
    assert instrument(options).tracker.snapshot().auto_compact_threshold == 167_000


@pytest.mark.parametrize(
    ("sources", "threshold"), [(None, 167_000), (["user"], 117_000), (["project"], 167_000), ([], None)]
)
def test_files_of_settings_give_a_threshold(repo, sources, threshold):
    for folder, window in ((repo.parent, 150_000), (repo, 200_000)):
        (folder / ".claude").mkdir()
        (folder / ".claude" / "settings.json").write_text(json.dumps({"autoCompactWindow": window}))
    options = ClaudeAgentOptions(cwd=repo, model="claude-sonnet-4-5", setting_sources=sources)
    assert instrument(options).tracker.snapshot().auto_compact_threshold == threshold


@pytest.mark.parametrize(
    ("settings", "threshold"),
    [
        ('{"autoCompactWindow": 150000}', 117_000),
        ('{"autoCompactEnabled": false}', None),
        ("own.json", None),
        ("none.json", 167_000),
        ("{", 167_000),
        ("[]", 167_000),
        ("{" * 100_000, 167_000),
        ({"odd": 1}, 167_000),
    ],
)
def test_the_options_own_settings_go_over_the_files(repo, settings, threshold):
    (repo / ".claude").mkdir()
    (repo / ".claude" / "settings.local.json").write_text('{"autoCompactWindow": 200000}')
    (repo / "own.json").write_text('{"env": {"DISABLE_COMPACT": "yes"}}')
    options = ClaudeAgentOptions(cwd=repo, model="claude-sonnet-4-5", settings=settings)
    assert instrument(options).tracker.snapshot().auto_compact_threshold == threshold


def test_mala_yaml_of_the_repository_counts(repo):
    (repo / "mala.yaml").write_text("model: x\ncontext:\n  window: 12345\n  archive:\n    enabled: false\n")
    runtime = instrument(ClaudeAgentOptions(cwd=repo))
    assert runtime.tracker.snapshot().window == 12_345
    assert runtime.archive is None
    assert "PreCompact" not in runtime.options.hooks


def test_a_broken_mala_yaml_stops_the_wiring(repo):
    (repo / "mala.yaml").write_text("context_limit: 200000\n")
    with pytest.raises(ConfigError, match=r"^Unknown field 'context_limit' in mala\.yaml"):
        instrument(ClaudeAgentOptions(cwd=repo))


def test_switched_off_it_looks_at_nothing_and_still_archives(repo):
    runtime = instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig(enabled=False))
    runtime.processor.process(object())
    assert runtime.processor.messages_seen == 0
    assert len(ours(runtime.options, "PreCompact")) == 1


def test_the_gate_comes_with_final_at(repo):
    plain = instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig())
    gated = instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig(final_at=0.95))
    assert "PreToolUse" not in plain.options.hooks
    assert len(ours(gated.options, "PreToolUse")) == 1
    off = instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig(final_at=0.95, enabled=False))
    assert "PreToolUse" not in off.options.hooks


@pytest.mark.parametrize("text", [None, "no place for it", b"\xff\xfe{checkpoint}"])
def test_a_template_of_no_use_stops_the_wiring(repo, text):
    if text is not None:
        (repo / "again.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"context\.continuation_template: .*again\.md"):
        instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig(continuation_template="again.md"))


async def test_a_pressure_handler_knows_template_restarts_and_archive(repo, tmp_path):
    (repo / "again.md").write_text("Again: {checkpoint}")
    config = ContextConfig(restart_at=0.9, max_restarts=5, continuation_template="again.md")
    runtime = instrument(ClaudeAgentOptions(cwd=repo, resume="older"), config=config)
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text('{"a":1}\n')
    (stop,) = ours(runtime.options, "Stop")
    await stop.hooks[0]({"session_id": "s1", "transcript_path": str(transcript)}, None, {})
    handler = runtime.pressure_handler(timeout_seconds=60)
    assert handler.max_restarts == 5
    assert handler.seconds_left <= 60
    assert handler.build_continuation_prompt("x") == "Again: x"
    (path,) = await runtime._keep("s1")
    (piece,) = runtime.archive.pieces("s1")
    assert path.endswith(piece.name)
    assert await runtime._keep("unknown") == []


async def test_without_an_archive_the_transcript_itself_is_named(repo):
    config = ContextConfig(archive=ArchiveConfig(enabled=False))
    runtime = instrument(ClaudeAgentOptions(cwd=repo), config=config)
    (submit,) = ours(runtime.options, "UserPromptSubmit")
    await submit.hooks[0]({"session_id": "s1", "transcript_path": "/gone/s1.jsonl", "prompt": "go"}, None, {})
    assert await runtime._keep("s1") == ["/gone/s1.jsonl"]


def test_what_has_no_effect_yet_is_said_in_one_line(repo, caplog):
    caplog.set_level(logging.INFO)
    instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig())
    assert caplog.messages == []


def test_the_working_directory_stands_in_for_a_repository(repo, monkeypatch):
    monkeypatch.chdir(repo)
    (repo / "mala.yaml").write_text("context: {window: 4321}\n")
    assert instrument().tracker.snapshot().window == 4321


def test_another_repository_may_be_named(repo, tmp_path):
    (repo / "mala.yaml").write_text("context: {window: 4321}\n")
    (tmp_path / "elsewhere").mkdir()
    runtime = instrument(ClaudeAgentOptions(cwd=tmp_path / "elsewhere"), repo)
    assert runtime.tracker.snapshot().window == 4321
    assert runtime.archive.location.endswith(f"{str(repo).replace('/', '-')}/archives")


async def test_closing_archives_what_is_left_and_again_nothing(repo, tmp_path):
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text('{"a":1}\n')
    runtime = instrument(ClaudeAgentOptions(cwd=repo))
    (stop,) = ours(runtime.options, "Stop")
    async with runtime:
        await stop.hooks[0]({"session_id": "s1", "transcript_path": str(transcript), "cwd": str(repo)}, None, {})
    (piece,) = runtime.archive.pieces("s1")
    assert piece.length == 8
    await runtime.aclose()
    assert len(runtime.archive.pieces("s1")) == 1


async def test_at_session_end_false_leaves_the_rest_alone(repo, tmp_path):
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text('{"a":1}\n')
    config = ContextConfig(archive=ArchiveConfig(at_session_end=False))
    runtime = instrument(ClaudeAgentOptions(cwd=repo), config=config)
    (stop,) = ours(runtime.options, "Stop")
    async with runtime:
        await stop.hooks[0]({"session_id": "s1", "transcript_path": str(transcript)}, None, {})
    assert runtime.archive.pieces("s1") == []


@pytest.mark.parametrize("hooks", [{"PreCompact": None}, {"Stop": [{"matcher": "", "hooks": []}]}, {"Stop": ()}])
def test_hooks_of_odd_shapes_are_left_to_the_sdk(repo, hooks):
    options = instrument(ClaudeAgentOptions(cwd=repo, hooks=hooks)).options
    assert len(ours(options, "PreCompact")) == 1
    for event, matchers in hooks.items():
        assert options.hooks[event][: len(matchers or ())] == list(matchers or ())


def test_a_window_that_is_a_number_is_one(repo):
    options = ClaudeAgentOptions(cwd=repo, model="claude-sonnet-4-5", env={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": 200_000})
    assert instrument(options).tracker.snapshot().auto_compact_threshold == 167_000


def test_a_file_where_a_repository_should_be_is_not_read_as_one(repo):
    (repo / "odd.py").write_text("def f(): pass\n")
    assert instrument(ClaudeAgentOptions(cwd=repo / "odd.py")).config == ContextConfig()


def test_a_named_configuration_must_be_there(repo):
    with pytest.raises(ConfigError, match="no such file"):
        AgentRuntimeBuilder(repo).with_config(repo / "typo.yaml")


# -- sessions at the same time ---------------------------------------------------------------------------------------


class Client:
    """Stands in for the SDK's client: connects, and never hears of anything."""

    made: ClassVar = []

    def __init__(self, options):
        self.options = options
        self.made.append(self)

    async def connect(self):
        await anyio.lowlevel.checkpoint()

    async def disconnect(self):
        await anyio.lowlevel.checkpoint()

    async def receive_messages(self):
        await anyio.sleep_forever()
        yield


@pytest.fixture
def clients(monkeypatch):
    monkeypatch.setattr("claude_agent_sdk.ClaudeSDKClient", Client)
    monkeypatch.setattr(Client, "made", [])
    return Client.made


def wired(client):
    """The hooks of ours that a client was given."""
    return {hook for event in client.options.hooks for matcher in ours(client.options, event) for hook in matcher.hooks}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("built", [False, True], ids=["instrument", "builder"])
def test_each_session_of_several_at_once_has_a_gauge_of_its_own(repo, clients, backend, built):
    seen = []
    if built:
        runtime = AgentRuntimeBuilder(repo, agent_id="worker").with_model("m").with_observers(seen.append).build()
    else:
        runtime = instrument(ClaudeAgentOptions(cwd=repo, model="m"), observers=[seen.append])

    async def main():
        async with runtime.session() as first, runtime.session() as second, runtime.session() as third:
            trackers = [each.tracker for each in (first, second, third)]
            assert trackers[0] is runtime.tracker
            assert len({id(each) for each in trackers}) == 3
            second.tracker.apply(SessionStart("s2", "init"))
            assert (first.context.session_id, second.context.session_id) == (None, "s2")
            runtime.observers.append(lambda record: seen.append(("late", record)))
            second._steward._actions.happened("news")
        assert seen == ["news", ("late", "news")]
        async with runtime.session() as again:
            assert again.tracker is runtime.tracker

    anyio.run(main, backend=backend)
    hooks = [wired(client) for client in clients]
    assert [client.options.model for client in clients] == ["m"] * 4
    assert sum(len(each) for each in hooks[:3]) == len(set().union(*hooks[:3]))
    assert hooks[3] == hooks[0]


async def test_a_session_that_never_began_is_in_nobodys_way(repo, clients, monkeypatch):
    runtime = instrument(ClaudeAgentOptions(cwd=repo))

    async def fail(_):
        raise OSError("no CLI")

    with monkeypatch.context() as patch:
        patch.setattr(Client, "connect", fail)
        with pytest.raises(OSError, match="no CLI"):
            async with runtime.session():
                raise AssertionError
    runtime.session()  # not entered
    async with runtime.session() as session:
        assert session.tracker is runtime.tracker


def test_an_agent_that_may_search_its_history_gets_the_tool_once(repo):
    options = ClaudeAgentOptions(cwd=repo, allowed_tools=["Read"], mcp_servers={"mine": {"command": "x"}})
    runtime = instrument(options, config=ContextConfig(search_tool=True))
    again = instrument(runtime.options, config=ContextConfig(search_tool=True))
    for made in (runtime, again):
        assert set(made.options.mcp_servers) == {"mine", SERVER}
        assert made.options.allowed_tools == ["Read", FULL_NAME]
    assert options.allowed_tools == ["Read"]


@pytest.mark.parametrize(
    ("archive", "servers", "why"),
    [(False, {}, "the archive is off"), (True, "servers.json", "the MCP servers are in a file")],
)
def test_a_search_that_is_impossible_is_said(repo, caplog, archive, servers, why):
    config = ContextConfig(search_tool=True, archive=ArchiveConfig(enabled=archive))
    runtime = instrument(ClaudeAgentOptions(cwd=repo, mcp_servers=servers), config=config)
    assert runtime.options.mcp_servers == servers
    assert f"search_tool is without effect, since {why}" in caplog.text


def test_what_is_put_back_by_itself_needs_the_archive(repo, caplog):
    instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig(pin="auto", archive=ArchiveConfig(enabled=False)))
    assert "pin: auto needs the archive, which is off" in caplog.text


@pytest.mark.parametrize("words", [b"no place for it", b"\xff\xfe {checkpoint}"], ids=["no place", "no text"])
def test_a_template_of_no_use_is_an_error_at_once(repo, words):
    (repo / "next.md").write_bytes(words)
    with pytest.raises(ConfigError, match=r"continuation_template: .*next\.md"):
        instrument(ClaudeAgentOptions(cwd=repo), config=ContextConfig(continuation_template="next.md", restart_at=0.9))


def test_transcripts_are_looked_for_where_the_agents_cli_keeps_them(repo, monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    for env, place in (
        ({"CLAUDE_CONFIG_DIR": "/c"}, ["/c/projects"]),
        ({"HOME": "/h"}, ["/h/.claude/projects"]),
        ({}, None),
    ):
        assert instrument(ClaudeAgentOptions(cwd=repo, env=env)).archive.projects_dirs == place


def test_a_configuration_made_wrong_stops_the_wiring(repo):
    wrong = ContextConfig(warn_at=70)
    for make in (
        lambda: instrument(ClaudeAgentOptions(cwd=repo), config=wrong),
        lambda: AgentRuntimeBuilder(repo).with_config(wrong).build(),
    ):
        with pytest.raises(ConfigError, match=r"context\.warn_at: found 70"):
            make()
