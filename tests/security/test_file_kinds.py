"""A path that is no ordinary file, on the command line or in the place of a file that we read, ends no command badly.

No command waits for it, gives a traceback or is silent about its failure. A hang is ended by a timer, which names it.
"""

import os
import signal
import sys
import traceback

import pytest

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import run
from tests.helpers.small_transcripts import SID, dump, session
from tests.helpers.variants import variants
from tests.security.odd_files import NO_FILES

SECONDS = 60
"""Of processor time, which a busy machine does not lengthen, and ten times as many by the clock."""
KINDS = {
    **{kind: NO_FILES[kind] for kind in ("FIFO", "link to an endless device", "folder")},
    **NO_FILES,
    "link to a full device": lambda path: os.symlink("/dev/full", path),
    "link to nothing": lambda path: os.symlink("/nowhere/at/all", path),
    "link to a file that cannot be read": lambda path: os.symlink("/proc/self/mem", path),
    "nothing in it": lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)),
    "unreadable": lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o000)),
    "nothing": lambda path: None,
}
NAMED = [
    *("replay {}.jsonl", "replay {}.jsonl.gz", "replay {}.jsonl.zst", "replay rec.jsonl -o {}", "replay --project {}"),
    *(
        "audit {}.jsonl",
        "audit rec.jsonl --parquet {}",
        "audit rec.jsonl --plot {}.svg",
        "simulate {} --policy mala.yaml",
    ),
    *(
        "simulate rec.jsonl --policy {}",
        "simulate rec.jsonl --policy mala.yaml --parquet {}",
        "map {}",
        "report {}.jsonl",
    ),
    *(
        "report rec.jsonl -o {}.html",
        "report rec.jsonl -o {}.svg",
        "report --dir {}",
        "report rec.jsonl --json --repo {}",
    ),
    *("init --repo {} --yes", "doctor --no-session --repo {}", "config show {}", "config check {}", "config init {}"),
    *("watch --once --projects {}", "watch --once {}", "archives import {}", "archives import rec.jsonl --dir {}"),
    *("archives list --dir {}", "archives list --repo {}", f"archives show {SID} --dir {{}}", "archives show {}"),
    *("archives verify --dir {}", "archives verify --repair --dir {}", "archives search message --dir {}"),
    *(f"archives cat {SID} --dir {{}}", f"archives lost {SID} --repo {{}}", "archives catch-up --dir {}"),
    *(
        "archives pack --dir {}",
        "archives prune --days 1 --yes --dir {}",
        f"archives restore {SID} --projects-dir {{}}",
    ),
    *(f"archives restore {SID} --cwd {{}}", f"archives export {SID} {{}}", f"archives export {SID} {{}} --html"),
    *(
        f"archives export {SID} {{}} --redact",
        "archives push --repo {}",
        "run hello --cwd {}/none",
    ),
]
"""Commands with an odd path."""
READERS = [
    *(
        "archives list",
        f"archives show {SID}",
        f"archives cat {SID}",
        f"archives lost {SID}",
        "archives search message",
    ),
    *("archives verify", f"archives restore {SID} --dry-run", "archives prune --days 1", f"report {SID} -o {{}}"),
    *("replay --totals", "audit", "report -o {}", "watch --once", "doctor --no-session", "config show", "config check"),
    *("map", f"map {SID}", "simulate --policy mala.yaml"),
]
WRITERS = [
    *("archives verify --repair", "archives catch-up", "archives pack", f"archives export {SID} {{}}"),
    *(f"archives restore {SID}", "archives import", "config init", "init --yes", "archives prune --days 1 --yes"),
]
EVENTS = ("PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit")


class Hangs(BaseException):
    """A command takes too long."""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A repository with an archived session, a recording and settings; it is the working directory."""
    return make_world(tmp_path, monkeypatch)


def make_world(top, monkeypatch):
    for name, place in (("HOME", "home"), ("MALA_RUNS_DIR", "runs"), ("CLAUDE_CONFIG_DIR", "home/.claude")):
        (top / place).mkdir(parents=True, exist_ok=True, mode=0o700)
        monkeypatch.setenv(name, str(top / place))
    repo = top / "repo"
    (repo / ".claude").mkdir(parents=True)
    monkeypatch.chdir(repo)
    (repo / "mala.yaml").write_text("context:\n  warn_at: 0.5\n")
    for each in (repo / ".claude", top / "home" / ".claude"):
        (each / "settings.json").write_text("{}")
    path = top / "home" / ".claude" / "projects" / "-repo" / f"{SID}.jsonl"
    path.parent.mkdir(parents=True)
    rows = session(2)
    (repo / "rec.jsonl").write_bytes(dump(rows))
    archive = TranscriptArchive(repo_path=repo)
    for count in (4, 9, len(rows)):
        path.write_bytes(dump(rows[:count]))
        archive.archive(path, SID, trigger="auto")
        if count == 4:
            archive.pack([SID])
    archive.register_session(SID, path, pid=os.getpid())
    return top


@pytest.fixture
def call(monkeypatch, capsys):
    """Return what runs the command line here, and says what is wrong with how that ended, if anything."""

    def hangs(*_):
        raise Hangs

    def timed(work):
        for timer, seconds in ((signal.ITIMER_VIRTUAL, SECONDS), (signal.ITIMER_REAL, SECONDS)):
            signal.setitimer(timer, seconds)
        try:
            work()
        finally:
            for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_REAL):
                signal.setitimer(timer, 0)

    def run_it(line):
        monkeypatch.setattr(sys, "argv", ["mala-context", *line.split()])
        try:
            timed(run)
        except SystemExit as end:
            out, err = capsys.readouterr()
            if end.code not in {0, 1, 2, 3} or "Traceback" in out + err:
                return f"{line}: {end.code}: {out[-300:]}{err[-900:]}"
            return f"{line}: status {end.code} without a word" if end.code and not (out + err).strip() else None
        except BaseException:  # noqa: BLE001  # that is what is looked for
            return f"{line}: {traceback.format_exc()[-1200:]}"
        return f"{line}: no status"

    before = {each: signal.signal(each, hangs) for each in (signal.SIGVTALRM, signal.SIGALRM)}
    yield run_it
    for each, handler in before.items():
        signal.signal(each, handler)


def put(path, kind):
    """Put a kind of file at a path, in the place of what stands there."""
    if os.path.lexists(path):
        os.unlink(path)
    KINDS[kind](str(path))


@pytest.mark.parametrize("kind", variants(list(KINDS), 2))
def test_a_path_on_the_command_line(world, call, kind):
    faults = []
    for number, line in enumerate(NAMED):
        odd = world / f"odd{number}"
        word = next(word for word in line.split() if "{}" in word)
        put(word.format(odd).removesuffix("/none"), kind)
        faults += filter(None, [call(line.format(odd))])
    assert not faults, "\n".join(faults)


def places(world):
    """Every file that we or the CLI keep, by a name of its kind."""
    repo, home = world / "repo", world / "home" / ".claude"
    (archives,) = world.glob("runs/*/archives")
    kept = {each.name.replace(SID, "session"): each for each in archives.iterdir() if each.is_file()}
    pieces = sorted(name for name in kept if name.endswith(("_transcript.jsonl", "_transcript.jsonl.zst")))
    kinds = {f"piece {number}": kept.pop(name) for number, name in enumerate(pieces)}
    (transcript,) = home.glob("projects/*/*.jsonl")
    settings = {"mala.yaml": repo / "mala.yaml", "user's settings": home / "settings.json"}
    settings |= {"project's settings": repo / ".claude" / "settings.json", "transcript": transcript}
    return settings | kinds | kept


def swap(path, kind, aside):
    """Put a kind of file in the place of a file, which goes aside."""
    path.rename(aside)
    put(path, kind)


@pytest.mark.parametrize("kind", variants(list(KINDS)))
def test_a_file_that_we_expect(world, call, kind):
    """One after the other is no file; every command that only reads is tried with each."""
    faults = []
    assert len(places(world)) == 8
    for name, path in places(world).items():
        aside = world / "aside"
        swap(path, kind, aside)
        ended = [call(line.format(world / "out.html")) for line in READERS]
        faults += [f"{name}: {fault}" for fault in ended if fault]
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        put(path, "nothing")
        aside.rename(path)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("kind", variants(list(KINDS), 0))
def test_a_file_that_we_expect_where_something_is_written(tmp_path, monkeypatch, call, kind):
    faults, (every, *_) = [], [range(len(places(make_world(tmp_path / "first", monkeypatch))))]
    for line in WRITERS:
        for number in every:
            top = make_world(tmp_path / f"{len(faults)}-{WRITERS.index(line)}-{number}", monkeypatch)
            name, path = list(places(top).items())[number]
            swap(path, kind, top / "aside")
            if fault := call(line.format(top / "out.jsonl")):
                faults.append(f"{name}: {fault}")
    assert not faults, "\n".join(faults)
