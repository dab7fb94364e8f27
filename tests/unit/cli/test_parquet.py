"""Rows as a Parquet file; pyarrow is large, and what is asked of it is little."""

import sys
import types

import click
import pytest

from mala_context.cli.parquet import write

ROWS = [{"file": "a.jsonl", "tokens": 20_180}, {"file": "b.jsonl", "tokens": None}]


@pytest.fixture
def pyarrow(monkeypatch):
    """A package in pyarrow's place that writes a table as text."""
    package, module = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    package.Table = types.SimpleNamespace(from_pylist=repr)
    package.parquet = module

    def write_table(table, path):
        with open(path, "w") as file:
            file.write(table)

    module.write_table = write_table
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
    return module


def test_the_rows_are_there_under_the_name(pyarrow, tmp_path):
    write(ROWS, str(tmp_path / "out.parquet"))
    assert (tmp_path / "out.parquet").read_text() == repr(ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_a_file_that_could_not_be_written_whole_is_not_there(pyarrow, tmp_path):
    def fail(table, path):
        with open(path, "w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    (tmp_path / "out.parquet").write_text("before")
    pyarrow.write_table = fail
    with pytest.raises(Exception, match="No space left on device"):
        write(ROWS, str(tmp_path / "out.parquet"))
    assert (tmp_path / "out.parquet").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(click.ClickException, match=r"pip install 'mala-context\[parquet\]'"):
        write(ROWS, str(tmp_path / "out.parquet"))
    assert list(tmp_path.iterdir()) == []
