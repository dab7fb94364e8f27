"""Files that commands write: whole or not at all."""

import os
import stat
import sys
import types

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.cli.files import publish, write_parquet


def names(directory):
    return sorted(each.name for each in directory.iterdir())


def write(path, text, **more):
    with publish(str(path), **more) as temporary, open(temporary, "w") as file:
        file.write(text)


def test_a_new_file_has_the_umasks_mode(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "a.csv", "words")
    finally:
        os.umask(before)
    assert (tmp_path / "a.csv").read_text() == "words"
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o640
    assert names(tmp_path) == ["a.csv"]


def test_a_transcript_is_never_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    transcript = tmp_path / "projects" / "-repo" / "s1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text("the only copy")
    (tmp_path / "link").symlink_to(transcript)
    for place in (transcript, tmp_path / "link"):
        with pytest.raises(FileExistsError, match="a transcript of Claude Code"):
            write(place, "a table")
    assert transcript.read_text() == "the only copy"
    write(transcript.with_name("table.json"), "a table")


def test_one_that_is_there_keeps_its_mode(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o604)
    write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o604


def test_a_private_file_is_private_whatever_was_there(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o644)
    before = os.umask(0)
    try:
        for name in ("old", "new"):
            write(tmp_path / name, "words", private=True)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    assert {each.read_text() for each in tmp_path.iterdir()} == {"words"}


def test_the_name_ends_as_the_targets_does(tmp_path):
    with publish(str(tmp_path / "a.png")) as temporary:
        assert temporary.endswith(".png")
        assert os.path.dirname(temporary) == str(tmp_path)


def write_a_part(path, text, error):
    with publish(path) as temporary:
        with open(temporary, "w") as file:
            file.write(text)
        raise error


@given(st.sampled_from([KeyboardInterrupt, OSError(28, "No space left on device"), RuntimeError]), st.integers(0, 3))
def test_what_was_there_stays_whatever_ends_the_writing(tmp_path_factory, error, written):
    tmp_path = tmp_path_factory.mktemp("files")
    (tmp_path / "a").write_text("old")
    with pytest.raises((KeyboardInterrupt, OSError, RuntimeError)):
        write_a_part(str(tmp_path / "a"), "x" * written, error)
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_an_interrupt_while_the_temporary_file_goes_leaves_none(tmp_path, monkeypatch):
    """Ctrl-C comes when it will, a second time too."""
    unlink, calls = os.unlink, []

    def interrupted(path):
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(os, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_a_part(str(tmp_path / "a"), "x", RuntimeError)
    assert names(tmp_path) == []
    assert len(calls) == 2


def test_a_reader_that_went_away_is_said_as_it_is(tmp_path):
    with pytest.raises(BrokenPipeError) as raised:
        write_a_part(str(tmp_path / "a"), "x", BrokenPipeError(32, "Broken pipe"))
    assert raised.value.filename is None
    assert names(tmp_path) == []


def test_nothing_is_replaced_unasked(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileExistsError):
        write(tmp_path / "a", "new", replace=False)
    write(tmp_path / "b", "new", replace=False)
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_text() == "old"


def test_nor_what_came_meanwhile(tmp_path):
    with pytest.raises(FileExistsError), publish(str(tmp_path / "a"), replace=False):
        (tmp_path / "a").write_text("theirs")
    assert (tmp_path / "a").read_text() == "theirs"
    assert names(tmp_path) == ["a"]


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    write(tmp_path / "a", "new", replace=False)
    assert (tmp_path / "a").read_text() == "new"
    assert names(tmp_path) == ["a"]


def test_a_disk_that_fails_at_the_last_step_leaves_nothing(tmp_path, monkeypatch):
    def link(source, target):
        raise OSError(5, "Input/output error", source, None, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="Input/output error") as raised:
        write(tmp_path / "a", "new", replace=False)
    assert raised.value.filename == str(tmp_path / "a")
    assert names(tmp_path) == []


def test_a_link_stays_one(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe", "words")
    assert os.read(reader, 100) == b"words"
    os.close(reader)
    assert names(tmp_path) == ["pipe"]


def test_a_pipe_that_no_program_reads_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no program reads this pipe") as raised:
        write(tmp_path / "pipe", "words")
    assert raised.value.filename == str(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["none/a", "file/a", "."])
def test_errors_name_the_target(tmp_path, name):
    (tmp_path / "file").write_text("")
    path = os.path.join(str(tmp_path), name)
    with pytest.raises((FileNotFoundError, NotADirectoryError, IsADirectoryError)) as raised:
        write(path, "words")
    assert raised.value.filename == path
    assert ".tmp-" not in str(raised.value)


class Owned:
    """A status with another owner."""

    def __init__(self, status, owner):
        self.st_mode, self.st_uid = status.st_mode, owner


@pytest.fixture
def of_another(monkeypatch):
    """Let some paths belong to another user; returns what names them."""
    paths, lstat = set(), os.lstat
    monkeypatch.setattr(
        os, "lstat", lambda path, **more: Owned(lstat(path), 54321) if str(path) in paths else lstat(path, **more)
    )
    return lambda path: paths.add(str(path))


@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("private", [True, False])
def test_a_trap_of_another_user_is_refused(mode, private, tmp_path, of_another):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "rc").write_text("keep me")
    (shared / "out.html").symlink_to(mine / "rc")
    (shared / "folder").symlink_to(mine)
    os.mkfifo(shared / "pipe")
    for name in ("out.html", "folder", "pipe"):
        of_another(shared / name)
    (tmp_path / "by-two").symlink_to("shared/folder/")
    for path in ("shared/out.html", "shared/folder/new", "shared/pipe", "by-two/rc", "by-two/../mine/new"):
        with pytest.raises(PermissionError, match="user 54321 has put a link or a pipe there"):
            write(tmp_path / path, "new", private=private)
    assert (mine / "rc").read_text() == "keep me"
    assert names(mine) == ["rc"]


def test_links_that_are_nobody_elses_are_followed(tmp_path, of_another):
    mine = tmp_path / "mine"
    mine.mkdir()
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "other").symlink_to(mine)
    of_another(tmp_path / "other")  # in a directory that is ours alone
    tmp_path.chmod(0o755)
    for name in ("link", "other"):
        write(tmp_path / name / "a", name)
        assert (mine / "a").read_text() == name
    tmp_path.chmod(0o1777)
    write(tmp_path / "link" / "a", "again")
    assert (mine / "a").read_text() == "again"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        write(tmp_path / "loop", "x")


# Parquet

ROWS = [{"file": "a.jsonl", "tokens": 20_180}, {"file": "b.jsonl", "tokens": None}]


@pytest.fixture
def pyarrow(monkeypatch):
    """A package in pyarrow's place that writes a table as text."""
    package, module = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    package.Table = types.SimpleNamespace(from_pylist=repr)
    package.parquet = module

    def write_table(table, file):
        file.write(table.encode())

    module.write_table = write_table
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
    return module


def test_the_rows_are_there_under_the_name(pyarrow, tmp_path):
    write_parquet(ROWS, str(tmp_path / "out.parquet"))
    assert (tmp_path / "out.parquet").read_text() == repr(ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_a_file_that_could_not_be_written_whole_is_not_there(pyarrow, tmp_path):
    def fail(table, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "out.parquet").write_text("before")
    pyarrow.write_table = fail
    with pytest.raises(Exception, match="No space left on device"):
        write_parquet(ROWS, str(tmp_path / "out.parquet"))
    assert (tmp_path / "out.parquet").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(click.ClickException, match=r"pip install 'mala-context\[parquet\]'"):
        write_parquet(ROWS, str(tmp_path / "out.parquet"))
    assert list(tmp_path.iterdir()) == []
