"""`mala-context archives`: each command, its exit status, and what it does to a terminal."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mala_context._util.text import printable
from mala_context.archive.store import TranscriptArchive
from mala_context.cli import progress
from mala_context.cli.app import app
from mala_context.cli.archives.common import complete_archived
from tests.helpers.small_transcripts import SID, boundary, dump, message, session, summary
from tests.helpers.terminals import without_codes

OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


class World:
    def __init__(self, tmp_path, monkeypatch):
        monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
        self.repo = tmp_path / "repo"
        (self.repo / "deep").mkdir(parents=True)
        monkeypatch.chdir(self.repo / "deep")
        self.folder = tmp_path / "claude" / "projects" / "-home-dev-project"
        self.folder.mkdir(parents=True)
        self.transcript = self.folder / f"{SID}.jsonl"
        self.archive = TranscriptArchive(repo_path=self.repo)

    def write(self, rows, session_id=SID, **fields):
        path = self.folder / f"{session_id}.jsonl"
        path.write_bytes(dump(rows))
        return self.archive.archive(path, session_id, **{"trigger": "auto", "agent": "main", **fields})

    def run(self, *arguments, status=0):
        result = CliRunner().invoke(app, ["archives", *(str(each) for each in arguments)])
        assert result.exit_code == status, (result.output, result.exception)
        return result

    def json(self, *arguments, status=0):
        return json.loads(self.run(*arguments, "--json", status=status).stdout)


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.write(session(1)[:4], tokens=180_000)
    world.archive.record_outcome(SID, "compacted", tokens_before=183_021, tokens_after=24_310, agent="main")
    world.write(session(2))
    return world


# list


def test_list(world):
    text = world.run("list").stdout
    assert SID in text
    assert "183,021 → 24,310" in text
    assert "compacted" in text
    assert max(len(line) for line in text.splitlines()[1:]) <= 80
    (archive,) = world.json("list")
    (found,) = archive["sessions"]
    assert [piece["trigger"] for piece in found["pieces"]] == ["auto", "auto"]
    assert found["pieces"][0]["outcome"] == "compacted"
    assert found["pieces"][1]["outcome"] is None
    assert found["stored"] == sum(file.stat().st_size for file in pathlib.Path(world.archive.location).iterdir())


def test_list_all_repositories(world, tmp_path):
    (tmp_path / "second").mkdir()
    other = TranscriptArchive(repo_path=tmp_path / "second")
    other.archive(world.transcript, OTHER)
    found = world.json("list", "--all")
    assert {each["repo"] for each in found} == {str(world.repo), str(tmp_path / "second")}
    assert OTHER in world.run("list", "--repo", tmp_path / "second").stdout
    assert OTHER in world.run("list", "--dir", other.location).stdout
    assert OTHER not in world.run("list").stdout


def test_list_of_nothing(world, tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "none"))
    assert world.run("list").stdout == "no archives\n"
    assert "0 sessions" in world.run("list", "--repo", world.repo).stdout
    assert world.json("list", "--all") == []
    assert "no archives" in world.run("list", "--all").stdout
    assert not (tmp_path / "none").exists()


# show, cat


def test_show(world):
    text = world.run("show", SID).stdout
    assert "[2026-11-01T12:00:01.000Z]\n> message 1\n" in text
    assert "════ compaction 2 (auto, 180,000 → 20,000 tokens" in text
    rows = [json.loads(line) for line in world.run("show", SID, "--json").stdout.splitlines()]
    assert [row["text"] for row in rows if row["kind"] == "user"][:2] == ["message 1", "message 3"]
    assert [row["number"] for row in rows if row["kind"] == "compaction"] == [1, 2]


def test_show_a_part(world):
    assert "message 5" not in world.run("show", SID, "--dropped-by", 1).stdout
    text = world.run("show", SID, "--dropped-by", 2).stdout
    assert "message 1\n" not in text
    assert "message 8" in text
    text = world.run("show", SID, "--before", "2026-11-01T12:00:03Z").stdout
    assert "message 2\n" in text
    assert "message 3\n" not in text


@pytest.mark.parametrize(
    ("command", "doing"),
    [
        (["show", SID, "--dropped-by", 2], "looking: ━"),
        (["show", SID, "--before", "2026-11-01T12:00:03Z"], "looking: ━"),
        (["cat", SID, "--dropped-by", 1], "looking: ━"),
        (["lost", SID], "measuring: ━"),
        (["restore", SID], "reading: ━"),
    ],
)
def test_long_work_shows_how_far_it_is(world, monkeypatch, command, doing):
    for name, value in (("PATIENCE", 0.0), ("_PAUSE", 0.0), ("can_redraw", lambda stream: True)):
        monkeypatch.setattr(progress, name, value)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = without_codes(world.run(*command).stderr)
    assert doing in shown
    assert " of " in shown


def test_show_is_safe_on_a_terminal(world):
    hostile = "\x1b]0;title\x07 \x1b[2J \u202egnp.exe \x9b31m \ud800 \u2028 \r\x08"
    blocks = [
        {"type": "text", "text": hostile},
        {"type": "tool_use", "name": "Bash\x1b[1m", "input": {"command": hostile}},
        {"type": "tool_result", "content": [{"type": "text", "text": hostile}]},
        {"type": "thinking", "thinking": hostile},
        {"type": "\x1b[5m"},
    ]
    rows = [message(1, blocks), boundary(2, timestamp=hostile, compactMetadata={"trigger": hostile}), summary(3)]
    world.write(rows, OTHER)
    for command in (["show", OTHER], ["show", OTHER, "--full"], ["list"]):
        text = world.run(*command).stdout
        assert all(c.isprintable() or c == "\n" for c in text), command
    assert "\\x1b[2J" in world.run("show", OTHER).stdout
    assert world.run("show", OTHER, "--json").stdout.isascii()


def test_hostile_words_in_a_manifest(world):
    world.archive.record_outcome(SID, "failed", error="\x1b[31mred", agent="\x1b[2J", trigger="auto")
    manifest = pathlib.Path(world.archive.location, f"{SID}.manifest.jsonl")
    with manifest.open("a") as file:
        file.write('{"row":"piece","name":"\\u001b[2J","trigger":"\\u001b[2J"}\n')
    for command, status in ((["list"], 0), (["verify"], 1)):
        assert "\x1b" not in world.run(*command, status=status).output


def test_cat_is_the_transcript(world):
    assert world.run("cat", SID).stdout_bytes == world.transcript.read_bytes()
    assert world.run("cat", SID[:6]).stdout_bytes == world.transcript.read_bytes()
    world.run("pack")
    assert world.run("cat", SID).stdout_bytes == world.transcript.read_bytes()


def test_cat_what_one_compaction_discarded(world):
    data = dump(session(2))
    parts = [world.run("cat", SID, "--dropped-by", n).stdout_bytes for n in (1, 2)]
    assert parts[0] == dump(session(2)[:4])
    assert parts[1] == dump(session(2)[4:10])
    assert data.startswith(b"".join(parts))
    assert "it was compacted 2 times" in world.run("cat", SID, "--dropped-by", 3, status=3).stderr


def test_cat_of_a_subagent_and_of_a_chain(world):
    world.archive.archive(world.transcript, SID, subagent="a1")
    world.write([message(99)])
    assert world.run("cat", SID).stdout_bytes == dump([message(99)])
    assert world.run("cat", SID, "--chain", 1).stdout_bytes == dump(session(2))
    assert world.run("cat", SID, "--agent", "a1").stdout_bytes == dump(session(2))
    world.run("cat", SID, "--agent", "b2", status=3)


def test_cat_of_damage_says_so(world):
    piece = pathlib.Path(world.archive.location, world.archive.pieces(SID)[0].name)
    piece.write_bytes(b"X" + piece.read_bytes()[1:])
    assert "verify" in world.run("cat", SID, status=1).stderr
    assert len(world.run("cat", SID, "--salvage").stdout_bytes) == world.transcript.stat().st_size


# verify


def test_verify(world):
    assert "sound" in world.run("verify").stdout
    (report,) = world.json("verify", SID)
    assert report["ok"]
    assert report["problems"] == []
    piece = pathlib.Path(world.archive.location, world.archive.pieces(SID)[0].name)
    piece.chmod(0o644)
    assert "WRONG" in world.run("verify", status=1).stdout
    assert "fixed" in world.run("verify", "--repair").stdout
    assert "sound" in world.run("verify", "--all").stdout
    piece.write_bytes(b"X" + piece.read_bytes()[1:])
    assert world.json("verify", "--repair", status=1)[0]["problems"][0]["kind"] == "hash"


# restore


@pytest.mark.parametrize("deleted", [False, True])
def test_restore(deleted, world):
    if deleted:
        world.transcript.unlink()
    found = world.json("restore", SID, "--at", 1)
    assert found["rows"] == 4
    assert found["compaction"]["number"] == 1
    assert (world.folder / f"{found['session_id']}.jsonl").exists()
    text = world.run("restore", SID, "--before", "2026-11-01T12:00:03Z").stdout
    assert text.splitlines()[-1].startswith("cd /home/dev/project && claude --resume ")
    assert "missing:  /home/dev/project (its working directory" in text
    assert "no compaction 9" in world.run("restore", SID, "--at", 9, status=3).stderr
    world.run("restore", SID, "--at", 0, status=2)
    assert "exclude" in world.run("restore", SID, "--at", 1, "--before", "2026-01-01", status=2).stderr
    world.run("restore", SID, "--before", "soon", status=2)


def test_restore_without_writing(world):
    before = set(world.folder.parent.rglob("*"))
    text = world.run("restore", SID, "--at", 1, "--dry-run").stdout
    assert text.startswith(f"Would restore {SID} as it was before compaction 1")
    assert f"in {world.folder.parent}" in text
    assert "claude --resume" not in text
    found = world.json("restore", SID, "--dry-run")
    assert (found["dry_run"], found["session_id"], found["command"]) == (True, "*", "")
    assert set(world.folder.parent.rglob("*")) == before


def test_restore_says_how_many_subagents_came_with_it(world):
    world.write([message(1, toolUseResult={"agentId": "a1"}), boundary(2)], OTHER)
    beside = world.folder / OTHER / "subagents"
    beside.mkdir(parents=True)
    (beside / "agent-a1.jsonl").write_bytes(dump([message(1)]))
    assert "\nwith the transcripts of 1 subagent\n" in world.run("restore", OTHER).stdout
    found = world.json("restore", OTHER)
    assert found["subagents"] == [f"{world.folder}/{found['session_id']}/subagents/agent-a1.jsonl"]


def test_restore_names_what_is_missing(world):
    gone = f"{world.folder}/{OTHER}/tool-results/x.txt"
    world.write([message(1, f"saved to: {gone}\n"), boundary(2)], OTHER)
    assert f"missing:  {gone}" in world.run("restore", OTHER).stdout


def test_restore_says_what_it_put_back(world):
    kept = world.folder / OTHER / "tool-results" / "x.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("the whole result")
    world.write([message(1, f"saved to: {kept}\n"), boundary(2)], OTHER)
    world.archive.archive_side_files(str(world.folder / f"{OTHER}.jsonl"), OTHER)
    kept.unlink()
    assert f"put back: {kept}" in world.run("restore", OTHER).stdout
    assert kept.read_text() == "the whole result"


# prune, catch-up, pack


def test_sessions_of_several_archives_are_not_removed_in_one_go(world, tmp_path, monkeypatch):
    elsewhere = TranscriptArchive(repo_path=tmp_path / "elsewhere")
    elsewhere.archive(world.transcript, OTHER, trigger="auto", agent="main")
    monkeypatch.chdir(tmp_path)
    assert "in several archives" in world.run("prune", SID, OTHER, "--yes", status=2).stderr
    assert len(world.archive.sessions()) == len(elsewhere.sessions()) == 1


def test_a_session_that_is_being_written_to_is_kept(world):
    world.write(session(0), OTHER)
    with world.archive.store(create=False).lock(OTHER, 1.0):
        text = world.run("prune", "--sessions", 0, "--yes").stdout
    assert f"kept {OTHER}: it is being written to" in text
    assert OTHER in {each.session_id for each in world.archive.sessions()}


def test_prune_is_dry_and_spares_the_only_copy(world):
    world.write(session(0), OTHER)
    world.transcript.unlink()
    text = world.run("prune", "--sessions", 0).stdout
    assert f"would remove {OTHER}" in text
    assert f"kept {SID}: its transcript is gone" in text
    assert len(world.archive.sessions()) == 2
    found = world.json("prune", "--sessions", 0, "--yes")
    assert found["removed"] == [OTHER]
    assert [each.session_id for each in world.archive.sessions()] == [SID]
    assert world.json("prune", SID, "--yes")["removed"] == [SID]
    assert world.archive.sessions() == []


def test_prune_wants_a_limit(world):
    assert "limit" in world.run("prune", status=2).stderr
    assert "500MB" in world.run("prune", "--bytes", "much", status=2).stderr


def test_catch_up(world):
    world.transcript.write_bytes(dump(session(3)))
    assert "1 of 1" in world.run("catch-up").stdout
    assert world.run("cat", SID).stdout_bytes == world.transcript.read_bytes()
    assert world.json("catch-up") == []


def test_catch_up_follows_the_repositorys_configuration(world):
    (world.repo / "mala.yaml").write_text("context:\n  archive:\n    enabled: false\n")
    assert "switches the archive off" in world.run("catch-up", status=3).stderr
    (world.repo / "mala.yaml").write_text("context:\n  archive:\n    mode: full\n")
    world.transcript.write_bytes(dump(session(3)))
    world.run("catch-up")
    assert world.archive.pieces(SID)[-1].mode == "full"


def test_catch_up_is_of_one_archive(world):
    assert "exclude each other" in world.run("catch-up", "--repo", world.repo, "--dir", world.repo, status=2).stderr
    world.transcript.write_bytes(dump(session(3)))
    assert "1 of 1" in world.run("catch-up", "--dir", world.archive.location).stdout


def test_pack(world):
    assert world.json("pack", SID)["saved"] > 0
    assert all(piece.packed for piece in world.archive.pieces(SID))
    assert "0 B saved" in world.run("pack").stdout


# export, import


def test_export(world, tmp_path):
    target = tmp_path / "out.jsonl"
    assert str(target) in world.run("export", SID, target).stdout
    assert target.read_bytes() == world.transcript.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    assert "exists" in world.run("export", SID, target, status=3).stderr
    world.write([message(1, "key AKIAIOSFODNN7EXAMPLE")], OTHER)
    assert world.json("export", OTHER, tmp_path / "masked", "--redact")["redacted"] == 1
    assert b"AKIA" not in (tmp_path / "masked").read_bytes()


def test_import(world, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / f"{OTHER}_1_transcript.jsonl").write_bytes(dump(session(0)))
    assert "would be archived" in world.run("import", copies, "--remove").stdout
    assert "1 verified" in world.run("import", copies).stdout
    assert "there already" in world.run("import", copies, "--remove").stdout
    assert len(list(copies.iterdir())) == 1
    assert world.json("import", copies, "--remove", "--yes")[0]["removed"]
    assert list(copies.iterdir()) == []
    assert world.run("cat", OTHER).stdout_bytes == dump(session(0))
    (copies / "nobody.jsonl").write_text("no rows")
    world.run("import", copies, status=1)


def test_import_of_a_directory_without_transcripts_is_no_success(world, tmp_path):
    """The projects directory itself, say: its folders hold the transcripts."""
    assert "no transcript directly in" in world.run("import", tmp_path / "claude" / "projects", status=3).stderr


# which archive, which session


def test_a_session_is_found_in_any_archive(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert world.run("cat", SID[:8]).stdout_bytes == world.transcript.read_bytes()
    world.run("cat", SID, "--repo", tmp_path, status=3)


def test_what_is_not_there(world):
    assert "no archive of session zzz" in world.run("cat", "zzz", status=3).stderr
    assert "cannot name a file" in world.run("cat", "../x", status=3).stderr
    assert "\x1b" not in world.run("cat", "\x1b[2J", status=3).output
    world.write(session(0), SID[:4] + "ffff")
    assert "2 sessions begin with" in world.run("cat", SID[:4], status=2).stderr
    assert "exclude" in world.run("list", "--repo", ".", "--dir", ".", status=2).stderr


def test_an_archive_that_is_no_directory(world, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(world.archive.location)
    assert "not a directory" in world.run("list", "--dir", tmp_path / "link", status=3).stderr.replace(
        "it is a symbolic link", "not a directory"
    )
    world.run("list", "--dir", tmp_path / "file", status=2)


# text and progress


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain é 😀", "plain é 😀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\u202e\u2066\u200f", "\\u202e\\u2066\\u200f"),
        ("\U000e0041", "\\U000e0041"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("\ud800", "\\ud800"),
    ],
)
def test_printable(text, safe):
    assert printable(text) == safe


def test_lines_stay_where_they_are_wanted():
    assert printable("a\nb\tc\r\x1b", lines=True) == "a\nb\tc\\x0d\\x1b"


# as a process


def process(*arguments, **how):
    return subprocess.run(
        [sys.executable, "-m", "mala_context.cli", "archives", *arguments], capture_output=True, timeout=60, **how
    )


def test_as_a_process(world):
    done = process("cat", SID)
    assert (done.returncode, done.stdout, done.stderr) == (0, world.transcript.read_bytes(), b"")
    assert process("cat", "nobody").returncode == 3
    assert process("export").returncode == 2
    assert b"catch-up" in process("--help").stdout


def on_a_terminal(*arguments, **env):
    """Run a command whose standard output is a terminal; return its status and what the terminal was sent."""
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "mala_context.cli", "archives", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **env},
    ) as running:
        os.close(theirs)
        sent = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not data:
                break
            sent += data
        os.close(ours)
        return running.wait(60), sent


def test_a_terminal_gets_pages_and_no_control_characters(world, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    path = tmp_path / "raw.txt"
    path.write_bytes(b"no json \x1b[2J\n" + dump([message(1, "\x1b]0;title\x07")]))
    world.archive.archive(path, OTHER)
    status, sent = on_a_terminal("show", OTHER, PAGER=str(pager), TERM="xterm")
    assert status == 0
    assert b"PAGED" in sent
    assert b"\\x1b]0;title\\x07" in sent
    assert b"\x1b]" not in sent
    status, sent = on_a_terminal("cat", OTHER, TERM="xterm")
    assert status == 0
    assert b"no json \\x1b[2J" in sent
    assert b"\x1b[2J" not in sent


@pytest.fixture
def long_row(world, tmp_path):
    path = tmp_path / "raw.txt"
    words = "é words\x1b[2J " * 400_000
    path.write_bytes(dump([message(1, "before"), message(2, words), message(3, "behind")]))
    world.archive.archive(path, OTHER)
    return path


def test_of_a_long_row_the_beginning_is_shown_and_the_rest_counted(world, long_row):
    shown = world.run("show", OTHER, "--full").stdout
    assert "> before" in shown
    assert "> é words\\x1b[2J" in shown
    assert "MB of a row too long to be shown; `archives cat` has all of it" in shown
    assert "> behind" in shown
    assert len(shown) < 100_000
    said = [json.loads(line) for line in world.run("show", OTHER, "--json").stdout.splitlines()]
    assert [each["kind"] for each in said] == ["user", "user", "left_out", "user"]
    row = long_row.read_bytes().splitlines()[1]
    assert len(row) - 70_000 < said[2]["bytes"] < len(row)


def test_a_long_row_on_a_terminal(world, long_row):
    status, sent = on_a_terminal("cat", OTHER, TERM="xterm")
    assert status == 0
    assert sent.replace(b"\r\n", b"\n") == long_row.read_bytes()  # which JSON spelt out already


def test_an_export_says_what_it_left_out(world, tmp_path):
    words = ["words " * 3_000_000, "[[]," + "[]," * 2_000_000 + "[]]"]
    rows = [dump([message(n, "CUT")]).replace(b"CUT", each.encode()) for n, each in enumerate(words)]
    rows[1] = rows[1].replace(b'"[[]', b"[[]").replace(b'[]]"', b"[]]")
    world.write([], OTHER)
    (world.folder / f"{OTHER}.jsonl").write_bytes(b"".join(rows) + dump([message(3, "behind")]))
    world.archive.archive(world.folder / f"{OTHER}.jsonl", OTHER)
    told = world.run("export", OTHER, tmp_path / "masked", "--redact").stdout
    assert "23.9 MB of rows too long to be searched left out" in told
    kept = [json.loads(line) for line in (tmp_path / "masked").read_bytes().splitlines()]
    assert [row["message"]["content"][:6] for row in kept] == ["words ", "behind"]


def test_a_reader_that_has_seen_enough(world):
    world.write([message(n, "x" * 5000) for n in range(200)], OTHER)
    command = f"{sys.executable} -m mala_context.cli archives cat {OTHER} | head -c 10"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, dump([message(0, "x")])[:10], b"")


def test_ctrl_c_leaves_nothing_half(world, tmp_path):
    world.write([message(n, "x" * 2000) for n in range(4000)], OTHER)
    script = (
        "import os, signal, sys\n"
        "from mala_context.archive import redact\n"
        "row = redact.Redactor.row\n"
        "seen = []\n"
        "def interrupted(self, each):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 5: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return row(self, each)\n"
        "redact.Redactor.row = interrupted\n"
        "from mala_context.cli import main\n"
        f"sys.argv = ['mala-context', 'archives', 'export', '{OTHER}', '{tmp_path}/out', '--redact']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode in {130, -signal.SIGINT}, done.stderr
    assert b"interrupted" in done.stderr
    assert not [name for name in os.listdir(tmp_path) if name == "out" or name.startswith(".tmp")]


# names that are not there


@pytest.mark.parametrize("command", ["list", "verify", "pack", "prune"])
def test_a_directory_that_is_not_there_is_no_sound_archive(world, tmp_path, command):
    limit = ["--days", "1"] if command == "prune" else []
    result = world.run(command, "--dir", tmp_path / "typo", *limit, status=3)
    assert f"there is no directory {tmp_path / 'typo'}" in result.output
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("command", ["show", "cat", "verify", "restore", "prune", "pack"])
def test_a_session_that_is_nearly_named(world, command):
    wrong = SID[:6] + ("0" if SID[6] != "0" else "1") + SID[7:]
    assert f"did you mean {SID}?" in world.run(command, wrong, status=3).output
    assert f"did you mean {SID}?" in world.run(command, wrong[:8], status=3).output
    assert "did you mean" not in world.run(command, "zzzzzzzz", status=3).output


def test_an_export_that_is_there_already_is_named(world, tmp_path):
    (tmp_path / "out").write_text("mine")
    assert f"{tmp_path / 'out'}: File exists" in world.run("export", SID, tmp_path / "out", status=3).output
    assert (tmp_path / "out").read_text() == "mine"


def test_no_archives_at_all(world, tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "others"))
    assert world.run("verify", "--all").output == "no archives\n"
    assert world.json("verify", "--all") == []


# no argument means mine


@pytest.mark.parametrize("command", [["show"], ["cat"], ["lost"], ["restore", "--dry-run"]])
def test_without_a_session_it_is_the_one_archived_last(world, command):
    world.write(session(1), OTHER)
    assert world.run(*command).stdout == world.run(command[0], OTHER, *command[1:]).stdout


def test_without_a_session_and_without_any_archived_it_is_said(world, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "name a SESSION" in world.run("show", "--repo", tmp_path / "empty", status=3).stderr


def test_outside_of_a_repository_with_an_archive_all_are_taken(world, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert SID in world.run("list").stdout
    assert "1 session" in world.run("verify").stdout
    assert SID in world.run("search", "message").stdout


def test_ids_are_offered_to_a_shell(world):
    world.write(session(1), OTHER)
    offered = [each.value for each in complete_archived(click.Context(app), app.params[0], "")]
    assert offered == [OTHER, SID]
    assert [each.value for each in complete_archived(click.Context(app), app.params[0], SID[:3])] == [SID]


def test_prune_dry_run(world):
    world.transcript.unlink()
    assert "dry run" in world.run("prune", SID, "--dry-run").stdout
    assert "exclude each other" in world.run("prune", SID, "--dry-run", "--yes", status=2).stderr
    assert SID in world.run("list").stdout


@pytest.mark.parametrize("size", ["infGB", "nanGB", "-1", "1e999", "9" * 400 + "GB", "5XB", ""])
def test_a_size_that_is_none_is_wrong_usage(world, size):
    result = world.run("prune", "--bytes", size, status=2)
    assert result.stderr.startswith("mala-context: ")
    assert "Traceback" not in result.stderr
