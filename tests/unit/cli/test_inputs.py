"""What a command reads: directories, times, this user's own sessions, and the engine that reads."""

import os
import time

import click
import pytest
from click.testing import CliRunner

from mala_context.analysis import cluster
from mala_context.analysis.replay.engine import LocalEngine
from mala_context.analysis.replay.files import find
from mala_context.cli.app import app
from mala_context.cli.inputs import (
    ExistingDirectory,
    Moment,
    chosen,
    complete_session,
    engine_options,
    must_hold_rows,
    one_session,
    recordings,
)
from mala_context.errors import MalaContextError
from mala_context.transcripts.projects import folder_name
from tests.helpers.recordings import SID, plain

OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def test_a_directory_that_is_there(tmp_path):
    assert ExistingDirectory().convert(str(tmp_path), None, None) == str(tmp_path)


def test_a_directory_that_is_not_there(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError) as missing:
        ExistingDirectory().convert(str(tmp_path / "none"), None, None)
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        ExistingDirectory().convert(str(tmp_path / "file"), None, None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        ExistingDirectory().convert(str(tmp_path), None, None)


@pytest.mark.parametrize("text", ["soon", "7", "-1d", "2026-13-01", "9999999999d"])
def test_a_time_that_is_none(text):
    with pytest.raises(click.BadParameter, match="is no time"):
        Moment().convert(text, None, None)


def test_a_time_is_utc():
    assert Moment().convert("2026-05-01T12:00+02:00", None, None) == "2026-05-01T10:00:00"


# this user's own sessions


@pytest.fixture
def projects(tmp_path, monkeypatch):
    """Two sessions in the CLI's folders: one of this project, used today, with a subagent; one of another, old."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    repo = tmp_path / "repo"
    (repo / "deep").mkdir(parents=True)
    monkeypatch.chdir(repo / "deep")
    place = tmp_path / "claude" / "projects"
    plain().write(place / folder_name(str(repo)) / f"{SID}.jsonl")
    plain().write(place / folder_name(str(repo)) / SID / "subagents" / "agent-a1.jsonl")
    old = place / "-other" / f"{OTHER}.jsonl"
    plain().write(old)
    os.utime(old, (time.time() - 90 * 86_400,) * 2)
    return place


def names(found):
    return [os.path.basename(each) for each in found]


class TestRecordings:
    def test_paths_that_are_given_stay(self, projects):
        assert recordings(("a", "b")) == ("a", "b")

    @pytest.mark.parametrize("more", [{"project": "."}, {"session": "ab"}, {"since": "2026-01-01T00:00:00"}])
    def test_options_choose_among_own_sessions_only(self, projects, more):
        with pytest.raises(click.UsageError, match="name no PATH"):
            recordings(("a",), **more)

    def test_no_path_is_every_session(self, projects):
        assert sorted(names(recordings(()))) == sorted(names(projects.iterdir()))

    def test_a_project_is_that_of_the_nearest_directory_above(self, projects):
        assert recordings((), project=".") == recordings((), project="..")
        assert len(recordings((), project=".")) == 1

    def test_a_session_by_its_first_letters_with_its_subagents(self, projects):
        found = recordings((), session=SID[:8])
        assert names(found) == [f"{SID}.jsonl"]
        assert names(each.path for each in find(found)) == [f"{SID}.jsonl", "agent-a1.jsonl"]

    def test_since(self, projects):
        after = Moment().convert("1d", None, None)
        assert names(recordings((), since=after)) == [f"{SID}.jsonl"]
        assert len(recordings((), since=Moment().convert("52w", None, None))) == 2

    @pytest.mark.parametrize(
        "options",
        [{"session": "zzzz"}, {"project": "/"}, {"since": "2999-01-01T00:00:00"}],
        ids=lambda each: next(iter(each)),
    )
    def test_none_is_named(self, projects, options):
        with pytest.raises(MalaContextError, match="no session"):
            recordings((), **options)

    def test_without_a_home(self, projects, monkeypatch):
        monkeypatch.delenv("CLAUDE_CONFIG_DIR")
        monkeypatch.setenv("HOME", "/")
        with pytest.raises(MalaContextError, match="no sessions in any directory"):
            recordings(())

    def test_a_linked_project_folder_counts(self, projects, tmp_path):
        os.rename(projects / "-other", tmp_path / "elsewhere")
        (projects / "-linked").symlink_to(tmp_path / "elsewhere")
        assert names(recordings((), session=OTHER)) == [f"{OTHER}.jsonl"]


@pytest.mark.parametrize("words", [["replay", "--totals"], ["audit", "--json"], ["report", "--json"]])
def test_a_command_without_a_path_reads_this_users_sessions(projects, words):
    done = CliRunner().invoke(app, [*words, "--session", SID[:8]])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, words).exit_code == 0
    assert "no session" in CliRunner().invoke(app, [*words, "--session", "zzzz"]).stderr


def test_one_of_several_sessions():
    assert one_session("a", ["a", "ab"]) == "a"
    assert one_session("a", ["ab"]) == "ab"
    assert one_session("a", []) is None
    assert one_session("", ["a"]) is None
    with pytest.raises(click.UsageError, match="2 sessions begin with a: ab, ac"):
        one_session("a", ["ac", "ab"])


def test_ids_are_offered_to_a_shell(projects):
    context, parameter = click.Context(click.Command("x")), click.Option(["--session"])
    assert [each.value for each in complete_session(context, parameter, "")] == [SID, OTHER]
    assert [each.value for each in complete_session(context, parameter, OTHER[:6])] == [OTHER]


class TestNothingRead:
    def test_a_row_is_enough(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('garbage\n{"type": "user"}\n')
        (tmp_path / "b.jsonl").write_text("garbage\n")
        must_hold_rows([str(tmp_path)])
        must_hold_rows(["-"])

    @pytest.mark.parametrize("data", [b"garbage\n", b"\x00\xff" * 500, b"[1]\n"])
    def test_no_row_at_all_names_the_first_problem(self, tmp_path, data):
        path = tmp_path / "a.jsonl"
        path.write_bytes(data)
        with pytest.raises(MalaContextError, match=r"nothing could be read: .*a\.jsonl:1: no"):
            must_hold_rows([str(path)])

    def test_an_empty_file_has_no_problem(self, tmp_path):
        (tmp_path / "a.jsonl").write_text("")
        must_hold_rows([str(tmp_path)])

    @pytest.mark.parametrize(
        "words", [["replay"], ["replay", "--format", "json"], ["audit"], ["simulate", "--policy", "m.yaml"]]
    )
    def test_a_command_says_it_and_ends_with_3(self, tmp_path, monkeypatch, words):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "m.yaml").write_text("")
        (tmp_path / "a.jsonl").write_text("garbage\n")
        done = CliRunner().invoke(app, [*words, "a.jsonl"])
        assert done.exit_code == 3
        assert done.stderr == "mala-context: nothing could be read: a.jsonl:1: no whole JSON object\n"


# who reads


@click.command()
@engine_options
def command(engine, scheduler, jobs):
    with chosen(engine, scheduler, jobs) as made:
        click.echo(f"{type(made).__name__} {vars(made)}")


def run(*arguments):
    return CliRunner().invoke(command, arguments)


class Cluster:
    def __init__(self, scheduler, workers):
        self.scheduler, self.workers = scheduler, workers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        click.echo("ended")


@pytest.fixture
def dask(monkeypatch):
    monkeypatch.setattr(cluster, "DaskEngine", Cluster)


@pytest.mark.parametrize("arguments", [(), ("--engine", "local"), ("--jobs", "3")])
def test_processes_of_this_machine_are_the_default(arguments):
    assert run(*arguments).output.startswith(LocalEngine.__name__)


def test_jobs_are_how_many():
    with chosen(None, None, 3) as engine:
        assert "3" in str(vars(engine))


def test_a_cluster_of_its_own_ends_with_the_command(dask):
    assert run("--engine", "dask", "--jobs", "2").output == "Cluster {'scheduler': None, 'workers': 2}\nended\n"


def test_a_scheduler_implies_dask(dask):
    assert "'scheduler': 'tcp://h:1'" in run("--scheduler", "tcp://h:1").output
    assert "'scheduler': 'tcp://h:1'" in run("--scheduler", "tcp://h:1", "--engine", "dask").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "local", "--scheduler", "tcp://h:1"), "leave --engine local out"),
        (("--scheduler", "tcp://h:1", "--jobs", "2"), "counts processes of this machine"),
        (("--engine", "spark"), "'local', 'dask'"),
        (("--jobs", "0"), "0 is not in the range"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output
