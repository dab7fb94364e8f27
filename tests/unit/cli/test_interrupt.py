"""Ctrl-C at any moment leaves no half file: commands that write are interrupted at the n-th call of our code.

What they were to write is afterwards either not there (or as it was before) or whole, and nothing lies beside it.
"""

import json
import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.archive.store import TranscriptArchive
from mala_context.cli import main
from mala_context.config.template import template
from tests.helpers.recordings import OTHER, plain
from tests.helpers.small_transcripts import SID, dump, session

# An interrupt between an `open` and its `with` leaves the file to the collector; that is what interrupts do.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = os.path.join(ROOT, "mala_context") + os.sep
TRANSCRIPT = dump(session(2))


class Interrupt:
    """Raises `KeyboardInterrupt` at the n-th call that our code makes or receives; counts them where n is 0."""

    def __init__(self, number=0):
        self.number, self.count = number, 0

    def __call__(self, frame, event, _):
        ours = frame.f_code.co_filename.startswith(OURS) and frame.f_code is not main.__code__
        if ours and event in {"call", "c_call"}:
            self.count += 1
            if self.count == self.number:
                sys.setprofile(None)
                raise KeyboardInterrupt


def play(words, number=0):
    """Run a command line in this process, interrupted at a call; return its exit status and the calls counted."""
    interrupt = Interrupt(number)
    before, sys.argv = sys.argv, ["mala-context", *words]
    sys.setprofile(interrupt)
    try:
        main()
    except SystemExit as end:
        return end.code, interrupt.count
    finally:
        sys.setprofile(None)
        sys.argv = before
    raise AssertionError("it did not exit")


class Place:
    """A directory with what the commands read, made anew for each example."""

    def __init__(self, root):
        self.root = root
        self.out = root / "out"
        self.archive = TranscriptArchive(directory=root / "archives")
        self.projects = root / "projects"
        for each in (self.out, self.projects):
            each.mkdir()
        plain().write(root / "a.jsonl")
        plain(OTHER).write(root / "b.jsonl")
        (root / f"{SID}.jsonl").write_bytes(TRANSCRIPT)
        self.archive.archive(root / f"{SID}.jsonl", SID, trigger="auto")
        (root / f"{SID}.jsonl").unlink()

    def words(self, name):
        return [
            word.format(out=self.out, root=self.root, sid=SID, projects=self.projects) for word in COMMANDS[name][0]
        ]

    def files(self):
        return {
            os.path.relpath(os.path.join(directory, name), self.root): open(os.path.join(directory, name), "rb").read()
            for top in (self.out, self.projects)
            for directory, _, names in os.walk(top)
            for name in names
        }


def is_json(data):
    json.loads(data)


def is_lines(data):
    assert len([json.loads(line) for line in data.splitlines()]) == 2


def is_csv(data):
    assert data.count(b"\r\n") == 3
    assert data.endswith(b"\r\n")


def is_svg(data):
    assert data.rstrip().endswith(b"</svg>")


def is_page(data):
    assert data.rstrip().endswith(b"</html>")


def is_transcript(data):
    assert data == TRANSCRIPT


def is_restored(data):
    rows = [json.loads(line) for line in data.splitlines()]
    assert data.endswith(b"\n")
    assert len(rows) == RESTORED[0]


def is_template(data):
    assert data.decode() == template()


RESTORED = [0]
"""Rows of a whole restored session; set by the run that nothing interrupts."""
COMMANDS = {
    "json": (["replay", "{root}/a.jsonl", "{root}/b.jsonl", "--format", "json", "-o", "{out}/x"], is_json),
    "ndjson": (["replay", "{root}/a.jsonl", "{root}/b.jsonl", "--format", "ndjson", "-o", "{out}/x"], is_lines),
    "csv": (["replay", "{root}/a.jsonl", "{root}/b.jsonl", "--format", "csv", "-o", "{out}/x"], is_csv),
    "plot": (["audit", "{root}/a.jsonl", "--plot", "{out}/x.svg", "--json"], is_svg),
    "report": (["report", "{root}/a.jsonl", "-o", "{out}/x.svg"], is_svg),
    "page": (["report", "{root}/a.jsonl", "-o", "{out}/x.html"], is_page),
    "export": (["archives", "export", "{sid}", "{out}/x", "--dir", "{root}/archives"], is_transcript),
    "restore": (
        ["archives", "restore", "{sid}", "--dir", "{root}/archives", "--projects-dir", "{projects}", "--cwd", "{root}"],
        is_restored,
    ),
    "init": (["config", "init", "{out}/x"], is_template),
}
"""Command line, and what its file must be where it is there."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """How many calls each command makes where nothing interrupts it; what it then writes is checked."""
    found = {}
    for name, (_, check) in COMMANDS.items():
        place = Place(tmp_path_factory.mktemp(name))
        play(place.words(name))  # once to import
        for path in place.files():
            os.unlink(place.root / path)
        code, found[name] = play(place.words(name))
        assert code == 0
        (data,) = place.files().values()
        if name == "restore":
            RESTORED[0] = len(data.splitlines())
        check(data)
    return found


@pytest.mark.parametrize("name", COMMANDS)
@settings(max_examples=15)
@given(share=st.floats(0, 1))
def test_no_half_file(name, share, calls, tmp_path_factory):
    place = Place(tmp_path_factory.mktemp(name))
    code, _ = play(place.words(name), 1 + round(share * (calls[name] - 1)))
    assert code in {0, 130}
    files = place.files()
    assert len(files) <= 1
    for data in files.values():
        COMMANDS[name][1](data)


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_no_half_file_at_any_of_the_last_calls(name, calls, tmp_path_factory):
    """Each of them, where files are made and named."""
    root = tmp_path_factory.mktemp(name)
    for number in range(max(1, calls[name] - 150), calls[name] + 1):
        place = Place(root / str(number)) if not (root / str(number)).mkdir() else None
        code, _ = play(place.words(name), number)
        assert code in {0, 130}
        files = place.files()
        assert len(files) <= 1
        for data in files.values():
            COMMANDS[name][1](data)


@pytest.mark.parametrize("name", ["json", "csv", "plot", "init"])
@settings(max_examples=10)
@given(share=st.floats(0, 1))
def test_what_was_there_before_stays(name, share, calls, tmp_path_factory):
    place = Place(tmp_path_factory.mktemp(name))
    target = place.words(name)[place.words(name).index(next(w for w in place.words(name) if str(place.out) in w))]
    with open(target, "w") as file:
        file.write("old")
    words = [*place.words(name), *(["--force"] if name == "init" else [])]
    play(words, 1 + round(share * (calls[name] - 1)))
    (data,) = place.files().values()
    if data != b"old":
        COMMANDS[name][1](data)
