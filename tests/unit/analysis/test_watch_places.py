"""Which transcripts exist, and which changed."""

import os
import time

import pytest

from mala_context.analysis.watch import places as places_module
from mala_context.analysis.watch.places import TranscriptFinder, agent_of, session_of
from tests.helpers.watch_sessions import append, session, subagent


@pytest.fixture
def projects(tmp_path):
    return tmp_path / "projects"


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that a test moves; it stands still by itself."""

    class Clock:
        now = 1_000.0

        def pass_by(self, seconds):
            self.now += seconds

    found = Clock()
    monkeypatch.setattr(places_module.time, "monotonic", lambda: found.now)
    return found


def changed(finder):
    return sorted(each.path for each in finder.look()[0])


def test_each_transcript_is_found_once(projects):
    paths = [session(projects, number)[1] for number in range(3)]
    agent = subagent(paths[0])
    finder = TranscriptFinder([str(projects)])
    assert changed(finder) == sorted(map(str, [*paths, agent]))
    assert not finder.looking
    assert changed(finder) == []
    assert finder.known == 4


def test_a_projects_directory_that_is_made_later(projects, clock):
    finder = TranscriptFinder([str(projects)])
    assert changed(finder) == []
    _, path = session(projects)
    clock.pass_by(places_module.FULL)
    assert changed(finder) == [str(path)]


def test_a_row_is_noticed_at_once_and_a_new_transcript_at_the_next_full_look(projects, clock):
    rows, path = session(projects, 1)
    finder = TranscriptFinder([str(projects)])
    finder.look()
    finder.follow(str(path))
    append(path, rows.prompt())
    assert changed(finder) == [str(path)]
    new = [session(projects, number, folder=number // 1_000)[1] for number in (1_001, 7)]
    new.append(subagent(path))
    assert changed(finder) == []
    clock.pass_by(places_module.FULL)
    assert changed(finder) == sorted(map(str, new))


def test_subagents_are_found_at_every_depth(projects):
    _, path = session(projects, 1)
    agent = subagent(path)
    deep = agent.parent / "workflows" / "run-1" / "agent-b2.jsonl"
    deep.parent.mkdir(parents=True)
    agent.rename(deep)
    for only in ((), (str(path),)):
        assert changed(TranscriptFinder([] if only else [str(projects)], only)) == sorted([str(path), str(deep)])


def test_files_that_go_are_told_once_and_may_come_back(projects, clock):
    rows, path = session(projects)
    _, other = session(projects, 2)
    finder = TranscriptFinder([str(projects)])
    finder.look()
    finder.follow(str(path))
    path.unlink()
    other.unlink()
    assert finder.look() == ([], [str(path)])
    clock.pass_by(places_module.FULL)
    assert finder.look() == ([], [str(other)])  # of one that is not followed a full look tells
    assert finder.look() == ([], [])
    rows.write(path)
    assert changed(finder) == [str(path)]


def test_links_other_files_and_folders_are_ignored(projects):
    _, path = session(projects)
    (path.parent / "link.jsonl").symlink_to(path)
    (path.parent / "notes.txt").write_text("x")
    (path.parent / "folder.jsonl").mkdir()
    (projects / "stray.jsonl").write_text("{}")
    os.mkfifo(path.parent / "pipe.jsonl")
    finder = TranscriptFinder([str(projects)])
    assert changed(finder) == [str(path)]
    finder.follow(str(path.parent / "pipe.jsonl"))
    assert changed(finder) == []


def test_a_project_folder_that_is_a_link(projects, tmp_path, clock):
    rows, path = session(tmp_path / "elsewhere")
    projects.mkdir()
    link = projects / "-home-dev-linked"
    link.symlink_to(path.parent)
    finder = TranscriptFinder([str(projects)])
    assert changed(finder) == [str(link / path.name)]
    _, other = session(tmp_path / "elsewhere", 0)
    clock.pass_by(places_module.FULL)
    assert changed(finder) == [str(link / other.name)]
    finder.follow(str(link / path.name))
    append(path, rows.prompt())
    assert changed(finder) == [str(link / path.name)]


def test_an_old_transcript_that_goes_on_is_noticed_at_a_full_look(projects, clock):
    rows, path = session(projects)
    past = time.time() - 10_000
    for each in (path, path.parent, projects):
        os.utime(each, (past, past))
    finder = TranscriptFinder([str(projects)])
    finder.look()
    append(path, rows.prompt())
    assert changed(finder) == []
    clock.pass_by(places_module.FULL)
    assert changed(finder) == [str(path)]
    finder.follow(str(path))
    append(path, rows.prompt())
    assert changed(finder) == [str(path)]
    finder.leave(str(path))
    append(path, rows.prompt())
    assert changed(finder) == []


def test_named_transcripts_alone_with_their_subagents(projects):
    paths = [session(projects, number)[1] for number in range(2)]
    agent = subagent(paths[0])
    subagent(paths[1])
    assert changed(TranscriptFinder(only=[str(paths[0])])) == sorted([str(paths[0]), str(agent)])


def test_a_directory_that_cannot_be_listed_is_tried_again(projects, clock, monkeypatch):
    _, path = session(projects)
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (_ for _ in ()).throw(PermissionError(13, "no")))
    finder = TranscriptFinder([str(projects)])
    assert changed(finder) == []
    monkeypatch.setattr(os, "scandir", real)
    clock.pass_by(places_module.FULL)
    assert changed(finder) == [str(path)]


@pytest.mark.parametrize(
    ("path", "session", "agent"),
    [
        ("/p/-a/5f.jsonl", "5f", None),
        ("/p/-a/5f/subagents/agent-a1.jsonl", "5f", "a1"),
        ("/p/-a/5f/subagents/workflows/r1/agent-a1.jsonl", "5f", "a1"),
        ("/p/-a/agent-a1.jsonl", None, "a1"),
    ],
)
def test_what_a_path_says(path, session, agent):
    assert (session_of(path), agent_of(path)) == (session, agent)


def test_a_step_ends_in_time_and_the_next_one_goes_on(projects, monkeypatch):
    monkeypatch.setattr(places_module, "PATIENCE", -1.0)
    monkeypatch.setattr(places_module, "_STRIDE", 1)
    paths = [str(session(projects, number)[1]) for number in range(5)]
    finder = TranscriptFinder([str(projects)])
    looks = [changed(finder)]
    while finder.looking:
        looks.append(changed(finder))
    assert len(looks) >= len(paths)
    assert max(map(len, looks)) <= 2  # one of the full look, and one of the quick one
    assert sorted(path for look in looks for path in look) == sorted(paths)


def test_a_look_waits_many_times_as_long_as_the_last_one_took(projects, clock, monkeypatch):
    rows, path = session(projects)
    finder = TranscriptFinder([str(projects)])
    finder.look()
    finder.follow(str(path))
    real = os.stat

    def slow(*args, **more):
        clock.pass_by(0.1)
        return real(*args, **more)

    monkeypatch.setattr(os, "stat", slow)
    finder.look()
    monkeypatch.setattr(os, "stat", real)
    append(path, rows.prompt())
    clock.pass_by(places_module.FULL - 0.2)
    assert changed(finder) == []  # a quick look took 0.1 s
    clock.pass_by(places_module.PAUSE * 0.1)
    assert changed(finder) == [str(path)]
