"""The doctor's checks: facts in, findings out."""

from dataclasses import replace

import pytest

from mala_context.analysis.doctor import CHECKS, Facts, examine
from mala_context.analysis.doctor.facts import (
    ClaudeDirectory,
    ConfigFile,
    ContextMaps,
    DamagedArchive,
    DiskSpace,
    HookProof,
    PathMode,
    Program,
    ReadableFiles,
    RunsDirectory,
    SettingsFile,
    StoreProbe,
    TranscriptFacts,
    UnarchivedProject,
    VerifiedArchives,
)
from mala_context.config import ArchiveConfig, ContextConfig, Retention

GB = 1 << 30
HEALTHY = Facts(
    repo="/repo",
    sdk="0.2.189",
    programs=(Program("/bin/claude", "on PATH", "2.1.332"),),
    hooks=HookProof(archived=True, seconds=2.0),
    claude=ClaudeDirectory("/home/dev/.claude"),
    stores=(StoreProbe("s3://bucket/host/repo", 0.2),),
    runs=RunsDirectory("/runs", us=1000, directories=(PathMode("/runs", 0o700, 1000, directory=True),), archives=1),
    space=DiskSpace("/runs", free=100 * GB, stored=GB, per_day=10e6),
    settings=(SettingsFile("user", "/home/dev/.claude/settings.json", {"cleanupPeriodDays": 60}),),
    configs=(ConfigFile("/repo/mala.yaml"),),
    maps=ContextMaps(2, {"/repo/CLAUDE.md": 0.1}, {"small": 300}),
    transcripts=TranscriptFacts(files=3, searched=3),
    verified=VerifiedArchives(sessions=2, verified=2),
    readable=(ReadableFiles("/runs", ()),),
    models={"claude-sonnet-4-5": "/t.jsonl", "opus[1m]": "/home/dev/.claude/settings.json"},
)


def found(**changes):
    """Return the findings on a machine that is healthy but for these facts."""
    return [finding for each in examine(replace(HEALTHY, **changes)) for finding in each.findings]


def user(**values):
    return {"settings": (SettingsFile("user", "/user", values),)}


@pytest.mark.parametrize(
    ("way", "switched_on"),
    [
        ({"config": ContextConfig(compaction="reference")}, True),
        ({"environment": {"MALA_COMPACTION": "reference"}}, True),
        ({"environment": {"MALA_COMPACTION": "cli"}}, False),
        ({}, False),
    ],
)
def test_precompact_hooks_of_others_are_named_where_a_compaction_by_reference_bypasses_them(way, switched_on):
    ours = [{"type": "command", "command": "/venv/bin/mala-context hook"}]
    others = [
        {"type": "command", "command": "/opt/save\n.sh " + "x" * 90},
        {"type": "http", "url": "http://localhost:1"},
        {"type": "command", "command": "mala-context statusline"},
        4711,
    ]
    hooks = {"PreCompact": [{"hooks": ours}, {"matcher": "auto", "hooks": others}], "Stop": [{"hooks": [{}]}]}
    findings = found(**user(hooks=hooks), **way)
    assert len(findings) == switched_on
    for each in findings:
        assert (each.check, each.severity, each.where) == ("compaction", "warning", "/user")
        assert each.found == (
            "PreCompact hooks in the user settings do not run for a compaction by reference: "
            f"/opt/save .sh {'x' * 65}…, http://localhost:1, mala-context statusline, one of unknown shape"
        )
    for odd in ({"PreCompact": [{"hooks": ours}]}, {"PreCompact": [{"hooks": []}]}, {"PreCompact": 1}, {}, []):
        assert found(**user(hooks=odd), **way) == []


def test_a_memory_file_of_a_fifth_of_the_window_and_a_server_that_no_agent_calls():
    memory, server = found(maps=ContextMaps(3, {"/repo/CLAUDE.md": 0.2, "/b.md": 0.19}, {"wiki": 12_000, "b": 900}))
    assert (memory.where, memory.severity) == ("/repo/CLAUDE.md", "warning")
    assert "20.0% of the window" in memory.found
    assert server.where == "wiki"
    assert "takes 12,000 tokens of each request, and no tool of it was called in 3 sessions" in server.found


def config(window="auto", days=None):
    keep = None if days is None else Retention(days=days)
    return {"config": ContextConfig(window=window, archive=ArchiveConfig(keep=keep))}


def test_a_healthy_machine():
    checked = examine(HEALTHY)
    assert [each.state for each in checked] == ["ok"] * len(CHECKS)
    assert all(each.words for each in checked)


def test_what_nobody_looked_at_is_passed_over():
    assert {each.state for each in examine(Facts())} == {"skipped"}


def test_names_are_unique():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("changes", "check", "severity", "words"),
    [
        ({"sdk": "0.1.65"}, "sdk", "error", "0.1.65 is older than 0.1.66"),
        ({"sdk": "unknown"}, "sdk", "error", "unknown is older than 0.1.66"),
        ({"programs": ()}, "cli", "error", "neither the SDK's own nor one on PATH"),
        ({"programs": (Program("/c", "on PATH", error="boom"),)}, "cli", "error", "does not run: boom"),
        ({"programs": (Program("/c", "on PATH", "1.9.99"),)}, "cli", "error", "1.9.99 (on PATH) is older than 2.0.0"),
        ({"hooks": HookProof()}, "hooks", "error", "PreCompact did not fire"),
        ({"hooks": HookProof(error="no loopback")}, "hooks", "error", "failed: no loopback"),
        ({"configs": (ConfigFile("/repo/mala.yaml", ("a", "b")),)}, "config", "error", "2 problems"),
        ({"settings": (SettingsFile("user", "/u", error="not JSON"),)}, "settings", "error", "not JSON"),
        (user(disableAllHooks=True), "hooks-off", "error", "disableAllHooks is true in the user settings"),
        (
            {"settings": (SettingsFile("managed", "/m", {"allowManagedHooksOnly": True}),)},
            "hooks-off",
            "warning",
            "allowManagedHooksOnly",
        ),
        (user(autoCompactEnabled=False), "compaction", "warning", "autoCompactEnabled is false"),
        (user(env={"DISABLE_AUTO_COMPACT": "1"}), "compaction", "warning", "DISABLE_AUTO_COMPACT is 1"),
        (
            {
                "programs": (Program("/c", "on PATH", "2.1.293"), Program("/d", "the SDK's own", "2.1.294")),
                "config": ContextConfig(compaction="reference"),
            },
            "compaction",
            "warning",
            "Claude Code 2.1.293 (on PATH) loads no mods",
        ),
        ({"environment": {"DISABLE_COMPACT": "true"}}, "compaction", "warning", "and /compact is off"),
        (user(cleanupPeriodDays=0), "cleanup", "error", "is 0"),
        (user(cleanupPeriodDays=-1), "cleanup", "warning", "is -1"),
        (user(cleanupPeriodDays="30"), "cleanup", "warning", "is '30'"),
        (user(cleanupPeriodDays=True), "cleanup", "warning", "is True"),
        (user(cleanupPeriodDays=6), "cleanup", "warning", "after 6 days: a session that no hook archived"),
        ({**user(cleanupPeriodDays=20), **config(days=21)}, "cleanup", "warning", "archives are kept for 21"),
        ({**user(), **config(days=31)}, "cleanup", "warning", "after 30 days"),
        ({"models": {"glm-5": "/t"}}, "models", "warning", "window of glm-5 is a guess: 200,000"),
        (
            {"claude": ClaudeDirectory(None, "it is not set")},
            "claude",
            "error",
            "keeps no transcripts, or not where they can be found",
        ),
        ({"claude": ClaudeDirectory("rel", "relative", "CLAUDE_CONFIG_DIR")}, "claude", "error", "found: relative"),
        (
            {"stores": (StoreProbe("s3://b", 1.0, "it cannot be reached"),)},
            "object-store",
            "error",
            "on this disk: it",
        ),
        ({"stores": (StoreProbe("s3://b", 0.0, "none", installed=False),)}, "object-store", "error", "is uploaded"),
        ({"runs": RunsDirectory(None, "no home")}, "runs", "error", "nothing can be archived: no home"),
        ({"runs": RunsDirectory("/r", "/r cannot be written to")}, "runs", "error", "cannot be written to"),
        (
            {"runs": RunsDirectory("/r", us=1, directories=(PathMode("/r", 0o700, 2),))},
            "runs",
            "error",
            "user 2, not to us (1)",
        ),
        (
            {"runs": RunsDirectory("/r", directories=(PathMode("/r", 0o755),))},
            "permissions",
            "warning",
            "1 directory of archives: others can list and enter",
        ),
        (
            {"runs": RunsDirectory("/r", directories=(PathMode("/r", 0o722),))},
            "permissions",
            "error",
            "others can write",
        ),
        (
            {"readable": (ReadableFiles("/r", (PathMode("/r/a", 0o644),)),)},
            "readable",
            "error",
            "others can read 1 file",
        ),
        ({"space": DiskSpace("/r", free=50_000_000)}, "space", "error", "only 50.0 MB are free"),
        ({"space": DiskSpace("/r", free=GB, per_day=GB / 10)}, "space", "warning", "107.4 MB a day: 10 days"),
        (
            {"transcripts": TranscriptFacts(1, 1, (UnarchivedProject("/p", None, ("/p/a",), 2),))},
            "unarchived",
            "warning",
            "2 comp",
        ),
        (
            {"verified": VerifiedArchives(1, 1, (DamagedArchive("/a", ("/a/x: bad",)),))},
            "verify",
            "error",
            "1 problem in this archive",
        ),
    ],
)
def test_each_fault_is_one_finding(changes, check, severity, words):
    (finding,) = found(**changes)
    assert (finding.check, finding.severity) == (check, severity)
    assert words in finding.found
    assert finding.where
    assert finding.steps()
    assert finding.as_dict()["items"] == list(finding.items)


@pytest.mark.parametrize(
    "changes",
    [
        user(),
        user(disableAllHooks=False, autoCompactEnabled=True, cleanupPeriodDays=7),
        user(env={"DISABLE_AUTO_COMPACT": "0", "DISABLE_COMPACT": ""}),
        user(env="odd", model=["odd"]),
        user(hooks={"PreCompact": [{"hooks": []}]}),
        {**user(hooks=["odd"]), "config": ContextConfig(compaction="reference")},
        {"environment": {"DISABLE_COMPACT": "no"}},
        {
            "settings": (
                SettingsFile("local", "/l", {"disableAllHooks": False}),
                SettingsFile("user", "/u", {"disableAllHooks": True}),
            )
        },
        {
            "settings": (SettingsFile("local", "/l", {"env": {"DISABLE_COMPACT": "0"}}),),
            "environment": {"DISABLE_COMPACT": "1"},
        },
        {**user(cleanupPeriodDays=30), **config(days=30)},
        {**config(window=50_000), "models": {"glm-5": "/t"}},
        {"models": {"Sonnet": "", "opusplan": "", "<synthetic>": "", "us.anthropic.claude-opus-4-5-20251101-v1:0": ""}},
        {"models": {"gpt-9[1m]": "/t"}},
        {"space": DiskSpace("/r", free=GB, per_day=0.0)},
        {"stores": ()},
        {"claude": ClaudeDirectory("/c", there=False)},
    ],
)
def test_what_is_no_fault(changes):
    assert found(**changes) == []


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (
            UnarchivedProject("/p", "/home/my repo", ("/p/a",), 1),
            "mala-context archives import --repo '/home/my repo' /p",
        ),
        (UnarchivedProject("/p q", None, ("/p/a",), 1), "mala-context archives import '/p q'"),
        (UnarchivedProject("/p", "/home/r", ("/p/a",), 1, known=True), "mala-context archives catch-up --repo /home/r"),
    ],
)
def test_commands_can_be_pasted(change, command):
    (finding,) = found(transcripts=TranscriptFacts(1, 1, (change,)))
    assert finding.steps() == [command]


def test_versions_newer_than_any_that_was_tested():
    newer = replace(HEALTHY, sdk="0.3.0rc1", programs=(Program("/c", "on PATH", "2.2.0"), *HEALTHY.programs))
    words = {each.check.name: each.words for each in examine(newer)}
    assert words["sdk"] == "0.3.0rc1, newer than 0.2.189, the newest that was tested"
    newest = "2.2.0 (on PATH), newer than 2.1.332, the newest that was tested"
    assert words["cli"] == f"{newest}, 2.1.332 (on PATH)"
    assert {each.check.name: each.words for each in examine(HEALTHY)}["sdk"] == "0.2.189"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "nothing of ours is switched on; `mala-context init` does it"),
        ({"hooks": [], "enabledPlugins": {"mala-context@x": False}}, "nothing of ours"),
        ({"enabledPlugins": {"mala-context@x": True}}, "plugin"),
        ({"hooks": {"PreCompact": [{"hooks": [{"command": "/bin/mala-context hook"}]}]}}, "hooks"),
        ({"statusLine": {"command": "/bin/mala-context statusline"}}, "status line"),
    ],
)
def test_it_is_said_what_of_ours_claude_code_has(values, words):
    checked = {each.check.name: each for each in examine(replace(HEALTHY, **user(**values)))}["installed"]
    assert (checked.state, checked.words[: len(words)]) == ("ok", words)


def test_words_of_a_part():
    checked = {each.check.name: each.words for each in examine(replace(HEALTHY, transcripts=TranscriptFacts(9, 4)))}
    assert checked["unarchived"] == "each compaction of 9 transcripts, the newest 4 searched"
    some = (ReadableFiles("/a", (), looked=4_000), ReadableFiles("/b", (), looked=5, complete=False))
    checked = {each.check.name: each.words for each in examine(replace(HEALTHY, readable=some))}
    assert checked["readable"].endswith(", by 4,005 files; there are more")
    checked = {each.check.name: each.words for each in examine(replace(HEALTHY, verified=VerifiedArchives(9, 4)))}
    assert checked["verify"].startswith("the newest 4 of 9 sessions verified")


@pytest.mark.parametrize(
    ("changes", "items", "commands"),
    [
        (
            {
                "transcripts": TranscriptFacts(
                    8, 8, tuple(UnarchivedProject(f"/p/{n}", f"/r{n}", (f"/p/{n}/a",), 1, n % 2 == 0) for n in range(8))
                )
            },
            8,
            8,
        ),
        ({"models": {"glm-5": "/t", "glm-6": "/u"}}, 2, 0),
        ({"runs": RunsDirectory("/r", directories=(PathMode("/r", 0o755), PathMode("/r/a", 0o750)))}, 2, 1),
    ],
)
def test_one_cause_is_one_finding_however_often_it_occurs(changes, items, commands):
    (finding,) = found(**changes)
    assert (len(finding.items), len(finding.commands)) == (items, commands)


def test_no_command_of_a_finding_removes_anything():
    """`doctor --fix` runs them: this is the whole list of what it may run."""
    allowed = {("chmod",), ("mala-context", "archives", "import"), ("mala-context", "archives", "catch-up")}
    allowed |= {("mala-context", "archives", "verify")}
    faulty = replace(
        HEALTHY,
        runs=RunsDirectory("/r", directories=(PathMode("/r", 0o755),)),
        readable=(ReadableFiles("/r", (PathMode("/r/a", 0o644),)),),
        transcripts=TranscriptFacts(
            2, 2, (UnarchivedProject("/p", None, ("/p/a",), 1), UnarchivedProject("/q", "/r", ("/q/a",), 1, known=True))
        ),
        verified=VerifiedArchives(1, 1, (DamagedArchive("/a", ("/a/x: bad",)),)),
    )
    commands = [command for each in examine(faulty) for finding in each.findings for command in finding.commands]
    assert {command[:1] if command[0] == "chmod" else command[:3] for command in commands} == allowed
    assert not any(option in {"--remove", "--yes"} for command in commands for option in command)


def test_where_a_variable_is_wrong_it_is_named():
    (finding,) = found(claude=ClaudeDirectory("rel", "it is relative", "CLAUDE_CONFIG_DIR"))
    assert (finding.where, finding.fix[:22]) == ("rel", "set CLAUDE_CONFIG_DIR ")
    (finding,) = found(claude=ClaudeDirectory(None, "it is not set"))
    assert finding.where == "HOME"


def test_what_fixes_an_object_store():
    (finding,) = found(stores=(StoreProbe("s3://b", error="not installed", installed=False),))
    assert finding.fix.startswith("pip install 'mala-context[objects]'; then `mala-context archives push`")
