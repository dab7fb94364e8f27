"""What the doctor looks at on a machine, place by place: what it finds there, and what it does not mind."""

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import pytest

from mala_context.analysis.doctor import examine, gather
from mala_context.analysis.doctor.facts import TranscriptFacts
from mala_context.analysis.doctor.gather import archives, places, transcripts
from mala_context.analysis.doctor.gather.archives import look, verified
from mala_context.archive.remote.bucket import Bucket
from mala_context.archive.source import CHUNK
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ObjectStoreError
from tests.helpers import s3_server
from tests.helpers.doctor_machine import FAULTS, OTHER, Machine, unknown_model
from tests.helpers.small_transcripts import SID, dump, message, session


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


class TestUnarchived:
    def test_a_known_session_is_caught_up(self, machine):
        machine.write(SID, session(4))
        (finding,) = machine.findings()
        assert finding.check == "unarchived"
        assert finding.commands[0][:3] == ("mala-context", "archives", "catch-up")
        assert finding.items == (str(machine.transcript),)

    def test_a_prompt_that_was_written_after_the_hook_is_no_loss(self, machine):
        rows = session(2)
        machine.archive.archive(machine.write(OTHER, rows[:3]), OTHER, trigger="auto")
        machine.write(OTHER, [*rows[:3], *rows[4:8]])
        assert machine.findings() == []

    def test_rows_of_a_fork_are_the_other_sessions(self, machine):
        machine.write(OTHER, [{**row, "forkedFrom": {"sessionId": SID}} for row in session(2)] + [message(90)])
        assert machine.findings() == []

    def test_no_more_is_read_than_was_asked_for(self, machine):
        machine.write(OTHER, session(1))
        facts = gather(str(machine.repo), env=machine.env, most_bytes=10)
        assert (facts.transcripts.files, facts.transcripts.searched) == (2, 0)
        assert (facts.verified.sessions, facts.verified.verified) == (1, 0)

    def test_odd_files_are_passed_over(self, machine):
        (machine.folder / "x.jsonl").symlink_to(machine.transcript)
        os.mkfifo(machine.folder / "pipe.jsonl")
        (machine.folder / "odd name!.jsonl").write_bytes(dump(session(1)))
        (machine.folder / "cut.jsonl").write_bytes(b'{"subtype": "compact_boundary"\n\xff\xfe{[[[')
        (finding,) = machine.findings()
        assert finding.items == (str(machine.folder / "odd name!.jsonl"),)

    def test_words_about_a_compaction_are_none(self, machine):
        machine.write(OTHER, [message(1, 'a row with "isCompactSummary" and one of subtype compact_boundary')])
        assert machine.findings() == []

    @pytest.mark.parametrize(("opening", "named"), [(0, True), (100, False)])
    def test_what_mends_names_the_directory_if_the_opening_does_and_it_is_there(self, machine, opening, named):
        rows = [message(number, cwd="/gone") for number in range(opening)]
        machine.write(OTHER, [*rows, *({**row, "cwd": str(machine.repo)} for row in session(1))])
        (finding,) = machine.findings()
        assert (f"--repo {machine.repo} " in finding.steps()[0]) is named

    def test_what_went_away_while_we_looked_is_no_loss(self, machine):
        found = transcripts.newest(machine.env)
        machine.transcript.unlink()
        assert transcripts.transcripts(found, [], lambda _: None, 1 << 20) == TranscriptFacts(1, 1, ())
        assert transcripts.models(found.paths, [], {}) == {}

    def test_an_archive_that_cannot_be_read_covers_nothing(self, machine):
        (machine.home / "file").write_text("")
        found = transcripts.newest(machine.env)
        (folder,) = transcripts.transcripts(found, [str(machine.home / "file")], lambda _: None, 1 << 20).unarchived
        assert (folder.transcripts, folder.compactions, folder.known) == ((str(machine.transcript),), 2, False)

    @pytest.mark.parametrize("within", [0, 1, 8, 15, 16])
    def test_a_mark_is_seen_across_the_ends_of_what_is_read_at_once(self, machine, within):
        start = dump([message(1, "x"), *session(1)]).find(b"compact_boundary")
        rows = [message(1, "x" * (CHUNK - start - within + 1)), *session(1)]
        assert dump(rows).find(b"compact_boundary") == CHUNK - within
        machine.write(OTHER, rows)
        assert machine.names() == ["unarchived"]


class TestVerified:
    def test_a_directory_that_is_none_is_damage_and_the_others_are_verified(self, machine):
        (machine.home / "file").write_text("")
        kept = [look(str(machine.home / "file")), look(machine.archive.location)]
        found = verified(kept, lambda _: None, 1 << 20)
        (damage,) = found.damaged
        assert damage.location == str(machine.home / "file")
        assert "it is not a directory" in damage.problems[0]
        assert (found.sessions, found.verified) == (1, 1)

    def test_a_directory_that_went_away_while_we_looked_is_damage(self, machine):
        place = machine.archive.location
        kept = [look(place)]
        shutil.rmtree(place)
        pathlib.Path(place).write_text("")
        (damage,) = verified(kept, lambda _: None, 1 << 20).damaged
        assert damage.location == place
        assert "it is not a directory" in damage.problems[0]

    def test_a_disk_that_fails_is_said_as_it_says_itself(self, machine, monkeypatch):
        def fail(*_, **__):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(TranscriptArchive, "sessions", fail)
        found = {finding.check: finding for finding in machine.findings()}
        assert found["verify"].items == (f"[Errno {errno.EIO}] Input/output error",)
        assert found["verify"].where == machine.archive.location


class TestVeryMany:
    """Of very much the newest is looked at, and what was left out is said."""

    @pytest.fixture
    def fill(self, machine, monkeypatch):
        """Return a function that makes sessions up to a number; the doctor looks at ten of each kind."""
        for module, name in ((archives, "MOST_SESSIONS"), (places, "MOST_IN_ONE"), (transcripts, "MOST_FILES")):
            monkeypatch.setattr(module, name, 10)
        monkeypatch.setattr("mala_context.archive.directory_cache.SHARE", 1_000_000)
        data, (piece,) = machine.transcript.read_bytes(), machine.pieces
        manifest = (piece.parent / f"{SID}.manifest.jsonl").read_bytes()

        def up_to(count):
            for number in range(count):
                other = f"{SID[:-12]}{number:012d}"
                names = (machine.folder / f"{other}.jsonl", data), (piece.parent / piece.name.replace(SID, other), data)
                for path, text in (*names, (piece.parent / f"{other}.manifest.jsonl", manifest)):
                    path.write_bytes(text.replace(SID.encode(), other.encode()) if text is manifest else text)
                    path.chmod(0o600)
                    os.utime(path, (10**9 + number, 10**9 + number))

        return up_to

    def test_the_newest_are_looked_at_and_the_words_say_so(self, machine, fill):
        fill(60)
        checked = {each.check.name: each for each in examine(gather(str(machine.repo), env=machine.env))}
        assert checked["unarchived"].words == "each compaction of 61 transcripts, the newest 10 searched"
        assert checked["verify"].words.startswith("the newest 10 of 61 sessions verified")
        assert checked["readable"].words.endswith(", by 10 files; there are more")  # the CLI's own folder is shut
        assert "archives take about " in checked["space"].words

    def test_damage_among_the_newest_is_found(self, machine, fill):
        fill(60)
        damaged = next(each for each in machine.pieces if "000000000059" in each.name)
        damaged.write_bytes(b"X" + damaged.read_bytes()[1:])
        (finding,) = machine.findings()
        assert (finding.check, finding.items) == ("verify", (f"{damaged}: the piece is not what its hash says",))

    def test_no_more_is_opened_for_ten_times_as_many(self, machine, fill, monkeypatch):
        opened = []
        real = os.open
        monkeypatch.setattr(os, "open", lambda path, *more, **by: opened.append(path) or real(path, *more, **by))
        counts = []
        for many in (40, 200):
            fill(many)
            opened.clear()
            gather(str(machine.repo), env=machine.env)
            counts.append(len(opened))
        assert counts[0] == counts[1]

    def test_a_folder_with_very_many_does_not_keep_others_from_being_looked_at(self, machine, fill):
        fill(60)
        other = machine.folder.with_name("-home-dev-other")
        other.mkdir(mode=0o700)
        (other / f"{OTHER}.jsonl").write_bytes(dump(session(1)))
        os.utime(other / f"{OTHER}.jsonl", (2 * 10**9, 2 * 10**9))
        (finding,) = machine.findings()
        assert (finding.check, finding.where) == ("unarchived", str(other))


class TestReadable:
    def test_a_transcript_that_others_can_come_to(self, machine):
        machine.transcript.chmod(0o644)
        assert machine.names() == []  # its folder is shut
        machine.folder.chmod(0o755)
        assert machine.names() == []  # so is the one above
        (machine.claude / "projects").chmod(0o711)
        (finding,) = machine.findings()
        assert (finding.check, finding.where) == ("readable", str(machine.claude / "projects"))
        assert finding.items == (f"{machine.transcript} (0644)",)

    def test_a_stray_copy_among_the_archives(self, machine):
        copy = machine.pieces[0].parent / "old_copy.jsonl"
        copy.write_text("{}\n")
        copy.chmod(0o640)
        (finding,) = machine.findings()
        assert finding.items == (f"{copy} (0640)",)


class TestPlaces:
    def test_an_archives_directory_that_others_can_enter_is_reported_and_left_as_it_is(self, machine):
        directory = machine.pieces[0].parent
        directory.chmod(0o755)
        (finding,) = machine.findings()
        assert (finding.check, finding.where) == ("permissions", str(directory))
        assert directory.stat().st_mode & 0o777 == 0o755

    def test_nothing_else_is_written(self, machine):
        def state():
            return {
                str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_size)
                for path in machine.home.rglob("*")
            }

        for fault in FAULTS.values():
            fault(machine)
        before = state()
        assert machine.findings()
        assert state() == before

    def test_a_file_in_the_way(self, machine):
        (machine.home / "file").write_text("")
        machine.env["MALA_RUNS_DIR"] = str(machine.home / "file" / "runs")
        assert {finding.check for finding in machine.findings()} == {"runs", "unarchived"}

    def test_no_place_at_all(self, machine):
        machine.env["HOME"] = "/nowhere"
        claude, runs = machine.findings()
        assert (claude.check, claude.where) == ("claude", "/nowhere")
        assert (runs.check, runs.where) == ("runs", "MALA_RUNS_DIR")

    def test_a_link_in_place_of_an_archive_is_no_archive(self, machine):
        (machine.runs / "-other").mkdir(mode=0o700)
        (machine.runs / "-other" / "archives").symlink_to("/etc")
        assert machine.findings() == []

    def test_the_archive_that_mala_yaml_names(self, machine):
        (machine.repo / "mala.yaml").write_text("context:\n  archive:\n    directory: kept\n")
        own = TranscriptArchive(directory=machine.repo / "kept")
        own.archive(machine.write(OTHER, session(1)), OTHER, trigger="auto")
        assert machine.findings() == []

    def test_growth_is_that_of_the_manifests_times(self, machine):
        facts = gather(str(machine.repo), env=machine.env)
        assert facts.space.per_day == machine.pieces[0].stat().st_size
        assert facts.space.stored == sum(each.stat().st_size for each in machine.pieces[0].parent.iterdir())
        assert facts.space.free > 0


class TestClaudeDirectory:
    """Where Claude Code keeps its files, and what keeps it from it: a finding each, and never the end of the doctor."""

    @pytest.mark.parametrize(
        ("variables", "words"),
        [
            ({"HOME": "/nowhere"}, "'/nowhere' is no home directory"),
            ({"HOME": ""}, "'' is no home directory"),
            ({"HOME": "rel"}, "'rel' is no home directory"),
            ({"HOME": "/"}, "'/' is no home directory"),
            ({"HOME": "FILE"}, "FILE' is no home directory"),
            ({"CLAUDE_CONFIG_DIR": "FILE"}, "FILE is no directory"),
            ({"CLAUDE_CONFIG_DIR": "FILE/below"}, "FILE is no directory"),
            ({"CLAUDE_CONFIG_DIR": "rel"}, "'rel' is a relative path"),
        ],
    )
    def test_no_place_for_it(self, machine, variables, words):
        file = str(machine.home / "file")
        (machine.home / "file").write_text("")
        machine.env |= {"MALA_RUNS_DIR": str(machine.runs)}
        machine.env |= {name: value.replace("FILE", file) for name, value in variables.items()}
        (finding,) = [each for each in machine.findings() if each.check != "unarchived"]
        assert (finding.check, finding.severity) == ("claude", "error")
        assert words.replace("FILE", file) in finding.found

    def test_no_home_at_all(self, machine, monkeypatch):
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
        del machine.env["HOME"]
        claude, runs = machine.findings()
        assert (claude.where, runs.where) == ("HOME", "MALA_RUNS_DIR")
        assert "it is not set" in claude.found

    def test_one_that_is_not_there_yet_is_made_by_the_cli(self, machine):
        machine.env["CLAUDE_CONFIG_DIR"] = str(machine.home / "new" / "claude")
        assert machine.findings() == []

    def test_a_file_in_place_of_the_projects(self, machine):
        shutil.rmtree(machine.claude / "projects")
        (machine.claude / "projects").write_text("")
        (finding,) = machine.findings()
        assert (finding.check, finding.where) == ("claude", str(machine.claude))
        assert f"{machine.claude}/projects is no directory" in finding.found

    def test_no_projects_yet(self, machine):
        shutil.rmtree(machine.claude / "projects")
        assert machine.findings() == []

    @pytest.mark.parametrize("missing", [os.R_OK, os.W_OK | os.X_OK], ids=["to read", "to write"])
    def test_one_that_we_may_not_use(self, machine, monkeypatch, missing):
        projects, access = str(machine.claude / "projects"), os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode, **more: not (path == projects and mode & missing) and access(path, mode)
        )
        (finding,) = machine.findings()
        assert finding.check == "claude"
        assert f"{projects} cannot be {'read' if missing == os.R_OK else 'written to'}" in finding.found

    def test_without_a_repository_to_ask_about_it_is_that_of_here(self, machine):
        machine.env["HOME"] = "/nowhere"
        done = subprocess.run(
            [sys.executable, "-m", "mala_context.cli", "doctor", "--no-session", "--json"],
            env=machine.env,
            cwd=machine.repo,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, "")
        report = json.loads(done.stdout)
        assert report["repo"] == str(machine.repo)
        assert [each["check"] for each in report["findings"]] == ["claude", "runs"]


class TestConfigurations:
    @pytest.mark.parametrize("kind", ["directory", "pipe", "dangling link", "bytes"])
    def test_a_mala_yaml_that_cannot_be_read(self, machine, kind):
        path = machine.repo / "mala.yaml"
        makers = {
            "directory": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
            "dangling link": lambda: path.symlink_to("/nowhere"),
            "bytes": lambda: path.write_bytes(b"\xff"),
        }
        makers[kind]()
        (finding,) = machine.findings()
        assert (finding.check, finding.where) == ("config", str(path))
        assert "cannot be read" in finding.items[0]

    def test_one_that_we_may_not_read(self, machine, monkeypatch):
        path = machine.repo / "mala.yaml"
        path.write_text("")

        def refuse(*_):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr("mala_context.config.reading.read_regular", refuse)
        (finding,) = machine.findings()
        assert finding.items == ("cannot be read: Permission denied",)


class TestObjectStore:
    """The store that `archive.directory` names: reached, written to, and none of it shown."""

    @pytest.fixture
    def stored(self, machine, monkeypatch):
        """Return a function from an address to the findings."""
        for name, value in s3_server.environment(1).items():  # nobody listens there
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("mala_context.archive.remote.bucket.RETRIES", 0)

        def name_it(address):
            (machine.repo / "mala.yaml").write_text(f"context: {{archive: {{directory: '{address}'}}}}")
            return machine.findings()

        return name_it

    def test_one_that_takes_what_it_is_sent(self, stored, machine, tmp_path):
        assert stored(f"file://{tmp_path}/there") == []
        assert [path for path in (tmp_path / "there").rglob("*") if path.is_file()] == []
        (there,) = gather(str(machine.repo), env=machine.env).stores
        assert there.address.startswith(f"file://{tmp_path}/there/")

    def test_none_is_named(self, machine):
        assert gather(str(machine.repo), env=machine.env).stores == ()

    def test_nobody_answers(self, stored):
        (finding,) = stored("s3://bucket/prefix")
        assert (finding.check, finding.severity, finding.where) == ("object-store", "error", "s3://bucket/prefix")
        assert "it cannot be reached" in finding.found
        assert s3_server.SECRET not in repr(finding)
        assert s3_server.KEY_ID not in repr(finding)

    def test_its_library_is_not_there(self, stored, monkeypatch):
        monkeypatch.setitem(sys.modules, "obstore", None)
        (finding,) = stored("memory://x")
        assert "obstore is not installed" in finding.found
        assert finding.fix.startswith("pip install 'mala-context[objects]'")

    def test_it_never_answers(self, stored, monkeypatch, machine):
        silent = threading.Event()
        monkeypatch.setattr(Bucket, "put", lambda *_: silent.wait(60))
        monkeypatch.setattr(archives.stores, "__defaults__", (0.05,))
        (finding,) = stored("memory://x")
        silent.set()
        assert "it does not answer within 0.05 s" in finding.found

    def test_what_it_gives_back_is_something_else(self, stored, monkeypatch):
        monkeypatch.setattr(Bucket, "read", lambda *_: b"else")
        (finding,) = stored("memory://x")
        assert "cannot be read back" in finding.found

    def test_whoever_may_remove_nothing_may_archive(self, stored, monkeypatch):
        def refuse(bucket, name):
            raise ObjectStoreError(bucket.base, "these credentials may not do that")

        monkeypatch.setattr(Bucket, "remove", refuse)
        assert stored("memory://x") == []

    def test_no_place_to_upload_from(self, stored, machine):
        machine.env["HOME"] = "/nowhere"
        found = {finding.check: finding for finding in stored("memory://x")}
        assert "no home directory" in found["object-store"].found


class TestSettings:
    def test_the_strongest_file_counts(self, machine):
        machine.set(autoCompactEnabled=False)
        assert machine.names() == ["compaction"]
        (machine.repo / ".claude" / "settings.json").write_text('{"autoCompactEnabled": true}')
        assert machine.names() == []

    def test_the_global_file(self, machine):
        (machine.home / ".claude.json").write_text('{"autoCompactEnabled": false}')
        (finding,) = machine.findings()
        assert finding.where == str(machine.home / ".claude.json")

    @pytest.mark.parametrize("text", ["[]", "\x00", "[" * 100_000, '{"a": 1', "\udcff"])
    def test_files_that_are_no_settings(self, machine, text):
        machine.settings.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert machine.names() == ["settings"]

    def test_an_empty_file_says_nothing(self, machine):
        machine.settings.write_text("")
        assert machine.names() == []

    def test_a_variable(self, machine):
        machine.env["DISABLE_COMPACT"] = "true"
        (finding,) = machine.findings()
        assert finding.where == "$DISABLE_COMPACT"

    def test_managed_settings(self, machine, tmp_path):
        from mala_context.analysis.doctor.gather.settings import files

        parts = tmp_path / "managed" / "managed-settings.d"
        parts.mkdir(parents=True)
        (parts / "10.json").write_text('{"a": 1}')
        (parts / "20.json").write_text('{"a": 2}')
        (parts.parent / "managed-settings.json").write_text('{"a": 0}')
        found = files(str(machine.repo), machine.env, str(parts.parent))
        assert [each.values.get("a") for each in found if each.source == "managed"] == [2, 1, 0]


class TestModels:
    def test_those_that_answered(self, machine):
        rows = session(2)
        rows[1]["message"]["model"] = "glm-5"
        rows[3]["message"]["model"] = "<synthetic>"
        machine.transcript.write_bytes(dump(rows))
        (finding,) = machine.findings()
        assert (finding.check, finding.items, finding.where) == (
            "models",
            (f"glm-5 ({machine.transcript})",),
            str(machine.transcript),
        )

    def test_the_environments(self, machine):
        machine.env["ANTHROPIC_MODEL"] = "glm-9-air"
        (finding,) = machine.findings()
        assert (finding.check, finding.items, finding.where) == (
            "models",
            ("glm-9-air ($ANTHROPIC_MODEL)",),
            "$ANTHROPIC_MODEL",
        )

    def test_a_configured_window_is_no_guess(self, machine):
        unknown_model(machine)
        (machine.repo / "mala.yaml").write_text("context:\n  window: 100000\n")
        assert machine.names() == []


class TestSDK:
    def test_its_version(self):
        from claude_agent_sdk import __version__

        from mala_context.analysis.doctor.gather import programs

        assert programs.sdk_version() == __version__

    def test_one_that_no_installer_knows(self, monkeypatch):
        from mala_context.analysis.doctor.gather import programs

        def unknown(name):
            raise programs.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(programs.metadata, "version", unknown)
        assert programs.sdk_version() is None


class TestPrograms:
    @pytest.mark.parametrize("body", ["exit 3", "echo nothing", "echo broken >&2; exit 1"])
    def test_one_that_does_not_run(self, machine, body):
        program = machine.bin / "claude"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        (finding,) = machine.findings()
        assert (finding.check, finding.where) == ("cli", str(program))

    def test_one_below_the_home(self, machine, monkeypatch):
        from mala_context.analysis.doctor.gather import programs

        place = machine.home / ".claude" / "local"
        place.mkdir()
        (place / "claude").write_text("#!/bin/sh\necho 2.1.0\n")
        (place / "claude").chmod(0o755)
        machine.env["PATH"] = "/nowhere"
        found = programs.programs(machine.env)
        assert (found[-1].path, found[-1].version, found[-1].source) == (str(place / "claude"), "2.1.0", "installed")

    def test_one_that_hangs(self, machine, monkeypatch):
        from mala_context.analysis.doctor.gather import programs

        monkeypatch.setattr(programs, "SECONDS", 0.2)
        (machine.bin / "claude").write_text("#!/bin/sh\nexec sleep 60\n")
        (machine.bin / "claude").chmod(0o755)
        found = {each.source: each for each in programs.programs(machine.env)}
        assert "printed no version within" in found["on PATH"].error
