"""Which transcripts are there, and which changed."""

import os
import time

import pytest

from mala_context.analysis.watch import places as places_module
from mala_context.analysis.watch.places import Places, agent_of, session_of
from tests.helpers.watch_sessions import append, session, session_id, subagent


def changed(places):
    return sorted(each.path for each in places.look()[0])


@pytest.fixture
def projects(tmp_path):
    return tmp_path / "projects"


def test_what_is_there_is_found_once(projects):
    paths = [session(projects, number)[1] for number in range(3)]
    agent = subagent(paths[0])
    places = Places([str(projects)])
    assert changed(places) == sorted(map(str, [*paths, agent]))
    assert changed(places) == []


def test_a_projects_directory_that_is_made_later(projects):
    places = Places([str(projects)])
    assert changed(places) == []
    _, path = session(projects)
    assert changed(places) == [str(path)]


def test_a_row_a_session_a_project_and_a_subagent_are_noticed(projects):
    rows, path = session(projects, 1)
    places = Places([str(projects)])
    places.look()
    append(path, rows.prompt())
    assert changed(places) == [str(path)]
    for number in (1_001, 7):
        _, new = session(projects, number, folder=number // 1_000)
        assert changed(places) == [str(new)]
    agent = subagent(path)
    assert changed(places) == [str(agent)]


def test_a_directory_is_listed_again_while_its_clock_is_too_coarse(projects, monkeypatch):
    session(projects, 1)
    places = Places([str(projects)])
    places.look()
    folder = projects / "-home-dev-project-0"
    before = folder.stat()
    session(projects, 0)
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert changed(places) == [str(folder / f"{session_id(0)}.jsonl")]


def test_files_that_go_are_told_once_and_may_come_back(projects):
    rows, path = session(projects)
    places = Places([str(projects)])
    places.look()
    path.unlink()
    assert places.look() == ([], [str(path)])
    assert places.look() == ([], [])
    rows.write(path)
    assert changed(places) == [str(path)]


def test_links_other_files_and_folders_are_left_alone(projects):
    _, path = session(projects)
    (path.parent / "link.jsonl").symlink_to(path)
    (path.parent / "notes.txt").write_text("x")
    (path.parent / "folder.jsonl").mkdir()
    (projects / "stray.jsonl").write_text("{}")
    os.mkfifo(path.parent / "pipe.jsonl")
    assert changed(Places([str(projects)])) == [str(path)]


def test_old_transcripts_are_asked_for_in_turn(projects, monkeypatch):
    monkeypatch.setattr(places_module, "SHARE", 2)
    made = [session(projects, number) for number in range(8)]
    past = time.time() - 10_000
    for _, path in made:
        os.utime(path, (past, past))
    places = Places([str(projects)])
    places.look()
    places.shown.add(str(made[0][1]))
    places._ordered -= places_module._ORDER  # time to part hot from cold
    for rows, path in made:
        append(path, rows.prompt())
    looks = [changed(places) for _ in range(8)]
    assert str(made[0][1]) in looks[0]
    assert len(looks[0]) < 8
    assert sorted(path for look in looks for path in look) == sorted(str(path) for _, path in made)


def test_named_transcripts_alone_with_their_subagents(projects):
    paths = [session(projects, number)[1] for number in range(2)]
    agent = subagent(paths[0])
    subagent(paths[1])
    assert changed(Places(only=[str(paths[0])])) == sorted([str(paths[0]), str(agent)])


def test_a_directory_that_cannot_be_listed_is_tried_again(projects, monkeypatch):
    _, path = session(projects)
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (_ for _ in ()).throw(PermissionError(13, "no")))
    places = Places([str(projects)])
    assert changed(places) == []
    monkeypatch.setattr(os, "scandir", real)
    assert changed(places) == [str(path)]


@pytest.mark.parametrize(
    ("path", "session", "agent"),
    [
        ("/p/-a/5f.jsonl", "5f", None),
        ("/p/-a/5f/subagents/agent-a1.jsonl", "5f", "a1"),
        ("/p/-a/agent-a1.jsonl", None, "a1"),
    ],
)
def test_what_a_path_says(path, session, agent):
    assert (session_of(path), agent_of(path)) == (session, agent)


def test_a_look_ends_in_time_and_the_next_one_goes_on(projects, monkeypatch):
    monkeypatch.setattr(places_module, "PATIENCE", -1.0)
    monkeypatch.setattr(places_module, "_STRIDE", 1)
    paths = [str(session(projects, number)[1]) for number in range(5)]
    places = Places([str(projects)])
    looks = [changed(places)]
    while places.looking:
        looks.append(changed(places))
    assert len(looks) >= len(paths)
    assert max(map(len, looks)) == 1
    assert sorted(path for look in looks for path in look) == sorted(paths)
    assert places.known == len(paths) + 4  # and their directories


def test_a_directory_that_takes_long_is_not_listed_at_each_change(projects, monkeypatch):
    monkeypatch.setattr(places_module, "QUICK", -1.0)
    monkeypatch.setattr(places_module, "LISTING", 1e9)
    session(projects, 1)
    places = Places([str(projects)])
    places.look()
    folder = places._paths[str(projects / "-home-dev-project-0")]
    _, path = session(projects, 0)
    assert changed(places) == []
    folder.again = 0.0
    assert changed(places) == [str(path)]


def test_what_grows_old_is_asked_for_in_turn_and_again_at_every_look(projects, monkeypatch):
    monkeypatch.setattr(places_module, "SHARE", 1)
    made = [session(projects, number) for number in range(3)]
    past = time.time() - 10_000
    for _, path in made:
        os.utime(path, (past, past))
    places = Places([str(projects)])
    for _ in range(3):
        places.look()
        places._ordered -= places_module._ORDER
    assert len(places._cold) == 3
    rows, path = made[1]
    append(path, rows.prompt())
    while changed(places) != [str(path)]:
        pass
    append(path, rows.prompt())
    assert changed(places) == [str(path)]
    os.utime(path, (past, past))
    for _ in range(8):
        places.look()
        places._ordered -= places_module._ORDER
    assert len(places._cold) == 3  # each once
