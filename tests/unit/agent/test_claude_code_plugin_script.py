"""The plugin's script as Claude Code runs it: without an installed package, answering `{}` whatever is wrong."""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from mala_context import TranscriptArchive

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = os.path.realpath(sys.executable)
"""The interpreter below the virtual environment: it knows nothing of what is installed there."""
EVENTS = ["PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit"]
USAGE = {"input_tokens": 150_000, "output_tokens": 1}
ROW = {"type": "assistant", "message": {"model": "claude-sonnet-4-5", "usage": USAGE, "content": []}}


class Place:
    """A repository, a transcript and a runs directory."""

    def __init__(self, path):
        self.repo = path / "repo"
        self.runs = path / "runs"
        self.transcript = path / "projects" / "s.jsonl"
        self.home = path / "home"
        for each in (self.repo, self.transcript.parent, self.home):
            each.mkdir()
        self.transcript.write_text(json.dumps(ROW) + "\n")

    def given(self, event, **fields):
        found = {
            "hook_event_name": event,
            "session_id": "s",
            "transcript_path": str(self.transcript),
            "cwd": str(self.repo),
        }
        return {**found, **fields}

    def run(self, given, *arguments, env=None, python=(PYTHON, "-I", "-S"), root=ROOT, **options):
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        values = {"PATH": os.environ["PATH"], "MALA_RUNS_DIR": str(self.runs), "HOME": str(self.home)}
        command = [*python, str(root / "hooks/hook.py"), *arguments]
        if "stdin" not in options:
            options["input"] = data
        return subprocess.run(
            command, capture_output=True, env={**values, **(env or {})}, timeout=60, cwd=self.repo, **options
        )

    def ask(self, event, *arguments, env=None, **fields):
        done = self.run(self.given(event, **fields), *arguments, env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout) if done.stdout.startswith(b"{") else done.stdout

    def files(self, pattern="*_transcript.jsonl"):
        return sorted(self.runs.glob(f"*/archives/{pattern}"))

    def rows(self, kind):
        (manifest,) = self.files("*.manifest.jsonl")
        return [row for row in map(json.loads, manifest.read_text().splitlines()) if row["row"] == kind]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


UNDO = b"archived; undo with mala-context archives restore s\n"
"""What PostCompact answers where the session is archived."""


def check_one_line(done, *words, answer=b"{}\n"):
    assert (done.returncode, done.stdout) == (0, answer)
    assert done.stderr.count(b"\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr.decode()


class TestEvents:
    def test_precompact_archives(self, place):
        assert place.ask("PreCompact", trigger="auto") == {}
        (piece,) = place.files()
        assert piece.read_bytes() == place.transcript.read_bytes()
        assert stat.S_IMODE(piece.stat().st_mode) == 0o600
        assert place.rows("piece")[0]["trigger"] == "auto"

    def test_twice_is_once(self, place):
        for _ in range(2):
            assert place.ask("PreCompact", trigger="auto") == {}
        assert len(place.files()) == 1

    def test_postcompact_tells_the_outcome(self, place):
        place.ask("PreCompact", trigger="manual")
        assert place.ask("PostCompact", trigger="manual", compact_summary="We did it.") == UNDO
        (row,) = place.rows("outcome")
        assert (row["outcome"], row["trigger"], row["summary"]) == ("compacted", "manual", "We did it.")
        assert row["piece"] == place.files()[0].name

    def test_postcompact_alone_archives_what_was_skipped(self, place):
        done = place.run(place.given("PostCompact", trigger="auto", compact_summary="Done."))
        check_one_line(done, "Compaction without PreCompact", answer=UNDO)
        assert place.rows("outcome")[0]["outcome"] == "hook_skipped"
        assert len(place.files()) == 1

    def test_sessionstart_notes_the_session_and_catches_up(self, place):
        other = place.transcript.with_name("o.jsonl")
        other.write_bytes(place.transcript.read_bytes())
        place.ask("SessionStart", source="startup", session_id="o", transcript_path=str(other))
        assert place.files() == []
        place.ask("SessionStart", source="startup")
        assert [each.name.partition("_")[0] for each in place.files()] == ["o"]

    def test_sessionend_archives_the_rest(self, place):
        place.ask("PreCompact", trigger="auto")
        with place.transcript.open("a") as file:
            file.write('{"type":"user"}')
        place.ask("SessionEnd", reason="other")
        assert b"".join(each.read_bytes() for each in place.files()) == place.transcript.read_bytes()

    def test_a_session_without_words_leaves_nothing(self, place):
        place.ask("SessionEnd", reason="other", transcript_path="/nowhere/s.jsonl")
        assert not place.runs.exists()

    def test_another_event_is_none_of_ours(self, place):
        place.ask("Notification")
        assert not place.runs.exists()

    def test_the_repository_is_the_sessions_and_not_where_it_went(self, place, tmp_path):
        env = {"CLAUDE_PROJECT_DIR": str(place.repo)}
        place.ask("PreCompact", trigger="auto", cwd=str(tmp_path), env=env)
        (directory,) = place.runs.iterdir()
        assert directory.name == str(place.repo).replace("/", "-")


@pytest.fixture
def owned(place, monkeypatch):
    """An archive in which a process, by its id, has said that it looks after the session."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(place.runs))
    archive = TranscriptArchive(repo_path=place.repo)

    def by(pid):
        archive.register_session("s", str(place.transcript), pid=pid)
        return archive

    return by


class TestBesideAnOwner:
    def test_what_it_archived_is_not_archived_again(self, place, owned):
        owned(os.getpid()).archive(str(place.transcript), "s", trigger="auto")
        with place.transcript.open("a") as file:
            file.write('{"type":"system"}\n')  # the CLI writes on between two hooks
        place.ask("PreCompact", trigger="auto")
        place.ask("PostCompact", trigger="auto", compact_summary="Done.")
        assert len(place.files()) == 1
        assert place.rows("outcome") == []

    def test_one_that_finds_nothing_new_is_not_waited_for(self, place, owned):
        archive = owned(os.getpid())
        archive.archive(str(place.transcript), "s", trigger="auto")
        archive.record_outcome("s", "compacted", trigger="auto")
        place.ask("PreCompact", trigger="auto")
        assert len(place.files()) == 1

    def test_one_that_comes_later_is_waited_for(self, place, owned):
        archive = owned(os.getpid())
        data = json.dumps(place.given("PreCompact", trigger="auto")).encode()
        env = {"MALA_RUNS_DIR": str(place.runs), "PATH": os.environ["PATH"]}
        with subprocess.Popen(
            [PYTHON, "-I", "-S", str(ROOT / "hooks/hook.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        ) as hook:
            hook.stdin.write(data)
            hook.stdin.close()
            archive.archive(str(place.transcript), "s", trigger="auto")
            assert hook.stdout.read() == b"{}\n"
        assert len(place.files()) == 1

    @pytest.mark.long
    def test_one_that_hangs_is_not_waited_for_in_vain(self, place, owned):
        owned(os.getpid())
        place.ask("PreCompact", trigger="auto")
        assert len(place.files()) == 1

    @pytest.mark.long
    def test_an_old_piece_without_an_outcome_is_of_another_compaction(self, place, owned):
        archive = owned(os.getpid())
        archive.archive(str(place.transcript), "s", trigger="auto")
        (manifest,) = place.files("*.manifest.jsonl")
        year = str(datetime.now(UTC).year)
        manifest.write_text(manifest.read_text().replace(f'"{year}-', '"2020-'))
        with place.transcript.open("a") as file:
            file.write('{"type":"system"}\n')
        place.ask("PreCompact", trigger="auto")
        assert len(place.files()) == 2

    def test_a_dead_one_is_none(self, place, owned):
        done = subprocess.Popen(["true"])
        done.wait()
        owned(done.pid)
        place.ask("PreCompact", trigger="auto")
        assert len(place.files()) == 1
        place.ask("PostCompact", trigger="auto", compact_summary="Done.")
        assert place.rows("outcome")[0]["outcome"] == "compacted"


class TestBesideAHookOfNobody:
    """A hook beside ours, of a process that the manifest does not name."""

    def test_what_it_archives_meanwhile_is_not_archived_again(self, place, monkeypatch):
        monkeypatch.setenv("MALA_RUNS_DIR", str(place.runs))
        now = time.time_ns() // 1000
        monkeypatch.setattr("mala_context.archive.layout.now", lambda: now + 10**6)  # it comes while ours waits
        TranscriptArchive(repo_path=place.repo).archive(str(place.transcript), "s", trigger="auto")
        with place.transcript.open("a") as file:
            file.write('{"type":"system"}\n')  # the CLI writes on between two hooks
        assert place.ask("PreCompact", trigger="auto") == {}
        assert len(place.files()) == 1

    def test_what_it_archived_for_another_compaction_is_no_excuse(self, place, monkeypatch):
        monkeypatch.setenv("MALA_RUNS_DIR", str(place.runs))
        now = time.time_ns() // 1000
        monkeypatch.setattr("mala_context.archive.layout.now", lambda: now - 10**7)
        TranscriptArchive(repo_path=place.repo).archive(str(place.transcript), "s", trigger="auto")
        with place.transcript.open("a") as file:
            file.write('{"type":"system"}\n')
        place.ask("PreCompact", trigger="auto")
        assert len(place.files()) == 2


class TestWarning:
    def test_none_unless_asked_for(self, place):
        assert place.ask("UserPromptSubmit", "warn", prompt="x") == {}

    def test_by_the_variable_once(self, place):
        env = {"MALA_WARN_AT": "0.7"}
        answer = place.ask("UserPromptSubmit", "warn", env=env)
        told = answer["hookSpecificOutput"]
        assert told["hookEventName"] == "UserPromptSubmit"
        assert "75% full (150,000 of 200,000 tokens)" in told["additionalContext"]
        row = {
            "type": "attachment",
            "attachment": {"type": "hook_additional_context", "content": [told["additionalContext"]]},
        }
        with place.transcript.open("a") as file:
            file.write(json.dumps(row) + "\n")
        assert place.ask("UserPromptSubmit", "warn", env=env) == {}

    def test_not_below(self, place):
        assert place.ask("UserPromptSubmit", "warn", env={"MALA_WARN_AT": "0.8"}) == {}

    def test_by_mala_yaml(self, place):
        (place.repo / "mala.yaml").write_text("context:\n  warn_at: 0.6\n")
        done = place.run(place.given("UserPromptSubmit"), "warn", python=(sys.executable, "-I", "-S"))
        assert b"additionalContext" in done.stdout or b"PyYAML" in done.stderr

    def test_a_wrong_share(self, place):
        check_one_line(place.run(place.given("UserPromptSubmit"), "warn", env={"MALA_WARN_AT": "70"}), "MALA_WARN_AT")


class TestConfiguration:
    def test_switched_off_by_the_variable(self, place):
        place.ask("PreCompact", trigger="auto", env={"MALA_ARCHIVE": "0"})
        assert not place.runs.exists()

    def test_without_pyyaml_one_line_and_the_defaults(self, place):
        (place.repo / "mala.yaml").write_text("context:\n  archive:\n    enabled: false\n")
        (place.repo / "yaml.py").write_text("raise SystemExit('never imported from a project')")
        blocked = (
            "import sys; sys.modules['yaml'] = None; import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
        )
        done = place.run(place.given("PreCompact", trigger="auto"), python=(PYTHON, "-I", "-S", "-c", blocked))
        check_one_line(done, "mala.yaml", "PyYAML")
        assert len(place.files()) == 1

    def test_with_pyyaml_the_file_is_heard(self, place):
        (place.repo / "mala.yaml").write_text("context:\n  archive:\n    enabled: false\n")
        place.run(place.given("PreCompact", trigger="auto"), python=(sys.executable, "-I"))
        assert not place.runs.exists()

    def test_a_broken_file_is_one_line_and_the_defaults(self, place):
        (place.repo / "mala.yaml").write_text("context:\n  archives: 1\n  warn: 2\n")
        done = place.run(place.given("PreCompact", trigger="auto"), python=(sys.executable, "-I"))
        check_one_line(done, "mala.yaml")
        assert len(place.files()) == 1


class TestNothingDisturbs:
    @pytest.mark.parametrize("event", EVENTS)
    @pytest.mark.parametrize(
        "fields",
        [
            {"session_id": "../x"},
            {"session_id": None},
            {"transcript_path": 7},
            {"transcript_path": "/nowhere"},
            {"cwd": []},
        ],
        ids=str,
    )
    def test_odd_fields(self, place, event, fields):
        done = place.run(place.given(event, **fields), env={"MALA_WARN_AT": "0.99"})
        assert done.returncode == 0
        assert done.stdout in {b"{}\n", UNDO if event == "PostCompact" else b"{}\n"}
        assert done.stderr.count(b"\n") <= 1

    @pytest.mark.parametrize("data", [b"", b"garbage", b"[]", b"\xff", b"[" * 100_000, b'"x"'])
    def test_no_json(self, place, data):
        check_one_line(place.run(data), "mala-context: the hook's input is no JSON")

    def test_closed_input(self, place):
        done = place.run(b"", stdin=None, preexec_fn=lambda: os.close(0))
        assert (done.returncode, done.stdout) == (0, b"{}\n")

    @pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 1, 2), (1,), (1, 2), (2,)], ids=str)
    def test_closed_streams(self, place, closed):
        """No pipe of ours takes their numbers: a hook would read its own answer until its patience ends."""
        done = place.run(place.given("PreCompact"), preexec_fn=lambda: [os.close(each) for each in closed])
        assert done.returncode == 0
        assert done.stdout == (b"" if 1 in closed else b"{}\n")
        said = b"mala-context: the hook's input is no JSON: nothing archived\n" if 0 in closed else b""
        assert done.stderr == (b"" if 2 in closed else said)
        assert len(place.files()) == (0 not in closed)

    def test_a_reader_that_is_gone(self, place):
        read, write = os.pipe()
        os.close(read)
        command = [PYTHON, "-I", "-S", str(ROOT / "hooks/hook.py")]
        env = {"MALA_RUNS_DIR": str(place.runs)}
        data = json.dumps(place.given("PreCompact")).encode()
        done = subprocess.run(command, input=data, stdout=write, stderr=subprocess.PIPE, env=env, timeout=60)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")
        assert len(place.files()) == 1

    @pytest.mark.parametrize("event", EVENTS[:4])
    def test_a_runs_directory_that_is_none(self, place, event):
        place.runs.write_text("a file")
        done = place.run(place.given(event, trigger="auto", source="startup"))
        check_one_line(done, "mala-context: ")
        assert b"Error(" not in done.stderr
        assert event == "PostCompact" or b"MALA_RUNS_DIR" in done.stderr

    def test_a_full_disk(self, place):
        if not os.path.exists("/dev/full"):
            pytest.fail("this test needs /dev/full")
        import resource

        place.transcript.write_text(json.dumps(ROW) + "\n" + " " * 200_000 + "\n")
        done = place.run(
            place.given("PreCompact", trigger="auto"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        )
        check_one_line(done, "could not write")
        assert place.files() == []

    def test_no_package_beside_it(self, place, tmp_path):
        alone = tmp_path / "alone/hooks"
        alone.mkdir(parents=True)
        shutil.copy(ROOT / "hooks/hook.py", alone)
        check_one_line(place.run(place.given("PreCompact"), root=alone.parent), "No module named 'mala_context'")

    def test_an_old_python(self, place):
        old = "import sys, runpy; sys.version_info = (3, 8, 1); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
        check_one_line(place.run(place.given("PreCompact"), python=(PYTHON, "-I", "-S", "-c", old)), "3.8", "3.11")
        assert not place.runs.exists()

    def test_any_python_3_can_read_the_script(self):
        import ast

        ast.parse((ROOT / "hooks/hook.py").read_text(), feature_version=(3, 4))


class TestPlugin:
    def test_its_events_and_files(self):
        hooks = json.loads((ROOT / "hooks/hooks.json").read_text())["hooks"]
        assert list(hooks) == EVENTS
        for groups in hooks.values():
            (hook,) = groups[0]["hooks"]
            assert hook["command"].startswith('python3 -I -S "${CLAUDE_PLUGIN_ROOT}/hooks/hook.py"')
            assert hook["timeout"] <= 20
        assert json.loads((ROOT / ".claude-plugin/plugin.json").read_text())["name"] == "mala-context"

    def test_its_version_is_the_packages(self):
        import tomllib

        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert json.loads((ROOT / ".claude-plugin/plugin.json").read_text())["version"] == project["version"]

    def test_a_call_that_archives_nothing_loads_little(self, place):
        place.ask("PreCompact", trigger="auto")
        script = f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        script += "from mala_context.agent.claude_code.command_hooks import answer_hook; answer_hook((), os.environ)"
        values = {"MALA_RUNS_DIR": str(place.runs), "HOME": str(place.home)}
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-X", "importtime", "-c", script],
            input=json.dumps(place.given("PreCompact", trigger="auto")).encode(),
            env=values,
            capture_output=True,
            check=True,
        )
        loaded = {row.rpartition("|")[2].strip() for row in done.stderr.decode().splitlines()}
        assert "mala_context.archive.store" in loaded
        heavy = {
            "dataclasses",
            "typing",
            "logging",
            "yaml",
            "site",
            "pathlib",
            "subprocess",
            "mala_context.tracking.tracker",
        }
        assert not loaded & heavy


@pytest.mark.parametrize("event", EVENTS)
def test_a_pipe_that_stays_open_holds_no_hook_up(place, event):
    ours, theirs = os.pipe()
    os.write(theirs, json.dumps(place.given(event, trigger="auto")).encode())
    with os.fdopen(ours, "rb") as given:
        done = place.run(None, stdin=given, env={"MALA_WARN_AT": "0.5"})
    os.close(theirs)
    said = b"Compaction without PreCompact" if event == "PostCompact" else b""
    assert done.returncode == 0
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)
    answer = {"UserPromptSubmit": b"context window is", "PostCompact": UNDO}.get(event, b"{}\n")
    assert answer in done.stdout


@pytest.mark.parametrize("words", [["hook"], ["hook", "warn"], ["statusline"], ["statusline", "--json"]], ids=" ".join)
def test_a_pipe_that_stays_open_holds_no_installed_command_up(place, words):
    ours, theirs = os.pipe()
    os.write(theirs, json.dumps(place.given("PreCompact", trigger="auto")).encode())
    command = [os.path.join(os.path.dirname(sys.executable), "mala-context"), *words]
    env = {**os.environ, "MALA_RUNS_DIR": str(place.runs), "HOME": str(place.home)}
    with os.fdopen(ours, "rb") as given:
        done = subprocess.run(command, stdin=given, capture_output=True, env=env, cwd=place.repo, timeout=60)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"75%" in done.stdout or b"150000" in done.stdout or words[0] == "hook"
    assert len(place.files()) == (words == ["hook"])


@pytest.mark.parametrize("event", EVENTS)
def test_half_an_input_is_one_line_and_no_failure(place, event):
    ours, theirs = os.pipe()
    os.write(theirs, json.dumps(place.given(event)).encode()[:-5])
    with os.fdopen(ours, "rb") as given:
        warn = ["warn"] if event == "UserPromptSubmit" else []
        done = place.run(None, *warn, stdin=given, env={"MALA_WARN_AT": "0.5"})
    os.close(theirs)
    assert (done.returncode, done.stdout) == (0, b"{}\n")
    assert done.stderr == b"mala-context: the hook's input is not whole: nothing archived\n"
